"""Secrets that the gateway knows, taken out of what it shows: errors, logs, the audit, pages, excerpts of stderr.

The rules this file keeps: a value that was once known stays known, also when the configuration has others by now;
where secrets overlap, all of them is gone; what was JSON stays JSON; and what holds none of them is not touched. Our
own words quote others', cut to a length: in them a secret is gone with as much of its beginning as stands there.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import msgspec

SHORTEST = 8  # characters; what is shorter stands in too many harmless texts
MOST = 1000  # secrets; beyond that those that were learned longest ago are forgotten
MOST_PASSING = 200  # of those that are renewed again and again, so that they never push out the others
LONGEST_TOKEN = 4096  # characters
GONE = "[secret]"
PART = 12  # characters by which a secret is known in our own words, where it may have been cut off
LARGE = 8192  # bytes from which on it pays to look at single letters first

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError)


class Redactor:
    """`learn` secrets from wherever they come; `text` and `body` give back what may be shown."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lasting: dict[str, _Forms] = {}
        self._passing: dict[str, _Forms] = {}
        self._texts: tuple[str, ...] = ()  # in each way of writing them
        self._parts: tuple[str, ...] = ()  # what these begin with
        self._bodies: tuple[str, ...] = ()  # as JSON writes them, a character for each byte
        self._letters: tuple[frozenset[str], ...] = ()  # of each of these
        self._alphabet: frozenset[str] = frozenset()
        self._turn = threading.Lock()
        self.learn(secrets)

    @property
    def knows_any(self) -> bool:
        return bool(self._texts)

    def learn(self, secrets: Iterable[str], passing: bool = False) -> None:
        """`passing`: tokens, which others will soon replace. A server makes them, as many as it likes, and could call
        anything so: what others could say by chance is none."""
        kept, most = (self._passing, MOST_PASSING) if passing else (self._lasting, MOST)
        fresh = {secret for secret in secrets if len(secret) >= SHORTEST and (not passing or _is_token(secret))}
        with self._turn:
            is_new = not fresh <= kept.keys()
            for secret in sorted(fresh):  # what is learned again is young again
                kept[secret] = kept.pop(secret, None) or _forms(secret)
            for oldest in list(kept)[: max(0, len(kept) - most)]:
                del kept[oldest]
            if is_new:
                self._look_for([*self._lasting.values(), *self._passing.values()])

    def _look_for(self, secrets: Sequence[_Forms]) -> None:
        self._texts = tuple(dict.fromkeys(text for forms in secrets for text in forms.texts))
        self._parts = tuple(dict.fromkeys(text[:PART] for text in self._texts))
        self._bodies = tuple(dict.fromkeys(body for forms in secrets for body in forms.bodies))
        self._letters = tuple(map(frozenset[str], self._bodies))
        self._alphabet = frozenset[str]().union(*self._letters)

    def text(self, shown: str) -> str:
        """Words of our own."""
        for part in self._parts:  # for each call: a generator would take twice as long
            if part in shown:
                return _without(shown, self._texts, PART)
        return shown

    def own(self, shown: bytes) -> bytes:
        """The same in JSON of our own."""
        text = shown.decode("latin-1")
        if any(part.encode().decode("latin-1") in text for part in self._parts):
            return _write(_walked(_read(shown), self.text))
        return shown

    def body(self, shown: bytes) -> bytes:
        """What others say, in JSON, which stays JSON."""
        if not self._bodies:
            return shown
        text = shown.decode("latin-1")  # in texts Python finds a short one three times as fast as in bytes
        if not self._is_held_by(text):
            return shown
        changed = _without(text, self._bodies).encode("latin-1")
        return _sound(changed, shown, lambda text: _without(text, self._texts))

    def _is_held_by(self, text: str) -> bool:
        if len(text) < LARGE:
            return any(secret in text for secret in self._bodies)
        there = {letter for letter in self._alphabet if letter in text}  # one letter is found at memory's speed
        return any(secret in text for secret, own in zip(self._bodies, self._letters, strict=False) if own <= there)

    def value(self, shown: Any) -> Any:
        """The same in plain values."""
        return _walked(shown, self.text) if self._texts else shown


class _Forms(NamedTuple):
    """A secret in each way of writing it: in texts, and in the bytes of JSON, a character for each byte."""

    texts: tuple[str, ...]
    bodies: tuple[str, ...]


