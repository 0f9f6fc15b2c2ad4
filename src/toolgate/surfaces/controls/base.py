"""What a control tool is: a row of data, with the one function that it needs.

A tool that *forwards* names a server, something of it and arguments: the surface turns the call into one of that true
target before any policy sees it. Any other *works* by what its `ControlContext` shows it. How success and failure
look is its family's business, whatever surface it is called on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from toolgate.catalog.base import ServerList, View
from toolgate.core import counting, crowds, jsonrpc, mcp, names, surrogates
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, Hints, Outcome
from toolgate.search import tokens
from toolgate.surfaces.controls.context import ControlContext

Object: TypeAlias = Mapping[str, Any]
Given: TypeAlias = Mapping[str, Any]
"""The arguments of a control tool as they were read: objects stay raw bytes, since they may be another tool's."""

Work: TypeAlias = Callable[[Given, ControlContext], Awaitable[Any]]


class Forward(msgspec.Struct, frozen=True):
    """Which parameters of a control tool name the server, the target and its arguments, and by which method it is
    called."""

    server: str
    target: str
    arguments: str = ""
    method: str = mcp.CALL


class Family(msgspec.Struct, frozen=True):
    """How the control tools of one seed speak. `wrap` makes the result of a call that was forwarded (`body` is the
    server's own); `fail` makes the result for a fault, None where that is to be a JSON-RPC error; `say` makes the
    result of a tool that works."""

    wrap: Callable[[Given, Call, Raw | bytes], Object]
    fail: Callable[[Control, Given, Fault], Object | None]
    say: Callable[[Any], Object]


class Control(msgspec.Struct, frozen=True):
    """`parameters` are the properties of its input schema; `aliases` are other names for them, `also` other names of
    the tool. `largest`: bytes that its arguments may have, where not any number."""

    name: str
    family: Family
    description: str
    parameters: Mapping[str, Object] = {}
    required: tuple[str, ...] = ()
    forward: Forward | None = None
    work: Work | None = None
    aliases: Mapping[str, str] = {}
    also: tuple[str, ...] = ()
    changes: bool = False  # whether it does more than tell, or call
    insists: bool = False  # whether it promises another try where a tool says nothing of itself
    check: Callable[[Given], object] | None = None  # raises `Fault` for arguments that do not go together
    output: Object | None = None  # its output schema
    largest: int | None = None
    reads: Callable[[Raw], Given] | None = None  # its arguments, where the gateway has written them itself
    needs: Literal["", "codex", "javascript", "own", "python"] = (
        ""  # it is not listed where the gateway does not have that
    )

    @property
    def schema(self) -> Object:
        schema: dict[str, Any] = {"type": "object", "properties": self.parameters}
        if self.required:
            schema["required"] = self.required
        return schema | {"additionalProperties": False}

    @property
    def runs_code(self) -> bool:
        return self.needs in ("javascript", "own", "python")

    @property
    def hints(self) -> Hints:
        """What permissions go by. One that forwards, or runs code, does nothing itself: its true targets are judged."""
        return _CHANGES if self.changes else _TELLS

    def listed(self) -> Raw:
        """It as `tools/list` shows it."""
        shown: dict[str, Any] = {"name": self.name, "description": self.description, "inputSchema": self.schema}
        if self.output:
            shown["outputSchema"] = self.output
        if not self.forward and not self.runs_code:
            shown["annotations"] = {"readOnlyHint": not self.changes, "openWorldHint": False}
        return Raw(jsonrpc.encode(shown))


_TELLS, _CHANGES = Hints(readOnlyHint=True), Hints(readOnlyHint=False)

# What a parameter may hold. Objects are not looked into.
_TYPES: Mapping[str, tuple[str, Callable[[Raw], Any]]] = {
    "string": ("a string", lambda raw: jsonrpc.read(raw, type=str)),
    "integer": ("a whole number", lambda raw: _whole(jsonrpc.read(raw, type=float))),
    "boolean": ("true or false", lambda raw: jsonrpc.read(raw, type=bool)),
    "array": ("a list", lambda raw: jsonrpc.read(raw, type=list[Any])),
    "object": ("an object", lambda raw: _object(raw)),
    "array or object": ("a list or an object", lambda raw: _list_or_object(raw)),
}


