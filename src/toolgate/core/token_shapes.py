"""Text in the form of a secret: tokens, private keys, passwords in URLs (`guard.scrub: patterns`).

The rules this file keeps: it is found as JSON writes it, in any layer of JSON in a text and with slashes as PHP escapes
them; it is looked for a piece at a time, and what is found is the same wherever a piece ends.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable
from typing import TypeAlias

from toolgate.core.redaction import GONE, LONGEST_QUOTED, excerpt
from toolgate.core.steps import InSteps, at_once

_shapes = (
    rb"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{40,255}",
    rb"gl(?:pat|dt|rt|cbt|ptt|ft|agent|oas|soat)-[A-Za-z0-9_.-]{20,300}",
    rb"xox[abeoprs]-[A-Za-z0-9-]{10,300}|xapp-[A-Za-z0-9-]{20,300}",
    rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])",
    rb"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_.-]{20,2000}|GOCSPX-[A-Za-z0-9_-]{28}",
    rb"sk-(?:ant-|proj-|svcacct-|or-|admin-)?[A-Za-z0-9_-]{20,300}",
    rb"(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{20,300}",
    rb"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,500}|hf_[A-Za-z0-9]{30,100}|dckr_pat_[A-Za-z0-9_-]{20,100}",
    rb"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,100}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|do[oprt]_v1_[a-f0-9]{64}",
    rb"hv[sbr]\.[A-Za-z0-9_-]{20,300}|tg_[a-z0-9_-]{1,64}_[A-Za-z0-9_-]{24,200}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    rb"eyJ[A-Za-z0-9_-]{10,8000}\.eyJ[A-Za-z0-9_-]{10,20000}\.[A-Za-z0-9_-]{10,8000}",
)
# Before one stands nothing of the same word, or an escape, as that of a line's end.
_before = rb"(?:(?<![A-Za-z0-9+_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4}))"
_shaped = re.compile(_before + b"(?:" + b"|".join(_shapes) + b")")
_private_key = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]{0,40})PRIVATE KEY-----(?:[^\"-]|-(?!----)){1,20000}+-----END \1PRIVATE KEY-----"
)
_signs_in = rb"[^\s\"/@:?#\\]{0,200}:(?:[^\s\"/@?#\\]|\\{1,8}u[0-9A-Fa-f]{4}){1,500}(?=@)"
_password = re.compile(b"://" + _signs_in)  # begins with what is found fast, and so does the next
_escaped_slashes = b"|".join(b"(?<=:%b/%b/)" % (rb"\\" * each, rb"\\" * each) for each in (1, 2, 3, 4, 7))
_escaped_password = re.compile(rb"\\/(?:" + _escaped_slashes + b")" + _signs_in)
_SHORTEST_SHAPED = 15  # bytes of a token of any shape
_BESIDE_TOKENS = "+/="  # what stands in no token, but in the word that it ends
_IN_TOKENS = bytes(chr(each) in f"{string.ascii_letters}{string.digits}_.:-{_BESIDE_TOKENS}" for each in range(256))
_LONG_WORD = "\1" * _SHORTEST_SHAPED
MOST_WORDS = 20_000  # long ones that are looked at one by one: about 20 ms
_TRANSLATED = 1024 * 1024  # bytes in one go
PIECE = 64 * 1024  # bytes that are looked through at once, and what may begin there: at most 10 ms, in which no other
# thread goes on
_LONGEST_TOKEN_SHAPED, _LONGEST_KEY, _LONGEST_PASSWORD = 40_000, 21_000, 8000  # bytes, at least

Stretch: TypeAlias = tuple[int, int, int]
"""Where something begins, at the earliest and before where; and where it ends, at the latest."""


def shaped(shown: bytes) -> bytes:
    """JSON without what has the shape of a token, of a private key, or of a password in a URL."""
    return at_once(shaped_in_steps(shown))


def quoted(said: str, most: int) -> str:
    """The beginning of what others said, in `most` characters: as `redaction.excerpt`, and without what has the shape
    of a secret."""
    known = excerpt(said, LONGEST_QUOTED)
    clean = shaped(known.encode(errors="replace")).decode(errors="replace")
    if len(said) > LONGEST_QUOTED:  # half of a token may be left at its end
        clean = clean[:-_LONGEST_TOKEN_SHAPED]
    return clean[:most]


def shaped_in_steps(shown: bytes) -> InSteps[bytes]:
    """The same, for what is large."""
    words = yield from _long_words(shown)
    shown = yield from _without_shapes(shown, _shaped, GONE, words)
    shown = yield from _without_shapes(shown, _password, f"://{GONE}", _behind(shown, b"://", _LONGEST_PASSWORD))
    stretch = _behind(shown, b"\\/", _LONGEST_PASSWORD)
    shown = yield from _without_shapes(shown, _escaped_password, f"\\/{GONE}", stretch)
    return (yield from _without_shapes(shown, _private_key, GONE, _behind(shown, b"-----BEGIN ", _LONGEST_KEY)))


def _without_shapes(
    shown: bytes, shape: re.Pattern[bytes], other: str, stretch: Callable[[int], Stretch]
) -> InSteps[bytes]:
    """`stretch` says where to look from a place on, in pieces; its beginning is negative where there is nothing more.
    What is found is the same wherever a piece ends."""
    parts: list[bytes] = []
    done = 0
    start, stop, end = stretch(0)
    while start >= 0:
        yield
        for found in shape.finditer(shown, start, end):
            if found.start() >= stop:
                break
            parts += [shown[done : found.start()], other.encode()]
            done = found.end()
        start, stop, end = stretch(max(stop, done))
    return b"".join([*parts, shown[done:]]) if parts else shown


def _behind(shown: bytes, mark: bytes, longest: int) -> Callable[[int], Stretch]:
    def stretch(place: int) -> Stretch:
        start = shown.find(mark, place)
        return start, start + PIECE, start + PIECE + longest

    return stretch


def _long_words(shown: bytes) -> InSteps[Callable[[int], Stretch]]:
    """A token is in a long word. These are found at memory's speed; where there are very many, it is as fast to look
    everywhere."""
    parts: list[str] = []
    for start in range(0, len(shown), _TRANSLATED):
        parts.append(shown[start : start + _TRANSLATED].translate(_IN_TOKENS).decode("latin-1"))
        yield
    is_in = "".join(parts)
    numbers = itertools.count()

    def stretch(place: int) -> Stretch:
        start = is_in.find(_LONG_WORD, place)
        stop = start + PIECE
        least = start if next(numbers) < MOST_WORDS else stop
        end = is_in.find("\0", least, stop + _LONGEST_TOKEN_SHAPED)
        return (start, end, end) if end >= 0 else (start, stop, stop + _LONGEST_TOKEN_SHAPED)

    return stretch