def _forms(secret: str) -> _Forms:
    """As it is, and in a URL; each as JSON writes it in either way, and once more inside of JSON in a text."""
    ways = (secret, quote(secret, safe=""), quote(secret))
    written = dict.fromkeys(form for way in ways for form in _as_json(way))
    bodies = (form.encode("utf-8", "surrogatepass").decode("latin-1") for form in written)
    return _Forms(tuple(dict.fromkeys([*ways, *written])), tuple(bodies))


def _is_token(text: str) -> bool:
    """Whether it looks like one: no word, and no JSON."""
    return len(text) <= LONGEST_TOKEN and any(map(str.isdigit, text)) and not _JSON & set(text)


_JSON = frozenset('"{}[],\\ ')


def _as_json(text: str) -> Iterable[str]:
    for ascii in (True, False):
        once = json.dumps(text, ensure_ascii=ascii)[1:-1]
        yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii)[1:-1])


def _without(shown: str, secrets: Iterable[str], part: int | None = None) -> str:
    """All at once, so that a secret which overlaps another, or holds it, leaves nothing behind. With `part`, one that
    begins so goes as far as it goes."""
    places: list[tuple[int, int]] = []
    for secret in secrets:
        begins = secret[:part]
        at = shown.find(begins)
        while at >= 0:
            places.append((at, at + (len(begins) if part is None else _length(shown, at, secret))))
            at = shown.find(begins, at + 1)
    parts: list[str] = []
    end = 0
    for start, stop in sorted(places):
        if start >= end:
            parts += [shown[end:start], GONE]
        end = max(end, stop)
    return "".join([*parts, shown[end:]])


def _length(shown: str, at: int, secret: str) -> int:
    """How much of a secret stands there."""
    pairs = enumerate(zip(shown[at : at + len(secret)], secret, strict=False))
    return next((length for length, (one, other) in pairs if one != other), min(len(shown) - at, len(secret)))


def _sound(changed: bytes, before: bytes, redact: Callable[[str], str]) -> bytes:
    """Where a secret was a number, or began in the middle of an escape, what is left is no JSON: it is read then."""
    try:
        _read(changed)
        return changed
    except _UNREADABLE:
        pass
    try:
        return _write(_walked(_read(before), redact))
    except _UNREADABLE:
        return changed  # it was none before


def _read(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return json.loads(body)  # which knows lone surrogates


def _write(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _walked(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if redact(written := repr(value)) == written else GONE
    if isinstance(value, Mapping):
        return {redact(key): _walked(each, redact) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_walked(each, redact) for each in cast("list[Any]", value)]
    return value


# Shapes of tokens that are known to be secrets, whoever has them.

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
_shaped = re.compile(rb"(?<![A-Za-z0-9+/=_-])(?:" + b"|".join(_shapes) + rb")")
_private_key = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]{0,40})PRIVATE KEY-----(?:[^\"-]|-(?!----)){1,20000}-----END \1PRIVATE KEY-----"
)
_password = re.compile(rb"(?<=://)[^\s\"/@:?#\\]{0,200}:[^\s\"/@?#\\]{1,500}(?=@)")


def shaped(shown: bytes) -> bytes:
    """JSON without what has the shape of a token, of a private key, or of a password in a URL."""
    for pattern in (_shaped, _password):
        shown = pattern.sub(GONE.encode(), shown)
    return _private_key.sub(GONE.encode(), shown) if b"PRIVATE KEY-----" in shown else shown


# Logs.


class _Filter(logging.Filter):
    """Gives handlers a record in which nothing is left to be put in: no secret, and of what strangers said nothing that
    would look like a record of its own, or act on a terminal."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except (TypeError, ValueError):
            return True  # for the handler to complain of
        if (shown := _in_its_place(self._redactor.text(said))) != said:
            record.msg, record.args = shown, None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text and (shown := _in_its_place(self._redactor.text(record.exc_text))) != record.exc_text:
            record.exc_text, record.exc_info = shown, None
        if record.stack_info:
            record.stack_info = self._redactor.text(record.stack_info)
        return True


_unseen = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


_line = re.compile(r"\n(?! {4})")  # each handler has its filter, and the record may have been at another


def _in_its_place(text: str) -> str:
    return _line.sub("\n    ", _unseen.sub(lambda found: ascii(found[0])[1:-1], text))


@contextmanager
def quiet_logs(redactor: Redactor) -> Generator[None]:
    """Whatever is logged meanwhile to those who listen now."""
    known = _Filter(redactor)
    loggers = (logging.getLogger(), logging.getLogger("toolgate"))
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        handler.addFilter(known)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(known)