def _kind(parameter: Object) -> str:
    return parameter["type"] if isinstance(parameter["type"], str) else " or ".join(parameter["type"])


def _list_or_object(raw: Raw) -> Raw:
    """As it is written."""
    if bytes(memoryview(raw)[:1]) not in (b"[", b"{"):
        raise ValueError
    return raw


def read(control: Control, call: Call) -> Given:
    """The arguments of a call of a control tool. Raises `Fault` INVALID_ARGS with all that is wrong with them."""
    if control.reads:
        return control.reads(call.arguments)
    if control.largest is not None and (size := len(call.arguments)) > control.largest:
        raise invalid(control, [f"the arguments have {size:,} bytes; the limit is {control.largest:,}"])
    given, wrong = _decoded_once(control, call)
    wrong = [
        *wrong,
        *(f"`{name}` is missing" for name in control.required if name not in given and not _is_named(name, wrong)),
        *(f"`{name}` must be {said}" for name, value in given.items() if (said := _beyond(control, name, value))),
    ]
    if wrong:
        raise invalid(control, wrong)
    if control.check:
        control.check(given)
    return given


def readable(control: Control, call: Call) -> Given:
    """Those of the arguments that are what they should be, for a message about the others."""
    is_too_large = control.largest is not None and len(call.arguments) > control.largest
    return {} if is_too_large else _decoded_once(control, call)[0]


def _decoded_once(control: Control, call: Call) -> tuple[Given, Sequence[str]]:
    """As `_decoded`. What a call is for is looked at ten times in one step of the event loop."""
    reached = call.reached
    if not reached or len(call.arguments) < LARGE:
        return _decoded(control, call)
    if not reached.read or reached.read[0] != control.name or reached.read[1] is not call.arguments:
        reached.read = (control.name, call.arguments, _decoded(control, call))
    return reached.read[2]


def _decoded(control: Control, call: Call) -> tuple[dict[str, Any], list[str]]:
    """The arguments that can be read, and what is wrong with the others."""
    try:
        written = jsonrpc.members(call.arguments or b"{}")
    except jsonrpc.UNREADABLE:
        return {}, ["the arguments must be an object"]
    given: dict[str, Any] = {}
    spelled: dict[str, str] = {}  # as they were written, by the parameter's own name
    wrong = _unknown([each for each in written if control.aliases.get(each, each) not in control.parameters], control)
    for spelling, raw in written.items():
        name = control.aliases.get(spelling, spelling)
        if name in control.parameters and bytes(memoryview(raw)[:5]) != b"null":  # as many write what they leave out
            what, decode = _TYPES[_kind(control.parameters[name])]
            size = len(memoryview(raw))
            if size > _LONGEST_WRITTEN and memoryview(raw)[0] == _QUOTE:  # it is read several times in a call
                wrong.append(f"`{spelling}` has {size:,} bytes as text; the limit is {_LONGEST_WRITTEN:,}")
                continue
            if spelled.setdefault(name, spelling) != spelling:
                wrong.append(f"`{spelled[name]}` and `{spelling}` are the same parameter: give one of them")
                continue
            try:
                given[name] = decode(raw)
            except (ValueError, *jsonrpc.UNREADABLE):
                wrong.append(f"`{spelling}` must be {what}")
    return given, wrong


def _unknown(spellings: Sequence[str], control: Control) -> list[str]:
    """Anybody may send any number of them."""
    named = spellings[:MOST_UNKNOWN]
    said = [f"unknown parameter `{each[:LONGEST_UNKNOWN]}`{_did_you_mean(each, control.parameters)}" for each in named]
    more = len(spellings) - len(named)
    return said + ([f"{more:,} more unknown parameters"] if more else [])


