"""The bridge: what a worker writes becomes events, and what the host says becomes lines. No I/O.

One protocol for all engines: lines of JSON on the worker's stdin and stdout.

    host → worker   {"run": {"code": …, "servers": {…}, "data": …, "limits": {…}, "strict": false}}    once, first
                    {"answer":N,"value":…}    {"answer":N,"error":{"message":…,"code":…}}    with no spaces outside
                    the value
    worker → host   {"ready": "deno 2.9.8"}    before the run
                    {"log": "a console line"}
                    {"call": N, "server": …, "tool": …, "arguments": {…}, "raw": false}    N counts up from 1
    at its end      {"done": {"value": …}}    {"done": {"absent": true}}    {"deadlock": true}
                    {"failed": {"name": …, "message": …, "stack": …}}

The rules this file keeps: a worker runs code of strangers, so each of its lines is hostile: any bytes become events or
`Broken`, never an exception; each has a bound. Values travel as the bytes they came in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, surrogates
from toolgate.core.lines import Lines
from toolgate.sandbox.limits import Limits

BESIDE = 64 * 1024  # bytes of a line beside a value of the greatest size
OTHERS = 5  # values of a call's line beside its arguments, as workers write it
LARGE = 256 * 1024  # bytes of a result, and of a call's line
LONGEST_NAME = 1024  # characters of a server's or tool's
LONGEST_REASON = 16 * 1024  # characters of an error's message, and of its stack
OVER = 1000  # calls beyond those that a run may make, which are refused one by one; then the run ends

OUTPUT = "output limit exceeded"
CALLS = "call limit exceeded"
_TOO_DEEP = f"nested more than {jsonrpc.DEEPEST} levels deep"
_UNREADABLE = "the sandbox failed: its process wrote what cannot be read"


MEMORY = "memory limit exceeded"  # of a run that is `Broken` by it


class Ready(msgspec.Struct, frozen=True):
    """It can take a run. `engine` is its name and version."""

    engine: str


class Log(msgspec.Struct, frozen=True):
    text: str


class Call(msgspec.Struct, frozen=True):
    """A call of a tool; `arguments` are a JSON object."""

    number: int
    server: str
    tool: str
    arguments: bytes
    raw: bool


class LargeCall(msgspec.Struct, frozen=True):
    """A call whose line is to be read (`read_call`) where nobody waits for that."""

    number: int
    line: bytes


class Refused(msgspec.Struct, frozen=True):
    """A call that is answered with an error and goes no further."""

    number: int
    message: str


class Done(msgspec.Struct, frozen=True):
    """The result as JSON, None where there is none. A large one is to be `looked_at` where nobody waits for that: it
    may take `room` bytes."""

    value: bytes | None
    room: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """What the code threw."""

    name: str
    message: str
    stack: str = ""


class Deadlock(msgspec.Struct, frozen=True):
    """It waits for what cannot come."""


class Broken(msgspec.Struct, frozen=True):
    """The run cannot go on. `message` says why, in the words of a sandbox error."""

    message: str


End: TypeAlias = Done | Failed | Deadlock | Broken
Event: TypeAlias = Ready | Log | Call | LargeCall | Refused | End


class _Done(msgspec.Struct):
    value: Raw = jsonrpc.NOTHING
    absent: bool = False


class _Failed(msgspec.Struct):
    name: str = "Error"
    message: str = ""
    stack: str = ""


class _Line(msgspec.Struct):
    ready: str | None = None
    log: str | None = None
    call: int | None = None
    server: str = ""
    tool: str = ""
    arguments: Raw = jsonrpc.EMPTY_OBJECT
    raw: bool = False
    done: _Done | None = None
    failed: _Failed | None = None
    deadlock: bool = False


_line: jsonrpc.Decoder[_Line] = jsonrpc.Decoder(_Line)
_NUMBER = re.compile(rb'\{"call": ?([1-9][0-9]{0,8}),')


class Bridge:
    """That of one worker."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines = Lines()
        self._is_ready = False
        self._is_over = False
        self._calls = 0
        self._output = 0  # bytes

    def feed(self, chunk: bytes) -> list[Event]:
        """The events of what a worker has written. Nothing comes after an `End`."""
        events: list[Event] = []
        for line in self._lines.feed(chunk) if not self._is_over else ():
            if self._is_over:
                break
            if len(line) > self._limits.output + BESIDE:
                events.append(self._broken(OUTPUT))
            else:
                events.append(self._event(line))
        if not self._is_over and self._lines.pending > self._limits.output + BESIDE:
            events.append(self._broken(OUTPUT))
        if self._is_over:
            self._lines.drop()
        return events

    def _event(self, line: bytes) -> Event:
        if begins := _NUMBER.match(line):
            return self._called(int(begins[1]), line)
        try:
            read = _read(line)
        except RecursionError:
            if not line.startswith((b'{"done":', b'{"done": ')):
                return self._broken(_UNREADABLE)
            self._is_over = True
            return Failed("RangeError", f"the result is {_TOO_DEEP}")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._broken(_UNREADABLE)
        if read.log is not None:
            return self._logged(read.log)
        if read.call is not None:
            return self._called(read.call, line)
        if read.ready is not None and not self._is_ready:
            self._is_ready = True
            return Ready(surrogates.shown(read.ready[:LONGEST_NAME]))
        if read.done is not None:
            return self._done(read.done)
        if read.failed is not None:
            self._is_over = True
            texts = (read.failed.name[:LONGEST_NAME], read.failed.message[:LONGEST_REASON], read.failed.stack)
            return Failed(*(surrogates.shown(text[:LONGEST_REASON]) for text in texts))
        if read.deadlock:
            self._is_over = True
            return Deadlock()
        return self._broken(_UNREADABLE)

    def _logged(self, text: str) -> Event:
        text = surrogates.shown(text)
        line = text.encode() + b"\n"
        self._output += _size(line, counting.size_in_inner_text(line))
        return Log(text) if self._output <= self._limits.output else self._broken(OUTPUT)

    def _called(self, number: int, line: bytes) -> Event:
        if number != self._calls + 1:
            return self._broken(_UNREADABLE)
        self._calls = number
        if number > self._limits.calls + OVER:
            return self._broken(CALLS)
        if number > self._limits.calls:
            return Refused(number, f"a run may make {self._limits.calls} calls, and has made them")
        event = LargeCall(number, line) if len(line) > LARGE else read_call(number, line, self._limits)
        self._is_over = isinstance(event, Broken)
        return event

    def _done(self, done: _Done) -> Event:
        self._is_over = True
        if done.absent or not done.value:
            return Done(None)
        value, room = bytes(done.value), self._limits.output - self._output
        return Done(value, room) if len(value) > LARGE else looked_at(value, room)

    def _broken(self, message: str) -> Broken:
        self._is_over = True
        return Broken(message)


