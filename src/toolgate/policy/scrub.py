"""Secrets taken out of what servers say: results, progress and log lines of calls, questions, events, lists.

The rules this file keeps: what is left is JSON still, and a result that holds no secret passes untouched; it is
scrubbed before anything of it is kept (`overflow`); what the gateway says of itself (server `toolgate`) is always
scrubbed, whatever the configuration says of other servers; and what only the gateway says (`unsigned`) no server says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, large, names, redaction, token_shapes
from toolgate.core.escapes import Looks
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Accepted, Ask, Call, Done, Event, NeedInput, Outcome
from toolgate.core.notes import Note
from toolgate.core.redaction import Redactor, Secrets
from toolgate.core.steps import InSteps, at_once
from toolgate.eras.calls import by_folded, without_lookalikes
from toolgate.policy.base import Policy
from toolgate.upstreams.base import Status

Mode: TypeAlias = Literal["off", "known", "patterns"]


OURS = "toolgate/"  # how the members of `_meta` begin that the gateway sets
# The same however it is written in JSON. A body in which it stands nowhere passes byte for byte.
_ours = re.compile("".join(rf"(?:{sign}|\\u00{ord(sign):02x})" for sign in OURS).replace("/", r"\\?/").encode(), re.I)
LARGE = 512 * 1024  # bytes of a result that take up to 10 ms
MOST_SEARCHED = 16 * 1024 * 1024  # bytes of a result, for each form of a secret: up to 20 ms
MANY_FORMS = 512


def is_large(outcome: Outcome, forms: int = MANY_FORMS) -> bool:
    """Whether others would wait while a result is scrubbed of secrets in so many forms, and cut; or may later."""
    if isinstance(outcome, NeedInput):
        return True
    size = len(memoryview(outcome.body))
    return size >= LARGE or size * forms >= MOST_SEARCHED


class Scrubber(msgspec.Struct, frozen=True):
    """What a server says, without secrets: those that are known, or all that have the shape of one as well."""

    secrets: Secrets
    mode: Mode
    unsigns: bool = False  # results are `unsigned`, too, where they are scrubbed `aside`

    @property
    def has_work(self) -> bool:
        return self.mode == "patterns" or (self.mode == "known" and self.secrets.knows_any)

    def body(self, said: bytes, looks: Looks | None = None) -> bytes:
        """The same object where there is nothing to be taken out. `looks`: see `Secrets.body`."""
        if self.mode == "off":
            return said
        known = self.secrets.body(said, looks)
        return token_shapes.shaped(known) if self.mode == "patterns" else known

    def _body_in_steps(self, said: Raw | bytes) -> InSteps[Raw | bytes]:
        """The same, for what is large. Where no known secret is in it, there is no copy of it meanwhile."""
        if self.mode == "off" or (self.mode == "known" and not (yield from self._may_be_in(said))):
            return said
        known = yield from self.secrets.body_in_steps(before := bytes(said))
        known = (yield from token_shapes.shaped_in_steps(known)) if self.mode == "patterns" else known
        return said if known is before else known

    def finds(self, outcome: Done) -> bool:
        """Whether there may be anything to be taken out of a result that is not large: that takes ten times as long as
        to see that there is nothing."""
        return self.mode != "off" and not outcome.is_scrubbed and self.secrets.may_be_in(bytes(outcome.body))

    def _may_be_in(self, said: Raw | bytes) -> InSteps[bool]:
        for piece in large.pieces(said, redaction.LOOKED_AT, self.secrets.overlap):
            if self.secrets.may_be_in(piece):
                return True
            yield
        return False

    def raw(self, said: Raw, looks: Looks | None = None) -> Raw:
        before = bytes(said)
        after = self.body(before, looks)
        return said if after is before else Raw(after)

    def outcome(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Done | Accepted):
            return outcome
        if isinstance(outcome, Done) and outcome.is_scrubbed:
            return outcome
        if large.is_view(before := outcome.body):
            after = at_once(self._body_in_steps(before))
        else:
            after = self.body(before := bytes(before))
        return outcome if after is before else msgspec.structs.replace(outcome, body=after)

    def in_steps(self, outcome: Done, is_of_task: bool) -> InSteps[Done]:
        """The same as `outcome`, and `unsigned` where that is wanted."""
        if self.unsigns:
            outcome = yield from _unsigned_in_steps(outcome, is_of_task)
            yield
        if outcome.is_scrubbed:
            return outcome
        after = yield from self._body_in_steps(outcome.body)
        return outcome if after is outcome.body else msgspec.structs.replace(outcome, body=after)

    def items(self, raw: Iterable[Raw]) -> tuple[Raw, ...]:
        return tuple(map(self.raw, raw)) if self.has_work else tuple(raw)

    def asks(self, asks: Iterable[Ask]) -> tuple[Ask, ...]:
        if not self.has_work:
            return tuple(asks)
        looks = Looks(redaction.AT_ONCE)
        return tuple(msgspec.structs.replace(ask, params=self.raw(ask.params, looks)) for ask in asks)

    def keys(self, asks: Iterable[Ask]) -> dict[str, str]:
        """What keys of questions that have a secret in them are called. Their server wants them back as they are."""
        given = dict.fromkeys((ask.key for ask in asks), 0)
        if not self.has_work or self.body(said := jsonrpc.encode(given)) is said:
            return {}
        called: dict[str, str] = {}
        for number, key in enumerate(given):
            name = next(iter(jsonrpc.members(self.body(jsonrpc.encode({key: 0})))), redaction.GONE)
            if name != key:
                is_taken = name in given or name in called.values()
                called[key] = f"{name} {number}" if is_taken else name
        return called

    def event(self, event: Event) -> Event:
        if not event.params or not self.has_work:
            return event
        return msgspec.structs.replace(event, params=self.raw(event.params))

    def note(self, note: Note) -> Note:
        method = self.secrets.text(note.method) if note.method and self.mode != "off" else note.method
        return msgspec.structs.replace(note, params=self.raw(note.params), method=method)


class Scrub(Policy):
    name = "scrub"

    def __init__(self, redactor: Redactor, mode: Mode, unsigns: bool = True) -> None:
        self._redactor = redactor
        self._unsigns = unsigns
        self._mode: Mode = mode
        self._scrubbers: dict[str, Scrubber] = {}  # by server

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        if call.notes:
            call.notes.change = (self._scrubbers.get(call.server) or self._of(call.server)).note
        return call

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        server = call.server
        scrubber = self._scrubbers.get(server) or self._of(server)
        if isinstance(outcome, Done) and not outcome.is_scrubbed and server != names.OWN:  # a call passes this
            said = bytes(outcome.body)
            lower = said.lower()  # some readers mind no case
            is_theirs = lower.find(b"toolgate") < 0 and lower.find(b"\\u00") < 0
            if is_theirs and lower.find(b"input") >= 0:  # they may be questions
                is_theirs = lower.find(b"reque", lower.find(b"input")) < 0 and lower.find(b"input_required") < 0
            if not self._unsigns or is_theirs:
                secrets = scrubber.secrets
                if self._mode == "known" and (not secrets.knows_any or secrets.body(said) is said):
                    return outcome
            else:
                outcome = unsigned(outcome, call.kind == "tasks")
        elif self._unsigns and isinstance(outcome, Accepted) and server != names.OWN:
            outcome = unsigned(outcome, True)
        elif server == names.OWN and isinstance(outcome, Done) and not outcome.is_scrubbed:
            outcome = Done(self._redactor.body(bytes(outcome.body)))
        return scrubber.outcome(outcome)

    def _of(self, server: str) -> Scrubber:
        self._scrubbers[server] = scrubber = Scrubber(self._redactor.of(server), self._mode)
        return scrubber


Signed = TypeVar("Signed", Done, Accepted)


def unsigned(outcome: Signed, is_of_task: bool) -> Signed:
    """A server's result without what is the gateway's to say: members of `_meta` that begin with `toolgate/`; nor what
    some readers take for a question, in which nothing says who asks. What is told of a task may ask; that is named
    where it is written. One that is out of shape, or has too many values, is left as it is."""
    return at_once(_unsigned_in_steps(outcome, is_of_task))


def _unsigned_in_steps(outcome: Signed, is_of_task: bool) -> InSteps[Signed]:
    try:
        if body := (yield from _unsigned(outcome.body, is_of_task)):
            return msgspec.structs.replace(outcome, body=body)
    except jsonrpc.UNREADABLE:
        pass
    return outcome


def _unsigned(body: Raw | bytes, is_of_task: bool) -> InSteps[bytes | None]:
    """None where nothing is changed. A `_meta` that may stand there twice, one of them with what is ours, is written
    once, and so is a type: readers differ in which of both they take, and some do not mind case."""
    if not ((yield from _may_say_ours(body)) or (yield from _may_ask(body))) or counting.is_too_much(body):
        return None
    yield
    said = bytes(body)
    whole, changes = jsonrpc.members(body), Members()
    result = without_lookalikes(whole, _DECISIVE)
    if not (is_of_task and "taskId" in result):
        result = {name: raw for name, raw in result.items() if name != "inputRequests"}
    is_less = len(result) < len(whole) or said.count(b'resultType"') > 1
    if "_meta" in result:
        meta = _without_ours(result["_meta"])
        if meta is not result["_meta"] or said.count(b'_meta"') > 1 or b"\\u00" in said:
            changes["_meta"] = meta
    is_task = "taskId" in result
    name = "result" if is_task else "task"
    inside = result.get(name, jsonrpc.NOTHING)
    if bytes(inside).startswith(b"{") and (inner := (yield from _unsigned(inside, not is_task))):
        changes[name] = Raw(inner)
    return jsonrpc.encode(result | changes) if changes or is_less else None


_DECISIVE = by_folded(("_meta", "resultType", "inputRequests"))
_ESCAPES = tuple(b"\\u00%d" % row for row in range(2, 8))  # of ASCII


_questions = re.compile(rb"input[_-]{0,9}reque", re.I)  # an `s` of the rest has a second spelling beyond ASCII


def _may_ask(said: Raw | bytes) -> InSteps[bool]:
    """Whether any reader may find questions in a result, or their type: its name in another case, or a second one."""
    for piece in large.pieces(said, overlap=32):
        if b"input_required" in piece or _questions.search(piece):
            return True
        if b"\\u00" in piece and any(escape in piece for escape in _ESCAPES):
            return True
        yield
    return False


def _may_say_ours(said: Raw | bytes) -> InSteps[bool]:
    """Not for sure where it is large: then whole megabytes would be looked at slowly, in one go."""
    for piece in large.pieces(said, overlap=len(b"toolgate") - 1):
        lower = piece.lower()
        if b"toolgate" in lower or b"\\u00" in lower:
            return memoryview(said).nbytes >= LARGE or bool(_ours.search(said))
        yield
    return False


def _without_ours(meta: Raw) -> Raw:
    if not bytes(meta).startswith(b"{"):
        return meta
    said = jsonrpc.members(meta)
    left = {name: each for name, each in said.items() if not name[: len(OURS)].casefold().startswith(OURS)}
    return meta if len(left) == len(said) else Raw(jsonrpc.encode(left))


def fault(fault: Fault, redactor: Redactor) -> Fault:
    """As it may be shown to anybody."""
    if fault.is_scrubbed:
        return fault
    secrets = redactor.of(fault.server)
    return fault.shown(secrets.text, secrets.body, secrets.value) if secrets.knows_any else fault


def status(status: Status, secrets: Secrets) -> Status:
    """As it may be shown to the operator."""
    status = status.told()
    words = {name: secrets.text(getattr(status, name)) for name in ("error", "hint", "parts")}
    return msgspec.structs.replace(status, **words, says=lambda: secrets.text(status.stderr))
