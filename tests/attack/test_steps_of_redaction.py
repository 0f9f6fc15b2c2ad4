"""A large answer is redacted in short steps: one step of the interpreter over all of it would stop everybody else, in
whichever thread it is done. What is found is the same wherever a step ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolgate.core import escapes, redaction, token_shapes
from toolgate.core.model import Done
from toolgate.core.redaction import Redactor
from toolgate.core.steps import Unfinished, in_slices
from toolgate.core.token_shapes import shaped
from toolgate.policy import scrub

MIB = 1024 * 1024
LONGEST_STEP = 128 * 1024  # bytes
PATTERNS = {
    "_shaped": token_shapes,
    "_password": token_shapes,
    "_escaped_password": token_shapes,
    "_private_key": token_shapes,
    "_broken": escapes,
}


class Measured:
    """A pattern, and how much it was given at once."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._pattern = pattern
        self.longest = 0

    def finditer(self, text: Any, start: int = 0, end: int | None = None) -> Iterator[re.Match[Any]]:
        end = len(text) if end is None else min(end, len(text))
        self.longest = max(self.longest, end - start)
        return self._pattern.finditer(text, start, end)

    def sub(self, other: Any, text: Any) -> Any:
        self.longest = max(self.longest, len(text))
        return self._pattern.sub(other, text)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Measured]:
    found = {name: Measured(getattr(module, name)) for name, module in PATTERNS.items()}
    for name, pattern in found.items():
        monkeypatch.setattr(PATTERNS[name], name, pattern)
    return found


BEGUN = b"-----BEGIN PRIVATE KEY-----"


@pytest.mark.attack
@pytest.mark.parametrize(
    "filling",
    [
        BEGUN + b"A " * 9990,
        BEGUN,
        BEGUN + b"-A" * 1000,
        b".g",
        b"eyJ" + b"A" * 8000 + b".eyJ" + b"B" * 20_000,
        b"://a:",
        b"://" + b"a" * 200 + b":" + b"b" * 500,
        b" sk-aaaaaaaaaaaaaaa",
        b"a",
    ],
)
def test_whatever_looks_like_a_token_or_a_key_is_looked_for_a_piece_at_a_time(
    measured: dict[str, Measured], filling: bytes
) -> None:
    body = b'{"text":"%b"}' % (filling * (2 * MIB // len(filling)))
    assert shaped(body) == body
    assert max(pattern.longest for pattern in measured.values()) <= LONGEST_STEP


@pytest.mark.attack
@pytest.mark.parametrize("secret", ["ascii-secret-123", "pässwort-geheim-123", "long-😀-" * 500])
@pytest.mark.parametrize("filling", [r"\\u00 ", r"\\u00", r"\u00e4\\u00zz", "é\\\\u00", "\\\\" * 1000 + "\\u0041"])
def test_escapes_are_read_a_piece_at_a_time_whatever_the_secrets_are(
    measured: dict[str, Measured], secret: str, filling: str
) -> None:
    body = f'{{"text":"{filling * (MIB // len(filling))}"}}'.encode()
    assert Redactor([secret]).body(body) == body
    assert measured["_broken"].longest <= LONGEST_STEP


KEY = b"-----BEGIN EC PRIVATE KEY-----\nMHcC-AQEE\n-----END EC PRIVATE KEY-----"
SHAPED = st.sampled_from(
    [
        KEY,
        KEY[:-5],
        KEY[5:],
        BEGUN,
        b"-----END PRIVATE KEY-----",
        b"-----",
        b"ghp_" + b"a1" * 18,
        b"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ." + b"a1" * 20,
        b"://ann:hunter22@db",
        b"://ann:",
        b"@",
        b" ",
        b"/",
        b".",
        b"a" * 40,
        "é".encode(),
    ]
)


@given(st.lists(SHAPED, max_size=30), st.integers(1, 200), st.integers(0, 3))
def test_tokens_and_keys_are_found_wherever_a_piece_ends(parts: list[bytes], piece: int, words: int) -> None:
    text = b"".join(parts)
    whole = shaped(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_shapes, "PIECE", piece)
        patch.setattr(token_shapes, "MOST_WORDS", words)
        assert shaped(text) == whole


def escapes(text: str, backslashes: str) -> str:
    units = text.encode("utf-16-be").hex()
    return "".join(f"{backslashes}u{units[at : at + 4]}" for at in range(0, len(units), 4))


SECRETS = ["pässwörd-😀-12", "ab/cd-e+f9", "\U0001f600\U0001f601" * 4]
WRITTEN = st.sampled_from(
    [
        *SECRETS,
        *(escapes(secret, "\\" * many) for secret in SECRETS for many in (1, 2, 3, 16)),
        *(secret[:3] + escapes(secret[3:], "\\") for secret in SECRETS),
        *(escapes(secret[:3], "\\") + secret[3:] for secret in SECRETS),
        escapes(SECRETS[0][:5], "\\"),
        *(r"\u00", r"\\u00", "\\", r"\\\ ", "é", "😀", r"\ud83d", r"\ude00", " ", '"', "x" * 50, r"\n", "u00e4"),
    ]
)


@given(st.lists(WRITTEN, max_size=30), st.integers(0, 2), st.integers(8, 60), st.integers(0, 7))
def test_a_secret_with_escapes_is_found_wherever_a_piece_ends(
    parts: list[str], which: int, piece: int, shift: int
) -> None:
    text = "." * shift + "".join(parts)
    for of in (Redactor(SECRETS), Redactor([SECRETS[which]])):
        for shown in (text, text.encode().decode("latin-1")):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(redaction, "WINDOW", 10**9)
                patch.setattr(token_shapes, "PIECE", 10**9)
                whole = of.text(shown)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(redaction, "WINDOW", piece)
                patch.setattr(token_shapes, "PIECE", piece)
                of._reach = 42 * (1 + 14)  # of the longest of these
                assert of.text(shown) == whole


@pytest.mark.attack
@pytest.mark.parametrize("mode", ["known", "patterns"])
@pytest.mark.parametrize("is_in_file", [False, True])
def test_others_go_on_between_the_steps_in_which_a_large_result_is_looked_at(
    mode: scrub.Mode, is_in_file: bool
) -> None:
    secret = "sk-live-9f8e7d6c5b4a39281716"
    scrubber = scrub.Scrubber(Redactor([secret]).of("any"), mode, unsigns=True)
    said = json.dumps(
        {"content": [{"type": "text", "text": r"\u0073\u006b " * 80_000 + escapes(secret, "\\")}]}
    ).encode()
    found, times = scrubber.outcome(Done(Raw(said))), 0
    body: Any = memoryview(said) if is_in_file else Raw(said)
    work = in_slices(scrubber.in_steps(Done(body), is_of_task=False), 0)
    while isinstance(aside := work(), Unfinished):
        times += 1
    assert isinstance(found, Done) and bytes(aside.body) == bytes(found.body) != said
    assert redaction.GONE in bytes(aside.body).decode() and times >= len(said) // redaction.WINDOW
