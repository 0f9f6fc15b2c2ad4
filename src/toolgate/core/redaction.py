"""Secrets that the gateway knows, taken out of what it shows: errors, logs, the audit, pages, excerpts of stderr.

The rules this file keeps: a value that was once known stays known, also when the configuration has others by now,
unless it stood in the clear for a server that was removed;
where secrets overlap, all of them is gone; what was JSON stays JSON; and what holds none of them is not touched.

A redactor can be asked questions: whoever sees what became of a guess learns from it. So only whole secrets are looked
for, never parts of them, and with a secret goes whatever adjoins it that could belong to it. What others say is
redacted before it is cut or a line of it is chosen (`excerpt`, `last_lines`), so that no part of a secret is left at
the cut.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import string
import threading
import weakref
from collections import Counter
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import msgspec

from toolgate.core import counting, escapes, plain
from toolgate.core.escapes import TooMuch
from toolgate.core.spelling import INVISIBLE
from toolgate.core.steps import InSteps, at_once

SHORTEST = 8  # characters; what is shorter stands in too many harmless texts
MOST = 1000  # secrets; beyond that those that were learned longest ago are forgotten
MOST_TOKENS = 64  # that one principal has at one server at once, each piece of a long one counted
MOST_SURE = 32  # of one server, of those that stand in the clear in its configuration
MOST_GUESSED = 100  # of these
LONGEST_TOKEN = 16 * 1024  # characters; no header has room for a longer one
PIECE_OF_TOKEN = 4096  # characters in which a longer one is looked for: how much must be seen at once stays the same
SHORTEST_OF_LETTERS = 22  # of a token without a digit: no name of a member is as long, but those with a slash
SHORTEST_RANDOM = 20  # characters
LONG = 32  # characters that nobody finds by trying, whatever they are
GONE = "[secret]"
ADJOINING = 4096  # characters around a secret that go with it, at most
LONGEST_QUOTED = 65_536  # characters of a text that are looked at before its beginning is quoted
LARGE = 8192  # bytes from which on it pays to look at single letters first
MOST_PLACES = 20_000  # of secrets in one text: taking them out takes about 50 ms
MOST_SEARCHED = 200_000  # escapes around secrets, of which one is written with some: about 100 ms
AT_ONCE = 25_000  # of these, and of places twice, in one message on the event loop, where others wait meanwhile
MOST_WALKED = 1024 * 1024  # bytes of JSON that are read when what is left of it is none
MOST_VALUES = 10_000  # of these: about 20 ms
MOST_LOOKS = 1_000_000  # at them, for each form of a secret: about 100 ms
WINDOW = 64 * 1024  # characters that are looked at for escapes at once, at least
LOOKED_AT = 512 * 1024  # bytes of JSON that are looked at in one go

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError)


class InTheClear(NamedTuple):
    """What stands in a server's configuration, the most important last: what is surely a secret, and what may be; of
    the latter, what is no name of a member by chance."""

    sure: Sequence[str] = ()
    guessed: Sequence[str] = ()
    no_names: Sequence[str] = ()


class Secrets:
    """Some secrets, to be taken out of what is shown: `text` and `body` give back what may be. What was looked through
    is to be again when there is another `version`."""

    def __init__(self) -> None:
        self._look_for(())

    def _look_for(self, certain: Iterable[_Spellings], guessed: Iterable[_Spellings] = ()) -> None:
        """Of JSON, what is `guessed` changes values, and no names of members."""
        self._certain_forms, self._guessed_forms = _SpellingCounts(certain), _SpellingCounts(guessed)
        self._look()

    def _exchange(self, come: Iterable[_Spellings], gone: Iterable[_Spellings]) -> None:
        """Look for what has `come`, too, and once less often for each that has `gone`: a secret that was given twice is
        looked for until it has gone twice. Both are certain; what is in both stays known meanwhile."""
        for each in come:
            self._certain_forms.count(each, 1)
        for each in gone:
            self._certain_forms.count(each, -1)
        self._look()

    def _look(self) -> None:
        """Threads may be looking meanwhile: each of these is whole by itself, and none goes by its place in another."""
        certain, guessed = self._certain_forms, self._guessed_forms
        # In each way of writing them; `_bodies` as JSON writes them, a character for each byte.
        self._texts = tuple(certain.texts | guessed.texts)
        self._bodies = tuple(certain.bodies | guessed.bodies)
        self.knows_any = bool(self._texts)
        self.forms = len(self._bodies)  # that each body is searched for
        # What stands in whichever is written without `\uXXXX`: one look for each secret tells that none is there.
        self._alphabet = certain.alphabet | guessed.alphabet
        self._letters = certain.letters | guessed.letters
        self._cores = tuple(self._letters)
        self._certain_cores = tuple(certain.letters)
        self._ways = tuple(certain.ways | guessed.ways)  # no escapes
        self._loosely = tuple(certain.loosely | guessed.loosely)  # no backslashes
        self._spared = frozenset(guessed.all()).difference(certain.all()) if guessed.texts else frozenset[str]()
        is_ascii = not (certain.beyond_ascii or guessed.beyond_ascii)
        self._escape = _ASCII_ESCAPE if is_ascii else _ESCAPE  # what any of them that is escaped has in it
        self._has_astral = bool(certain.astral or guessed.astral)
        self.longest = max(map(len, self._texts), default=0)
        self._reach = escapes.LONGEST * (2 + max(map(len, self._ways), default=0))  # of the longest, all of it escaped
        self.overlap = max(map(len, (*self._bodies, self._escape))) - 1
        self.version = object()  # at last: what a thread has looked through meanwhile counts as looked through before

    def text(self, shown: str) -> str:
        """Any text that is no JSON."""
        for core in self._cores:  # for each call: a generator would take twice as long
            if core in shown:
                return self._without(shown)
        return self._without(shown) if self._escape in shown and self._texts else shown

    def body(self, shown: bytes, looks: escapes.Looks | None = None) -> bytes:
        """JSON, which stays JSON. Of what holds more secrets than can be taken out in bounded time no more is left than
        its shape. `looks`: those that are left for several bodies together."""
        if not self._bodies or (len(shown) > LOOKED_AT and not self.may_be_in(shown)):
            return shown
        text = shown.decode("latin-1")  # in texts Python finds a short one three times as fast as in bytes
        if len(text) < LARGE:  # for each call: a function would take twice as long
            for core in self._cores:
                if core in text:
                    break
            else:
                if self._escape not in text:
                    return shown
        return at_once(self._without_in_json(text, shown, looks or escapes.Looks(AT_ONCE)))

    def body_in_steps(self, shown: bytes) -> InSteps[bytes]:
        """The same, for what is large."""
        if not self._bodies or (len(shown) > LOOKED_AT and not self.may_be_in(shown)):
            return shown
        return (yield from self._without_in_json(shown.decode("latin-1"), shown, escapes.Looks(MOST_SEARCHED)))

    def _without_in_json(self, text: str, shown: bytes, looks: escapes.Looks) -> InSteps[bytes]:
        """`text` has a character for each byte."""
        try:
            places = self._places(text) if (is_core_there := self._is_core_in(text)) else []
            if "\\" in text and (is_core_there or self._escape in text):
                places += yield from self._escaped(text, looks, is_json=True)
            if not places:
                return shown
            looks.take(2 * len(places))
            changed = _cut_out(text, places)
            most = max(min(MOST_LOOKS // len(self._texts), MOST_VALUES), MOST_MEMBERS)
            return _sound(changed.encode("latin-1"), shown, self, most)
        except TooMuch:
            return self._emptied(shown)

    def may_be_in(self, shown: bytes) -> bool:
        """Whether there is anything to be taken out, or escapes in which there may be. What is large is looked at in
        stretches, each with an overlap of the longest secret: there is no copy of all."""
        for start in range(0, len(shown), LOOKED_AT):
            text = shown[start : start + LOOKED_AT + self.overlap].decode("latin-1")
            if self._escape in text or self._is_core_in(text):
                return True
        return False

    def _places(self, text: str) -> list[tuple[int, int]]:
        """In JSON."""
        if not self._spared:
            return _places(text, self._bodies)
        guessed = self._spared.intersection(self._bodies)
        certain = _places(text, (each for each in self._bodies if each not in guessed))
        return [*certain, *_in_values(text, _places(text, guessed))]

    def _is_core_in(self, text: str) -> bool:
        if len(text) < LARGE:
            return any(core in text for core in self._cores)
        there = {letter for letter in self._alphabet if letter in text}  # one letter is found at memory's speed
        return any(core in text for core, own in self._letters.items() if own <= there)

    def _without(self, shown: str) -> str:
        try:
            places = _places(shown, self._texts)
            if "\\" in shown:
                places += at_once(self._escaped(shown, escapes.Looks(AT_ONCE)))
            return _cut_out(shown, places) if places else shown
        except TooMuch:
            return GONE

    def _escaped(self, shown: str, looks: escapes.Looks, is_json: bool = False) -> InSteps[list[tuple[int, int]]]:
        """Where secrets stand of which some characters are escapes, in any layer of JSON: in the text as it came, since
        what is cut out of it takes its neighbours along, which may be a part of one of these. It is looked through in
        pieces, and the way back is looked for only where there is one. Raises `TooMuch`."""
        step = max(WINDOW, self._reach)
        places: list[tuple[int, int]] = []
        for start in range(0, len(shown), step):
            piece = shown[start : start + step + self._reach]
            if "\\" not in piece or not (self._escape in piece or self._is_core_in(piece)):
                continue
            yield
            for layer in escapes.layers(piece, is_json, self._has_astral, looks):
                found = [each for each in (self._loosely if layer.is_loose else self._ways) if each in layer.text]
                for is_guessed in (False, True):
                    if secrets := [each for each in found if (each in self._spared) is is_guessed]:
                        there = itertools.starmap(layer.source_of, _places(layer.text, secrets))
                        here = [(start + first, start + end) for first, end in there]
                        places += _in_values(shown, here) if is_guessed and is_json else here
        return places

    def _emptied(self, shown: bytes) -> bytes:
        """The outermost members of JSON: lists and objects without anything in them, and what is short and no
        secret."""
        try:
            members = msgspec.json.decode(shown, type=dict[str, msgspec.Raw])
        except _UNREADABLE:
            return b"[]" if shown.lstrip()[:1] == b"[" else _write(GONE)
        kept: dict[str, Any] = {}
        for name, member in itertools.islice(members.items(), MOST_MEMBERS):
            first = bytes(memoryview(member)[:1])
            if len(name) <= LONGEST_KEPT and self.name(name) == name:
                is_short = len(memoryview(member)) <= LONGEST_KEPT
                kept[name] = _EMPTY.get(first) or (self.value(plain.read(member)) if is_short else GONE)
        return _write(kept)

    def has_lines(self) -> bool:
        """Whether any secret has more than one."""
        return any("\n" in text for text in self._texts)

    def value(self, shown: Any) -> Any:
        """The same in plain values."""
        return _walked(shown, self) if self._texts else shown

    def name(self, shown: str) -> str:
        """That of a member of JSON."""
        is_certain = self._escape in shown or any(core in shown for core in self._certain_cores)
        return self._without(shown) if is_certain else shown


class Redactor(Secrets):
    """The secrets of a gateway. It takes out of all that it shows those that are `certain`, and those that stand in the
    clear in what is configured for a server, if they go by the name of a secret and look like one (`sure`).

    Others choose the rest: who writes a server's example chooses what stands in its `env`, an authorization server
    chooses its tokens, and either could call anything so. It is taken out of what that server says, `of(server)`, and,
    if nobody writes it by chance, out of logs (`anywhere`). `listed(server)` and `certain` are without all that is
    configured for others: what is pinned, and what a person decides on."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self.anywhere, self.certain = Secrets(), Secrets()
        self._lasting: dict[str, _Spellings] = {}
        self._sure: dict[str, dict[str, _Spellings]] = {}  # by server, and so the following
        self._guessed: dict[str, dict[str, _Spellings]] = {}
        self._no_names: dict[str, set[str]] = {}  # of these
        self._tokens: dict[str, dict[str, _Tokens]] = {}  # by whose they are
        self._known_tokens = Counter[str]()
        self._of: dict[str, Secrets] = {}
        self._listed: dict[str, Secrets] = {}
        self._removed: set[str] = set()
        self._turn = threading.Lock()
        self.learn(secrets)
        with _all_turn:
            _all.add(self)

    def of(self, server: str) -> Secrets:
        """What is taken out of the words of a server, and of ours about it: the same object each time."""
        return self._of.get(server) or self._known(server)[0]

    def listed(self, server: str) -> Secrets:
        """What is taken out of its lists: the same whatever is configured for others."""
        return self._listed.get(server) or self._known(server)[1]

    def _known(self, server: str) -> tuple[Secrets, Secrets]:
        with self._turn:
            if server not in self._of:
                both = Secrets(), Secrets()
                self._look_of(server, *both)
                self._of[server], self._listed[server] = both  # not before they know what they look for
            return self._of[server], self._listed[server]

    def learn(self, secrets: Iterable[str]) -> None:
        """What is certainly a secret, also when the configuration has others by now."""
        with self._turn:
            if _added(self._lasting, sorted(each for each in secrets if len(each) >= SHORTEST), MOST):
                self._look_everywhere()

    def learn_configured(self, servers: Mapping[str, InTheClear]) -> None:
        """What stands in the clear in the configuration of each server."""
        with self._turn:
            is_any_new = False
            for server, known in servers.items():
                self._removed.discard(server)
                is_any_new |= _added(self._sure.setdefault(server, {}), known.sure, MOST_SURE)
                is_any_new |= _added(guessed := self._guessed.setdefault(server, {}), known.guessed, MOST_GUESSED)
                before = self._no_names.get(server, set())
                self._no_names[server] = before.union(known.no_names).intersection(guessed)
                is_any_new |= self._no_names[server] != before
            if is_any_new:
                self._look_everywhere()

    def learn_tokens(self, server: str, tokens: Iterable[str], whose: str = "") -> None:
        """Tokens that this server is shown for a principal, until others replace them: what they replace is known as
        long as they are. Beyond `MOST` of a server those that were replaced longest ago are forgotten."""
        self._known(server)
        are_tokens = (each for each in tokens if len(each) >= SHORTEST and _is_token(each))
        pieces = list(dict.fromkeys(piece for each in are_tokens for piece in _pieces(each)))[-MOST_TOKENS:]
        with self._turn:
            known = self._tokens.setdefault(server, {})
            now, before = known.get(whose, _Tokens({}, {}))
            if {*now, *before} >= set(pieces):
                return
            come = _Tokens({each: now.get(each) or _spellings(each) for each in pieces}, now)
            gone = [known.pop(whose)] if whose in known else []
            known[whose] = come
            self._known_tokens[server] += come.many - sum(each.many for each in gone)
            while self._known_tokens[server] > MOST:
                gone.append(known.pop(next(iter(known))))
                self._known_tokens[server] -= gone[-1].many
            fresh, old = come.all(), [forms for each in gone for forms in each.all()]
            for secrets in (self._of[server], self._listed[server]):
                secrets._exchange(fresh, old)
            self.anywhere._exchange(_random(fresh), _random(old))

    def _tokens_of(self, server: str) -> list[_Spellings]:
        """As often as they are known: each leaves by itself."""
        return [forms for each in self._tokens.get(server, {}).values() for forms in each.all()]

    def keep(self, servers: Container[str]) -> None:
        """Forget what was configured for others: at once in what the rest say, and in what they say themselves when
        the next configuration comes, since they may still answer."""
        with self._turn:
            for server in [each for each in self._removed if each not in servers]:
                for pool in (self._sure, self._guessed, self._no_names, self._of, self._listed):
                    pool.pop(server, None)
            self._removed = {each for each in (*self._sure, *self._guessed) if each not in servers}
            self._look_everywhere()

    def _look_everywhere(self) -> None:
        self._look_for([*self._lasting.values(), *self._all_sure()])
        self.certain._look_for([*self._lasting.values()])
        for server, secrets in self._of.items():
            self._look_of(server, secrets, self._listed[server])
        self._look_in_logs()

    def _all_sure(self) -> list[_Spellings]:
        known = [secrets for server, secrets in self._sure.items() if secrets and server not in self._removed]
        share = max(1, MOST // max(1, len(known)))
        return [forms for secrets in known[:MOST] for forms in [*secrets.values()][-share:]]

    def _look_of(self, server: str, said: Secrets, listed: Secrets) -> None:
        own = [*self._lasting.values(), *self._sure.get(server, {}).values(), *self._tokens_of(server)]
        known, no_names = self._guessed.get(server, {}), self._no_names.get(server, set())
        own += (known[each] for each in known if each in no_names)
        guessed = [known[each] for each in known if each not in no_names]
        said._look_for([*own, *self._all_sure()], guessed)
        listed._look_for(own, guessed)

    def _look_in_logs(self) -> None:
        random = [forms for server in self._tokens for forms in _random(self._tokens_of(server))]
        random += [forms for known in self._guessed.values() for each, forms in known.items() if looks_like_token(each)]
        self.anywhere._look_for([*self._lasting.values(), *self._all_sure(), *random])


def _added(known: dict[str, _Spellings], fresh: Iterable[str], most: int) -> bool:
    """Whether any of these is new. What is learned again is young again, and the oldest are forgotten."""
    fresh = list(dict.fromkeys(fresh))[-most:]
    is_new = not known.keys() >= set(fresh)
    for secret in fresh:
        known[secret] = known.pop(secret, None) or _spellings(secret)
    for oldest in list(known)[: max(0, len(known) - most)]:
        del known[oldest]
    return is_new


MOST_MEMBERS = 100  # that are left of JSON that is emptied
LONGEST_KEPT = 64  # bytes of each
_EMPTY: Mapping[bytes, Any] = {b"[": msgspec.Raw(b"[]"), b"{": msgspec.Raw(b"{}")}


class _Spellings(NamedTuple):
    """A secret in each way of writing it: in texts, and in the bytes of JSON, a character for each byte; without
    escapes; and without backslashes, unless it has hardly more than these, since that is in many texts."""

    texts: tuple[str, ...]
    bodies: tuple[str, ...]
    ways: tuple[str, ...]
    loosely: tuple[str, ...]
    core: str  # what stands in each of these, and nobody writes with a short escape or in another way in URLs
    letters: frozenset[str]  # of that
    is_ascii: bool
    is_astral: bool  # some of its characters are two for JSON's escapes


class _Tokens(NamedTuple):
    """Those of one principal at one server, and what they have replaced."""

    now: Mapping[str, _Spellings]
    before: Mapping[str, _Spellings]

    @property
    def many(self) -> int:
        return len(self.now) + len(self.before)

    def all(self) -> list[_Spellings]:
        return [*self.now.values(), *self.before.values()]


class _SpellingCounts:
    """The forms of some secrets, and how many have each. What is no longer counted leaves its letters in the
    `alphabet`, which is of all that may be there."""

    def __init__(self, secrets: Iterable[_Spellings]) -> None:
        self.texts, self.bodies = dict[str, int](), dict[str, int]()
        self.ways, self.loosely = dict[str, int](), dict[str, int]()
        self.letters: dict[str, frozenset[str]] = {}  # by core
        self._cores = dict[str, int]()
        self.alphabet = frozenset[str]()
        self.beyond_ascii = self.astral = 0
        for each in secrets:
            self.count(each, 1)

    def count(self, forms: _Spellings, times: int) -> None:
        _count(self.texts, forms.texts, times)
        _count(self.bodies, forms.bodies, times)
        _count(self.ways, forms.ways, times)
        _count(self.loosely, forms.loosely, times)
        _count(self._cores, (forms.core,), times)
        if forms.core in self._cores:
            self.letters[forms.core] = forms.letters
        else:
            del self.letters[forms.core]
        if not forms.letters <= self.alphabet:
            self.alphabet |= forms.letters
        self.beyond_ascii += 0 if forms.is_ascii else times
        self.astral += times if forms.is_astral else 0

    def all(self) -> Iterator[str]:
        return itertools.chain(self.texts, self.bodies, self.ways, self.loosely)


def _count(counts: dict[str, int], forms: Iterable[str], times: int) -> None:
    for each in forms:
        if count := counts.get(each, 0) + times:
            counts[each] = count
        else:
            del counts[each]


def _random(tokens: Iterable[_Spellings]) -> list[_Spellings]:
    return [each for each in tokens if _is_random(each.texts[0])]


def _spellings(secret: str) -> _Spellings:
    """As it is, in a URL, and with its lines as files have them; each as JSON writes it in either way."""
    urls = (quote(secret, safe=""), quote(secret))
    ways = dict.fromkeys(
        [secret, *_in_lines(secret), *urls, *(_percent.sub(lambda found: found[0].lower(), url) for url in urls)]
    )
    written = dict.fromkeys(form for way in ways for form in _as_json(way))
    loosely = (loose for way in ways if len(loose := escapes.loosely(escapes.units(way))) >= SHORTEST)
    core = max(_unreserved.findall(secret), key=len, default="")
    return _Spellings(
        texts=tuple(dict.fromkeys([*ways, *written])),
        bodies=tuple(map(_as_bytes, written)),
        ways=tuple(map(escapes.units, ways)),
        loosely=tuple(dict.fromkeys(loosely)),
        core=core,
        letters=frozenset(core),
        is_ascii=secret.isascii(),
        is_astral=max(secret) > "\uffff",
    )


_unreserved = re.compile(r"[A-Za-z0-9_.~-]+")
_percent = re.compile("%[0-9A-F]{2}")
_INDENTS = ("", "  ", "    ", "      ", "        ", "\t")
_line_break = re.compile(r"\n(?!\n)")


def _in_lines(secret: str) -> Iterator[str]:
    """A secret of several lines as other files have it, in YAML for example: indented, or with CRLF."""
    lines = secret.replace("\r\n", "\n").strip("\n")
    if "\n" in lines:
        yield lines.replace("\n", "\r\n")
        for indent in _INDENTS:
            yield _line_break.sub(f"\n{indent}", lines)


_ESCAPE = "\\u"
_ASCII_ESCAPE = "\\u00"


def _as_bytes(text: str) -> str:
    """A character for each byte of its UTF-8."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _is_token(text: str) -> bool:
    """Whether it looks like one: no word, no JSON, and on one line."""
    is_no_name = any(map(str.isdigit, text)) or (len(text) >= SHORTEST_OF_LETTERS and "/" not in text)
    return is_no_name and not _JSON & set(text)


def _pieces(token: str) -> Iterator[str]:
    """Of one that is long, each as long as the others, so that none is a word that others use: the last begins within
    the one before it."""
    last = min(len(token), LONGEST_TOKEN) - PIECE_OF_TOKEN
    for start in range(0, max(1, last), PIECE_OF_TOKEN):
        yield token[start : start + PIECE_OF_TOKEN]
    if last > 0:
        yield token[last : last + PIECE_OF_TOKEN]


def _is_random(token: str) -> bool:
    """Whether nobody would write it by chance, or to be understood."""
    return len(token) >= SHORTEST_RANDOM and all(any(map(kind, token)) for kind in (str.isupper, str.islower))


def looks_like_token(text: str) -> bool:
    """Whether it is hardly a word of anybody: long, and of letters and digits. Addresses and paths have dots and
    slashes, but only tokens have capitals as well."""
    if not _like_token.fullmatch(text) or not (any(map(str.isdigit, text)) and any(map(str.isalpha, text))):
        return False
    return not _in_addresses & set(text) or _is_random(text)


def can_be_guessed(secret: str) -> bool:
    """Whether somebody may find it by trying, as a word with some digits: it is neither long nor like a token."""
    return len(secret) < LONG and not looks_like_token(secret)


_like_token = re.compile(r"[A-Za-z0-9_+/=.~-]{16,4096}")
_in_addresses = frozenset("/.")
_JSON = frozenset('"{}[],\\ \r\n')


def _as_json(text: str) -> Iterable[str]:
    for ascii in (True, False):
        once = json.dumps(text, ensure_ascii=ascii)[1:-1]
        yield from (once, once.replace("/", "\\/"))


def _places(shown: str, secrets: Iterable[str]) -> list[tuple[int, int]]:
    """Raises `TooMuch`."""
    places: list[tuple[int, int]] = []
    for secret in secrets:
        at = shown.find(secret)
        while at >= 0:
            places.append((at, at + len(secret)))
            if len(places) > MOST_PLACES:
                raise TooMuch
            at = shown.find(secret, at + 1)
    return places


_rest_of_a_name = re.compile(r'(?:[^"\\]|\\.){0,256}+"\s{0,64}+:')


def _in_values(shown: str, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of places in JSON those that are in no member's name, as far as one may be long."""
    return [(start, stop) for start, stop in places if not _rest_of_a_name.match(shown, stop)]


def _cut_out(shown: str, places: Iterable[tuple[int, int]]) -> str:
    """All at once, so that a secret which overlaps another, or holds it, leaves nothing behind; each with what adjoins
    it, which stands within the same string of JSON, since no quote and no backslash does."""
    parts: list[str] = []
    end = 0
    for start, stop in sorted(places):
        if stop <= end:  # a piece of the same token, perhaps: what adjoins it may reach further
            end = _after(shown, end, stop + ADJOINING)
            continue
        left = _adjoining_before(shown, max(end, start - ADJOINING), start) if shown[start - 1] in _ADJOINING else 0
        if start - left > end or not parts:
            parts += (shown[end : start - left], GONE)
        end = stop
        if shown[stop : stop + 1] in _ADJOINING:  # to look at one is a quarter of the work, of many places
            end = _after(shown, stop, stop + ADJOINING - left)
    return "".join([*parts, shown[end:]])


def _after(shown: str, start: int, stop: int) -> int:
    """Where what adjoins ends, which begins there."""
    found = _adjoining.match(shown, start, stop)
    return found.end() if found else start


def _adjoining_before(shown: str, start: int, stop: int) -> int:
    """How many characters before `stop` go with it. What belongs to an escape stays."""
    before = shown[start:stop]
    at = stop - len(before) + len(before.rstrip(_ADJOINS))
    if at < stop and shown[at - 1 : at] == "\\":
        at += 5 if shown[at] == "u" else 1
    return max(0, stop - at)


_ADJOINS = f"{string.ascii_letters}{string.digits}+/_=.-"
_ADJOINING = frozenset(_ADJOINS)
_adjoining = re.compile(f"[{re.escape(_ADJOINS)}]*+")


def _sound(changed: bytes, before: bytes, secrets: Secrets, most: int) -> bytes:
    """Where a secret was a number, or began in the middle of an escape, what is left is no JSON: it is read then, if it
    has no more values than that, and can be. Raises `TooMuch`."""
    try:
        msgspec.json.decode(changed, type=msgspec.Raw)
        return changed
    except _UNREADABLE:
        pass
    if len(before) > MOST_WALKED or counting.has_more_values(before, most):
        raise TooMuch
    try:
        return _write(_walked(_read(before), secrets))
    except _UNREADABLE:
        raise TooMuch from None


def _read(body: bytes) -> Any:
    try:
        return plain.read(body)
    except msgspec.DecodeError:
        return json.loads(body)  # which knows lone surrogates


def _write(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _walked(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, str):
        return secrets.text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if secrets.text(written := repr(value)) == written else GONE
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return {secrets.name(name): _walked(each, secrets) for name, each in members}
    if isinstance(value, list | tuple):
        return [_walked(each, secrets) for each in cast("list[Any]", value)]
    return value


# What is quoted.

_all: weakref.WeakSet[Redactor] = weakref.WeakSet()
_all_turn = threading.Lock()


def excerpt(said: str | bytes, most: int = 200, server: str = "") -> str:
    """The beginning of what a server said, in `most` characters, to be quoted in words of our own. It is without the
    secrets of each gateway in this process: those who quote know of none. Where they do not know the server either, of
    its tokens those are taken out that nobody writes by chance."""
    text = said[:LONGEST_QUOTED] if isinstance(said, str) else bytes(said[:LONGEST_QUOTED]).decode(errors="replace")
    text, part = _without_known(text, server)
    if len(said) > LONGEST_QUOTED:  # half of a secret may be left at its end, which many before it have moved forward
        text = text[:-part]
    return text[:most]


def last_lines(said: bytes, most: int, server: str = "", is_cut: bool = False) -> str:
    """The end of what a process wrote, in whole lines of `most` characters together, or in the end of a line that is
    longer; without secrets as `excerpt` is. `is_cut`: something stood before it, so that a secret may begin there."""
    text, part = _without_known(said.decode(errors="replace"), server)
    if is_cut and (line := text.find("\n") + 1) and not any(each.has_lines() for each in _known_to_all(server)):
        part = line  # what began before it ends in its line
    else:
        part *= len(r"\u0000")  # it may be written so
    start = max(len(text) - most, part if is_cut else 0)
    if start and text[start - 1 : start] != "\n":
        start = text.find("\n", start) + 1 or start
    return text[start:]


def version(server: str = "") -> object:
    """What `excerpt` and `last_lines` have looked for is to be looked for again when this is another."""
    return [each.version for each in _known_to_all(server)]


def _known_to_all(server: str) -> list[Secrets]:
    with _all_turn:
        known = list(_all)
    return [redactor.of(server) if server else redactor.anywhere for redactor in known]


def _without_known(text: str, server: str) -> tuple[str, int]:
    """And how many characters a part of a secret may have that is left where it was cut."""
    part = PIECE_OF_TOKEN
    for secrets in _known_to_all(server):
        text, part = secrets.text(text), max(part, secrets.longest)
    return text, part


# Logs.


class _Filter(logging.Filter):
    """Gives handlers a record in which nothing is left to be put in: no secret, and of what strangers said nothing that
    would look like a record of its own, or act on a terminal."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._secrets = redactor.anywhere

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except (TypeError, ValueError):
            return True  # for the handler to complain of
        if (shown := _in_its_place(self._secrets.text(said))) != said:
            record.msg, record.args = shown, None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text and (shown := _in_its_place(self._secrets.text(record.exc_text))) != record.exc_text:
            record.exc_text, record.exc_info = shown, None
        if record.stack_info:
            record.stack_info = _in_its_place(self._secrets.text(record.stack_info))
        return True


# Control characters, and what nobody sees or what turns the direction of a text.
_unseen = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb{INVISIBLE.pattern[1:-1]}]")


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
