"""A server writes a secret in JSON, in a text, in JSON again, each as some writer of JSON does: with slashes escaped,
as PHP writes them, or with a backslash that is an escape itself. Whoever reads that JSON finds no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import escapes, redaction
from toolgate.core.redaction import GONE, Redactor

SLASHED = "GOODsecret-9a8B7c6D5e4F/3g2H1+x"
QUOTED = 'Pa"ss"word-9a8B7c6D5e4F'
DOMAIN = "DOM\\user\\9a8B7c6D5e4F3g2H1x"
ACCENTED = "tokén-9a8B7c6D5€5e4F😀3g2H1x/y"
FILED = "/9a8B7c6D5e4F3g2H1x/u0041bcd"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQ/BADANBg+qhkiG9w\n0BAQ/FAASCBKcwggSjAgEA\n-----END PRIVATE KEY-----\n"
SECRETS = {"slash": SLASHED, "quotes": QUOTED, "backslashes": DOMAIN, "accents": ACCENTED, "path": FILED, "key": KEY}
MIB = 1024 * 1024


def plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def php(text: str) -> str:
    return json.dumps(text)[1:-1].replace("/", "\\/")


def units(text: str) -> list[str]:
    return re.findall("....", text.encode("utf-16-be", "surrogatepass").hex())


def all_escaped(text: str) -> str:
    return "".join(f"\\u{unit}" for unit in units(text))


def backslash_escaped(text: str) -> str:
    return plain(text).replace("\\\\", "\\u005c")


def slash_escaped(text: str) -> str:
    return plain(text).replace("/", "\\u002F").replace('\\"', "\\u0022")


WRITERS: Mapping[str, Callable[[str], str]] = {
    each.__name__: each for each in (plain, php, all_escaped, backslash_escaped, slash_escaped)
}
FILLINGS = {"small": "", "large": "plain words, " * (MIB // 12), "large, in pieces": "pl\\u0061in \\/ words, " * 60_000}


def readings(text: str) -> list[str]:
    """Whatever a reader of JSON finds who reads what he has found once more."""
    found = [text]
    while "\\" in found[-1] and len(found) < 6:
        try:
            found.append(json.loads(f'"{found[-1]}"', strict=False))
        except ValueError:
            return found
    return found


@pytest.mark.attack
@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("layers", ["php", "php plain", "backslash_escaped all_escaped", "php php plain"])
def test_a_secret_is_found_however_often_and_by_whom_it_is_written(secret: str, layers: str, filling: str) -> None:
    written = SECRETS[secret]
    for name in layers.split():
        written = WRITERS[name](written)
    around = FILLINGS[filling]
    for ends in ("", " end"):
        redactor = Redactor([SECRETS[secret]])
        shown = redactor.body(f'{{"text":"{around}<{written}>{around}{ends}"}}'.encode())
        text = json.loads(shown)["text"]
        assert SECRETS[secret] not in text and text.count(GONE) == 1 and text.endswith(ends)
        assert not any(SECRETS[secret] in each for each in readings(text))
        if not around:
            assert redactor.text(f"<{written}>") == f"<{GONE}>"


@pytest.mark.attack
@pytest.mark.parametrize("one", WRITERS)
@pytest.mark.parametrize("two", WRITERS)
@pytest.mark.parametrize("three", WRITERS)
def test_writers_of_json_may_be_of_any_kind_in_each_layer(one: str, two: str, three: str) -> None:
    for secret in SECRETS.values():
        written = WRITERS[three](WRITERS[two](WRITERS[one](secret)))
        assert Redactor([secret]).body(f'["<{written}>"]'.encode()) == f'["<{GONE}>"]'.encode()


@pytest.mark.attack
@pytest.mark.parametrize(
    "written",
    [
        r"GOODsecret-9a8B7c6D5e4F\/3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\\/3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\\\/3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\u005c/3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\u005c\u002f3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\u005cu002f3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\u005c\u0075\u0030\u0030\u0032\u00663g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\u005cu005cu005c\\\\\\/3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F\\u005cu005c/3g2H1\\u005cu002bx",
        r"\u005cu0047OODsecret-9a8B7c6D5e4F/3g2H1+x",
        r"GOODsecret-9a8B7c6D5e4F" + "\\" * 5000 + r"\/3g2H1+x",
        # What is read of the first is no part of the secret behind it.
        r"\\u00\u005cu0047OODsecret-9a8B7c6D5e4F/3g2H1+x",
    ],
)
def test_a_slash_is_one_behind_any_backslashes(written: str) -> None:
    shown = json.loads(Redactor([SLASHED]).body(b'{"a":"<%b>"}' % written.encode()))["a"]
    assert GONE in shown and "GOOD" not in shown and "OODsecret" not in shown and "3g2H1" not in shown
    assert shown[0] == "<" and shown[-1] == ">"


@pytest.mark.parametrize("secret", ["4700-abcdef-123456", "u0041bcdefgh-1234", "\\u0041bcdefgh-1234"])
def test_what_an_escape_would_swallow_in_one_layer_is_found_in_another(secret: str) -> None:
    """`\\u00` before a secret that begins with digits is an escape only for those who read once more."""
    for before in ("", "\\\\u00", "\\\\", "\\\\\\\\u00"):
        for written in (all_escaped(secret), plain(secret)[:-1] + "\\u0034", plain(secret)):
            shown = json.loads(Redactor([secret]).body(f'"{before}{written}; {before}{written}"'.encode()))
            assert not any(secret in each for each in readings(shown))


_secrets = st.text(st.sampled_from('aB3/"\\u04n\n+é😀%'), min_size=10, max_size=24)
_around = st.text(st.sampled_from(' <>,\\"/n\n;é'), max_size=12)


def _written(text: str, draw: Callable[[Any], Any]) -> str:
    """As JSON may write it, each character as it comes."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n"}
    parts = list[str]()
    for letter in text:
        way = draw(st.integers(0, 3))
        long = "".join(f"\\u{unit.upper() if way else unit}" for unit in units(letter))
        bare = letter if letter not in '"\\\n' else short[letter]
        parts.append((bare, short.get(letter, bare), long, bare)[way])
    return "".join(parts)


