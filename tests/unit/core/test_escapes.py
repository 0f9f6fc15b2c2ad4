"""JSON in texts is read layer by layer, and what is found there is known by its place in the text as it came."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import escapes
from toolgate.core.escapes import LAYERS, Looks, TooMuch, layers

_LETTERS = dict(zip("bfnrt", "\b\f\n\r\t", strict=True))
_escape = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_pieces = st.sampled_from(
    [
        "\\",
        "\\\\",
        "\\u0047",
        "\\u005c",
        "u005c",
        "u0047",
        "\\u00",
        "\\n",
        '\\"',
        "\\/",
        "\\d",
        "0",
        "/",
        "n",
        '"',
        "a",
        "é",
        "\\ud83d",
        "\\ude00",
        "\\u0000",
        "\\u0001",
        "€",
        "\n",
        "\\x41",
        "\\N",
        "😀",
        "\0",
        "\x01",
        "\x02",
    ]
)


def as_json_reads_it(text: str) -> str:
    return _escape.sub(lambda found: chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2]), text)


@given(st.lists(_pieces, max_size=60), st.sampled_from([16, 23, escapes.BLOCK]))
def test_a_layer_is_what_a_reader_of_json_reads_wherever_a_step_ends(pieces: list[str], block: int) -> None:
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(escapes, "BLOCK", block)
        for layer in layers(text, False, False, Looks(100_000)):
            if layer.is_loose:
                assert "\\" not in layer.text
                return
            text = re.sub("[\0-\2]", "\3", as_json_reads_it(text)) if "\\" in text else text
            assert re.sub("[\0-\2]", "\3", layer.text) == text


@given(st.lists(_pieces, max_size=60), st.booleans(), st.booleans(), st.sampled_from([16, 23, escapes.BLOCK]))
def test_what_a_layer_has_stands_where_it_says(pieces: list[str], bytes: bool, has_astral: bool, block: int) -> None:
    """Each character has its own place, or one with others, behind that of the one before it."""
    text = "".join(pieces)
    text = text.encode().decode("latin-1") if bytes else text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(escapes, "BLOCK", block)
        for layer in layers(text, bytes, has_astral, Looks(1_000_000)):
            end = 0
            for at in range(len(layer.text)):
                start, stop = layer.source_of(at, at + 1)
                assert 0 <= start < stop <= len(text) and stop >= end
                written = text[start:stop]
                assert written.isalnum() or "\\" in written or len(written) <= 4
                end = stop
            if layer.text:
                assert layer.source_of(0, len(layer.text))[1] == end


def test_each_layer_of_json_in_texts_is_read() -> None:
    text = "a/b"
    for _ in range(LAYERS):
        text = json.dumps(f'"{text}"').replace("/", "\\/")[1:-1]
    assert [layer.text for layer in layers(text, False, False, Looks(0))][-1].strip('"') == "a/b"


def test_a_run_of_backslashes_is_read_in_few_looks() -> None:
    with pytest.raises(TooMuch):
        for layer in layers("\\u0041" * 1000 + "end", False, False, Looks(1000)):
            layer.source_of(1000, 1003)
    for layer in layers("\\" * 1_000_000 + "end", False, False, Looks(100_000)):
        layer.source_of(len(layer.text) - 3, len(layer.text))