_QUOTE = 0x22
LARGE = 64 * 1024  # bytes
_LONGEST_WRITTEN = 256 * 1024  # bytes of a text: a name, a query, or an object that a model has written as one
MOST_UNKNOWN = 10  # that are named
LONGEST_UNKNOWN = 100  # characters of a name


def _beyond(control: Control, name: str, value: Any) -> str:
    """What a value had to be, by the limits that its parameter has; empty where it is that."""
    parameter = control.parameters[name]
    choices = parameter.get("enum")
    if choices and value not in choices:
        return " or ".join(map(str, choices))
    if "minimum" in parameter and value < parameter["minimum"]:
        return f"at least {parameter['minimum']}"
    if "maximum" in parameter and value > parameter["maximum"]:
        return f"at most {parameter['maximum']}"
    return ""


def invalid(control: Control, wrong: Sequence[str]) -> Fault:
    takes = ", ".join(f"{name}{'' if name in control.required else '?'}" for name in control.parameters)
    hint = f"{control.name}({takes})"
    message = f"Invalid arguments: {'; '.join(wrong)}"
    return Fault("INVALID_ARGS", message, hint=hint, reach="not_sent", extra={"schema": control.schema})


def _is_named(name: str, wrong: Iterable[str]) -> bool:
    return any(f"`{name}`" in each for each in wrong)


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError
    return int(number)


def _object(raw: Raw) -> Raw:
    """An object as it is written. Models sometimes write it as a string that holds one."""
    written = bytes(raw)
    if written[:1] == b'"':
        written = surrogates.escaped(jsonrpc.read(raw, type=str).strip())
        if counting.is_deeper(written, jsonrpc.DEEPEST - 1):  # within a message it is a text, however deep it is
            raise ValueError
    jsonrpc.members(written)
    return Raw(written)


# Finding what is named.


def find_server(named: str, servers: Mapping[str, str]) -> str:
    """The id of a server by any spelling of its name; `servers` are the configured names by id. Raises `Fault`
    SERVER_NOT_FOUND with what there is."""
    _check_length("a server", named)
    id = names.slug(named)
    if id in servers:
        return id
    close = names.did_you_mean([servers[each] for each in names.near(id, servers)])
    shown = [name for id, name in servers.items() if id not in names.INTERNAL]
    hint = close or ("there are no servers" if not shown else f"there are {', '.join(shown[:MOST_NAMED])}")
    raise Fault(
        "SERVER_NOT_FOUND",
        f"Server not found: {named}" + (f" ({hint})" if close else ""),
        hint=hint,
        reach="not_sent",
        extra={"available_servers": shown[:MOST_NAMED]},
    )


def check_offered(server: str, kind: str, target: str, view: View) -> None:
    """Raises `Fault` where a server does not list this, or cannot list anything."""
    _check_length(f"one of the {kind}", target)
    server_list = view.server_list(server, kind)
    if server_list is None:
        raise view.fault(server, kind) or not_listed_yet(server)
    if target in server_list.items:
        return
    noun = mcp.KINDS[kind].noun
    close = names.did_you_mean(names.near(target, server_list.items))
    hint = close or f"list what {server} offers"
    raise Fault(
        mcp.KINDS[kind].missing,
        f"{noun} not found: {target} on {server}" + (f" ({hint})" if close else ""),
        server=server,
        tool=target,
        hint=hint,
        reach="not_sent",
        extra={f"available_{kind}": list(server_list.items)[:MOST_NAMED]},
    )


async def derived(server_list: ServerList, what: str, make: Callable[[], Derived], client: Client) -> Derived:
    """What is made of a list in a thread, once for all who ask, and kept with it. Very many who wait for it go on in
    turns."""
    if what not in server_list.memo:
        server_list.memo[what] = asyncio.ensure_future(asyncio.to_thread(make))
    memo: asyncio.Future[Derived] = server_list.memo[what]
    if not memo.done():
        await crowds.over(memo)
        await crowds.turn(client.principal.counted_as)
    return memo.result()