def _read(line: bytes) -> _Line:
    if not line.isascii():
        line.decode()  # the reader skips over raw values without looking at their encoding
    return _line.decode(line)


def read_call(number: int, line: bytes, limits: Limits) -> Call | Refused | Broken:
    """What the line of this call says. It may be called in any thread."""
    if counting.has_more_values(line, limits.values + OTHERS):  # to read it would take as long as it is
        return Refused(number, f"the arguments have more than {limits.values:,} JSON values (limits.values)")
    try:
        read = _read(line)
    except RecursionError:
        return Refused(number, f"the arguments are {_TOO_DEEP}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Broken(_UNREADABLE)
    if read.call != number:
        return Broken(_UNREADABLE)
    if max(len(read.server), len(read.tool)) > LONGEST_NAME:
        return Refused(number, f"a name may have {LONGEST_NAME} characters")
    arguments = bytes(read.arguments)
    if arguments[:1] != b"{":
        return Refused(number, "the arguments must be an object")
    if counting.is_deeper(arguments, jsonrpc.DEEPEST - 1):
        return Refused(number, f"the arguments are {_TOO_DEEP}")
    return Call(number, read.server, read.tool, arguments, read.raw)


def looked_at(value: bytes, room: int) -> Done | Failed | Broken:
    """A result, which must not be nested too deep, nor take more than `room` bytes."""
    size_told = counting.size_in_text if value.startswith(b'"') else counting.size_in_inner_text
    if _size(value, size_told(value)) > room:
        return Broken(OUTPUT)
    if counting.is_deeper(value, jsonrpc.DEEPEST - 1):
        return Failed("RangeError", f"the result is {_TOO_DEEP}")
    return Done(value)


def _size(data: bytes, told: int) -> int:
    """`told` is its size as JSON within a text of JSON: for what is usual less than twice as much."""
    return max(len(data), told // 2)


# What the host says.


def order(
    code: str, servers: Mapping[str, Sequence[str] | None], limits: Limits, data: bytes | None, strict: bool
) -> bytes:
    """The one order for a worker. `data` is JSON, which is taken in pieces: others have their turns meanwhile."""
    told = {"sleep": limits.sleep, "output": limits.output, "calls": limits.calls}
    run: dict[str, Any] = {"code": code, "servers": _bounded(servers, limits.names), "limits": told, "strict": strict}
    written = jsonrpc.encode({"run": run})[:-2]  # without the brackets at its end
    if data is None:
        return written + b"}}\n"
    line = jsonrpc.OneLine()
    pieces = [line.piece(data[at : at + counting.PIECE]) for at in range(0, len(data), counting.PIECE)]
    return b"".join([written, b',"data":', *pieces, line.rest, b"}}\n"])


def _bounded(servers: Mapping[str, Sequence[str] | None], most: int) -> dict[str, Any]:
    """Without the names of tools, where they would be too many: they are known all the same when they are called."""
    told: dict[str, Any] = {}
    for server, tools in servers.items():
        most -= len(server) + sum(map(len, tools or ())) if most > 0 else 0
        told[server] = list(dict.fromkeys(tools)) if tools is not None and most > 0 else None
    return told


def answer(number: int, value: bytes) -> bytes:
    """`value` is JSON, and goes as it is."""
    return b'{"answer":%d,"value":%b}\n' % (number, jsonrpc.one_line(value))


def refusal(number: int, message: str, code: str = "") -> bytes:
    error = {"message": message, "code": code} if code else {"message": message}
    return b'{"answer":%d,"error":%b}\n' % (number, jsonrpc.encode(error))


_FENCE = re.compile(r"(`{3,}+|~{3,}+)[^\n`]*+\n")


def unfenced(code: str) -> str:
    """Code without the Markdown fence around it, where there is one around all of it."""
    text = code.strip()
    found = _FENCE.match(text)
    if not found or not text.endswith("\n" + found[1]):
        return code
    return text[found.end() : -len(found[1])].removesuffix("\n")