@given(_secrets, _around, _around, st.integers(1, 3), st.booleans(), st.data())
def test_any_writing_of_a_secret_in_up_to_three_layers_is_found_wherever_a_step_ends(
    secret: str, before: str, behind: str, many: int, is_parted: bool, data: st.DataObject
) -> None:
    said = before + secret + behind
    for _ in range(many):
        said = _written(said, data.draw)
    with pytest.MonkeyPatch.context() as patch:
        if is_parted:
            patch.setattr(escapes, "BLOCK", 64)
            patch.setattr(redaction, "WINDOW", 64)
        body = f'{{"a":"{said}"}}'.encode()
        shown = json.loads(Redactor([secret]).body(body))["a"]
    for _ in range(many - 1):
        assert secret not in shown
        try:
            shown = json.loads(f'"{shown}"', strict=False)
        except ValueError:  # what adjoins it goes with it: for example the rest of an escape
            return
    assert secret not in shown


@given(st.lists(st.sampled_from(["GOODsecret-9a8B7c6D5e4F", "/", "\\", "\\u005c", "é", "x ", "\\u00", '"', "\n"])))
def test_what_holds_no_secret_in_any_layer_is_the_same_object(parts: list[str]) -> None:
    for said in (json.dumps("".join(parts)), json.dumps(json.dumps("".join(parts)))):
        body = said.encode()
        assert Redactor([SLASHED]).body(body) is body
        assert Redactor([SLASHED]).text(said) is said


@pytest.mark.attack
@pytest.mark.parametrize(
    "filling", ["\\\\", "\\u005c", "\\u005cu005c", "\\\\\\\\u0041", "\\\\/", "\\\\u00", "GOODsecret-9a8B7c6D5e4F\\\\/"]
)
def test_backslashes_without_end_are_read_in_as_many_layers_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch, filling: str
) -> None:
    """All that is read in one step is short, and all of it together a few times the text."""
    sizes, once, loose = list[int](), escapes._read_once, escapes._read_loose  # pyright: ignore[reportPrivateUsage]

    def noting(read: Callable[[str], str]) -> Callable[[str], str]:
        return lambda block: (sizes.append(len(block)), read(block))[1]

    monkeypatch.setattr(escapes, "_ONCE", escapes._ONCE._replace(read=noting(once)))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(escapes, "_LOOSE", escapes._LOOSE._replace(read=noting(loose)))  # pyright: ignore[reportPrivateUsage]
    body = f'{{"a":"{filling * (MIB // len(filling))}\\u0041"}}'.encode()
    assert Redactor([SLASHED]).body(body) is body
    assert max(sizes) <= escapes.BLOCK and sum(sizes) <= (escapes.LAYERS + 1) * 2 * len(body)