Derived = TypeVar("Derived")


class Part(msgspec.Struct, frozen=True):
    """What of an answer is made of a server's list: `pieces` by the names of its items, as they stand in a text of
    JSON, how many bytes they have together, and how many tokens they are."""

    pieces: Mapping[str, bytes]
    size: int
    tokens: int


LIST, VALUE = Raw(b"[\0]"), Raw(b"\0")  # where a part stands, as a list or as what it is: no JSON has a zero byte


class OfLists(msgspec.Struct, frozen=True):
    """What a control tool that works has to say of lists, which may be long: in `said`, `LIST` or `VALUE` stands in the
    place of each part, in this order."""

    said: Object
    parts: Sequence[Part]

    @property
    def size(self) -> int:
        """In bytes, of its parts."""
        return sum(part.size for part in self.parts)

    @property
    def tokens(self) -> int:
        return tokens.estimate(jsonrpc.encode(self.said)) + sum(part.tokens for part in self.parts)

    def written(self) -> bytes:
        """The result, as `text` would have it."""
        first, *others = map(in_text, jsonrpc.encode(self.said).split(b"\0"))
        written = [b'{"content":[{"type":"text","text":"', first]
        for part, behind in zip(self.parts, others, strict=True):
            written += [b",".join(part.pieces.values()), behind]
        return b"".join([*written, b'"}]}'])


async def part(server_list: ServerList, what: str, make: Callable[[], Mapping[str, Any]], client: Client) -> Part:
    """What is said of the items of a list, as `make` has it by their names; written once, as all that is derived."""
    return await derived(server_list, what, lambda: part_of(make()), client)


def part_of(said: Mapping[str, Any]) -> Part:
    written = {name: jsonrpc.encode(each) for name, each in said.items()}
    counted = tokens.estimate(b",".join(written.values()))
    pieces = {name: in_text(each) for name, each in written.items()}
    return Part(pieces, sum(map(len, pieces.values())), counted)


def in_text(written: bytes) -> bytes:
    """JSON as it stands in a text of JSON."""
    return bytes(jsonrpc.as_text(written))[1:-1]


def _check_length(what: str, named: str) -> None:
    """Names without end would be taken apart, compared and repeated. Raises `Fault` INVALID_ARGS."""
    if len(named) > LONGEST_NAMED:
        message = f"Invalid params: the name of {what} has {len(named):,} characters; the limit is {LONGEST_NAMED:,}"
        raise Fault("INVALID_ARGS", message, reach="not_sent")


def not_listed_yet(server: str) -> Fault:
    return Fault(
        "SERVER_FAILED",
        f"Server not started: {server} is still starting",
        server=server,
        reach="not_sent",
        hint="try again in a few seconds",
    )


MOST_NAMED = 100  # of what there is, in an error
LONGEST_NAMED = 16 * 1024  # characters, as of names that a request has itself


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = names.did_you_mean(names.near(name, known, 1))
    return f" ({close})" if close else ""


# What several families say alike.


class Unfinished(msgspec.Struct, frozen=True):
    """What a control tool that works has to say so far; `pending` are the names of servers that are still starting."""

    said: Any
    pending: Sequence[str]


def unless_pending(said: Any, wanted: Iterable[tuple[str, str]], view: View, context: ControlContext) -> Any:
    """The same; an `Unfinished` one where some of these lists are still to come, and nothing is known of them."""
    late = {server for server, kind in wanted if (server, kind) in view.pending and not view.server_list(server, kind)}
    names = [summary.name for id, summary in context.gateway.servers.items() if id in late]
    return Unfinished(said, names) if names else said


