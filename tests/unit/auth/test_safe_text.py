"""What strangers wrote is shown exactly, and cannot pass for what stands around it."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.auth import safe_text
from toolgate.auth.safe_text import Ambiguous, Number

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(tree: Any) -> Any:
    return safe_text.read(json.dumps(tree).encode())


@given(st.text())
def test_a_quoted_text_is_that_text_in_json(text: str) -> None:
    assert json.loads(safe_text.quoted(text)) == text
    assert json.loads(safe_text.named(text)) == text and safe_text.named(text).isascii()


@given(TREES)
def test_what_is_shown_of_json_is_that_json(tree: Any) -> None:
    shown = read(tree)
    assert json.loads(safe_text.written(shown)) == tree
    lines = list(safe_text.laid_out(shown))
    assert json.loads("\n".join(lines).translate({0x2068: None, 0x2069: None})) == tree
    assert not any("\n" in line for line in lines)


@given(TREES, TREES)
def test_equal_trees_and_no_others_have_the_same_canonical_bytes(one: Any, other: Any) -> None:
    is_same = safe_text.written(read(one)) == safe_text.written(read(other))
    assert (safe_text.canonical(read(one)) == safe_text.canonical(read(other))) == is_same
    assert safe_text.canonical(read([1])) != safe_text.canonical(read([[0, "1"]])) != safe_text.canonical(read(["1"]))


@given(TREES.map(lambda tree: {"a": tree}))
def test_what_is_too_long_before_anything_is_written_out_is_so_afterwards(tree: Any) -> None:
    lines = "\n".join(safe_text.laid_out(read(tree), "    "))
    assert not safe_text.is_longer(read(tree), len(lines))


@given(st.text())
def test_nothing_that_is_not_seen_or_turns_the_order_is_shown_as_it_is(text: str) -> None:
    shown = safe_text.plain(text)
    assert not any(unicodedata.category(each)[0] == "C" or each in "\u2028\u2029\xa0\u200b\u202e" for each in shown)
    assert not set(shown) & set('"`*[]<>~|&$')
    assert "  " not in shown and shown == shown.strip(" ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, file_name.txt (1)", "plain words, file_name.txt (1)"),
        ("Grüße, 世界, привет", "Grüße, 世界, привет"),
        ("two\nlines\tand\r", r"two\nlines\tand\r"),
        ("a\\n", r"a\u005cn"),
        ('a", "b": "c', r"a\u0022, \u0022b\u0022: \u0022c"),
        ("a”", r"a\u201d"),
        (
            "**now** `x` <b> [l](u) ~~s~~ a|b &amp; $x$ _e_ a_b",
            r"\u002a\u002anow\u002a\u002a \u0060x\u0060 \u003cb\u003e \u005bl\u005d(u) \u007e\u007es\u007e\u007e "
            r"a\u007cb \u0026amp; \u0024x\u0024 \u005fe\u005f a_b",
        ),
        ("left\u202etfel", r"left\u202etfel"),
        ("no\u200bthing \ufeff \u2060 \u00ad", r"no\u200bthing \ufeff \u2060 \u00ad"),
        ("\U000e0041\U0001d159\u3164\u2800\ufe0f", r"\udb40\udc41\ud834\udd59\u3164\u2800\ufe0f"),
        ("\x1b[2J\x07\x9b", r"\u001b\u005b2J\u0007\u009b"),
        ("a  b ", r"a \u0020b\u0020"),
        ("o\u0301\u0301\u0301\u0301", "o\u0301\u0301\\u0301\\u0301"),
        ("\u0301o", r"\u0301o"),
        ("nbsp\u00a0 \u2028", r"nbsp\u00a0 \u2028"),
        ("_init_", r"\u005finit\u005f"),
    ],
)
def test_what_looks_like_what_it_is_not_is_shown_by_its_number(text: str, shown: str) -> None:
    assert safe_text.plain(text) == shown


def test_a_letter_of_another_alphabet_cannot_stand_in_a_name() -> None:
    assert safe_text.named("d\u0435lete_file") == r'"d\u0435lete_file"'


def test_what_is_read_from_right_to_left_stays_where_it_stands() -> None:
    (_, line, _) = safe_text.laid_out(read({"אב": "גד"}))
    assert line == '  \u2068"אב"\u2069: \u2068"גד"\u2069'


@pytest.mark.parametrize(
    "text",
    [
        b'{"path":"/safe","path":"/etc"}',
        b'{"a":{"x":1,"\\u0078":2}}',
        b"{",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":"\xff"}',
        b"\xff\xfe{\x00}\x00",
        *(b"[" * depth + b"]" * depth for depth in (safe_text.DEEPEST + 1, 900, 100_000)),
    ],
)
def test_what_readers_understand_in_several_ways_is_not_shown(text: bytes) -> None:
    with pytest.raises(Ambiguous):
        safe_text.read(text)


def test_a_number_is_shown_as_it_is_spelled() -> None:
    for spelled in (
        "1",
        "1.0",
        "1e400",
        "-0",
        "123456789012345678901234567890",
        "0.1000000000000000055511151231257827",
    ):
        assert safe_text.written(safe_text.read(f"[{spelled}]")) == f"[{spelled}]"
    assert safe_text.read("1") == Number("1") != safe_text.read('"1"')
