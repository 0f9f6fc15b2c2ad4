"""Two secrets stand in one word, each written in another way: what is cut out with the one is not to hide the other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping

import pytest

from toolgate.core.redaction import Redactor

FIRST, SECOND = "Zq7+/Kt9Xw2Lm4Pn8Rv==", "bT5/Hc3+Yd6Gs1Jf0Wk9Qe"
JOINTS = ("", "-", ".", "/", "/bot", "=")
LEAST = 4  # characters of a secret that are not to be left


def escaped(text: str, is_escaped: Callable[[int, str], bool]) -> str:
    return "".join(f"\\u{ord(sign):04x}" if is_escaped(at, sign) else sign for at, sign in enumerate(text))


SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "plain": str,
    "as .NET": lambda text: escaped(text, lambda at, sign: sign == "+"),
    "in JSON twice": lambda text: escaped(text, lambda at, sign: sign == "+").replace("\\", "\\\\"),
    "slashes": lambda text: text.replace("/", "\\/"),
    "every third": lambda text: escaped(text, lambda at, sign: at % 3 == 0),
    "the last": lambda text: escaped(text, lambda at, sign: at == len(text) - 1),
    "all": lambda text: escaped(text, lambda at, sign: True),
}


def left_of(secret: str, shown: str) -> list[str]:
    parts = (secret[at : at + LEAST] for at in range(len(secret) - LEAST + 1))
    return [part for part in parts if part in shown]


@pytest.mark.parametrize(("one", "other"), [*itertools.product(SPELLINGS, repeat=2)])
def test_nothing_is_left_of_two_secrets_in_one_word_however_each_is_written(one: str, other: str) -> None:
    redactor = Redactor([FIRST, SECOND])
    for first, second in ((FIRST, SECOND), (SECOND, FIRST), (FIRST, FIRST)):
        for joint in JOINTS:
            word = f"{SPELLINGS[one](first)}{joint}{SPELLINGS[other](second)}"
            body = redactor.body(f'{{"text":"old {word} new"}}'.encode())
            read = json.loads(body)["text"].replace("\\\\", "\\")
            for shown in (read, json.loads(f'"{read}"'), redactor.text(f"old {word} new")):
                assert not left_of(first, shown) and not left_of(second, shown), (word, shown)
            assert read.startswith("old ") and read.endswith(" new")