def say(control: Control, said: Any) -> Object:
    """The result of a tool that works.

    Servers that are still starting are named in a second block, so that a model that finds nothing knows that it may
    ask again. What is no object is repeated as an object in `structuredContent`: Gemini CLI 0.61 reads a text that is
    JSON into that itself, and then refuses the whole result where it is a list. Some clients show their model
    `structuredContent` instead of the text, so it has all that the text has.
    """
    whole, pending = (said.said, said.pending) if isinstance(said, Unfinished) else (said, ())
    result = control.family.say(whole)
    structured = result.get("structuredContent", None if isinstance(whole, Mapping) else {"result": whole})
    if pending:
        told = f"Still starting: {', '.join(pending)}. Ask again in a few seconds."
        content = [*result["content"], {"type": "text", "text": told}]
        result = {**result, "content": content, "_meta": {**result.get("_meta", {}), "pending": pending}}
        structured = structured and {**structured, "pending": pending}
    return result if structured is None else {**result, "structuredContent": structured}


def what_helps(fault: Fault) -> dict[str, Any]:
    """What of a fault lets its reader fix it at once."""
    shown = {key: value for key, value in fault.extra.items() if key.startswith("available_") or key in _HELPFUL}
    return shown | ({"hint": fault.hint} if fault.hint and fault.hint not in fault.message else {})


_HELPFUL = ("schema", "errors", "candidates", "stdout", "code", "model", "retryAfter")


def text(said: Any, **more: Any) -> Object:
    """A result of one text block with JSON."""
    return {"content": [{"type": "text", "text": jsonrpc.as_text(jsonrpc.encode(said))}], **more}


class Body(msgspec.Struct):
    """A tool's result, taken apart. `rest` are its members besides the content."""

    texts: list[str]
    others: list[Raw]
    is_error: bool
    structured: Raw | None
    rest: dict[str, Raw]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


class _Block(msgspec.Struct):
    type: str = ""
    text: Any = None


LONGEST_TEXT = 20 * 1024 * 1024  # bytes of a result that is written once more, as JSON in a text of JSON


def wrapped(control: Control, call: Call, done: Outcome) -> Outcome:
    """A server's own result in the words of the control tool that it was called by; as it is where it has too many
    values, or blocks, to be taken apart, or would be too long as a text of JSON. Raises `Fault`."""
    assert call.asked and isinstance(done, Done)
    body = memoryview(done.body)
    if body.nbytes > LONGEST_TEXT // 2 and counting.size_in_text(body) > LONGEST_TEXT:
        return done
    if call.method == mcp.CALL and counting.is_too_much(done.body):
        return done
    try:
        said = jsonrpc.encode(control.family.wrap(read(control, call.asked), call, done.body))
        return msgspec.structs.replace(done, body=said, frame=jsonrpc.NOTHING)
    except jsonrpc.TooMany:
        return done
    except jsonrpc.UNREADABLE as error:
        raise Fault("UPSTREAM_ERROR", f"The result is malformed: {error}", reach="executed") from None


def take_apart(body: Raw | bytes) -> Body:
    """The parts of a `CallToolResult`; one that is out of shape has none of those that are. Raises `TooMany`."""
    rest = dict(jsonrpc.members(body))
    found = Body([], [], bytes(rest.pop("isError", b"")) == b"true", rest.get("structuredContent"), rest)
    for raw in _blocks(rest.pop("content", None)):
        try:
            block = jsonrpc.read(raw, type=_Block)
        except jsonrpc.UNREADABLE:
            block = _Block()
        if block.type == "text" and isinstance(block.text, str):
            found.texts.append(block.text)
        else:
            found.others.append(raw)
    return found


def _blocks(raw: Raw | None) -> list[Raw]:
    try:
        return [] if raw is None else jsonrpc.items(raw)
    except jsonrpc.TooMany:
        raise
    except jsonrpc.UNREADABLE:
        return []


def joined(said: Object, body: Body, is_error: bool) -> Object:
    """A result of one text block with JSON, and what else the server's own holds behind it."""
    told = {"type": "text", "text": jsonrpc.as_text(jsonrpc.encode(said))}
    return {**body.rest, "content": [told, *body.others], **({"isError": True} if is_error else {})}
