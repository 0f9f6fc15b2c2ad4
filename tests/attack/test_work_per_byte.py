"""What is done with bytes that a server or a client sizes takes work in proportion to them, whatever they are: steps
are counted for some input, and for twice as much of it."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from inmemory import Scripted, Visitor, gateway
from virtualtime import FakeClock, VirtualTimeLoop, settle

from toolgate.core import jsonrpc, names, sse
from toolgate.core.model import Call, Client, ToolInfo
from toolgate.policy import schemas
from toolgate.policy.base import Wait
from toolgate.policy.schema_cost import MOST_STEPS, SchemaCost, TooMuch, depth, parts
from toolgate.policy.validate import Validate
from toolgate.upstreams.links.http import LONGEST_UNAWAITED
from toolgate.upstreams.links.streams import Cursor, Following

MIB = 1024 * 1024
MOST = 2.5  # times as much work for twice as much


def steps(work: Callable[[], object]) -> int:
    """Lines that are run, and calls, also of what is not Python."""
    counted = 0

    def line(*_: Any) -> Any:
        nonlocal counted
        counted += 1
        return line

    def call(frame: Any, event: str, _: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    traced = sys.gettrace()
    sys.setprofile(call)
    sys.settrace(line)
    try:
        work()
    finally:
        sys.settrace(traced)
        sys.setprofile(None)
    return counted


def alternating(size: int) -> str:
    return "ab" * (size // 2)


SIZED: dict[str, Callable[[int], list[str]]] = {
    "a long one and short ones": lambda size: ["k" * (size // 2), *(f"\u00e9{number}" for number in range(size // 12))],
    "U+FDFA": lambda size: ["\ufdfa" * (size // 6), *["\ufdfa" * 50] * (size // 300)],
    "a and b": lambda size: [f"{alternating(150)}{number}" for number in range(size // 155)],
    "the smallest": lambda size: [f"{number:x}" for number in range(size // 4)],
}
"""Names of so many bytes together, about."""


def reckoned(schema: object) -> None:
    try:
        SchemaCost(schema).reckon()
    except TooMuch:
        pass


def of_properties(given: list[str]) -> Callable[[], object]:
    schema = {"properties": {name: {"properties": {name: {}}} for name in given}, "required": given}
    return lambda: reckoned(schema)


def of_references(given: list[str]) -> Callable[[], object]:
    """Half of them lead nowhere, and there are many places that they might lead to."""
    anywhere = [{"id": name} for name in given]
    schema = {
        "$id": "r",
        "allOf": [{"$ref": f"#/{where}/{name}"} for name in given for where in ("$defs", "none")],
        "$defs": {name: {"type": "string"} for name in given} | {"d": anywhere},
    }
    return lambda: reckoned(schema)


def of_one_reference(given: list[str]) -> Callable[[], object]:
    schema = {"$id": "r", "$anchor": "k", "properties": {"x": {"$ref": "#k"}}}
    schema |= {"allOf": [{"$ref": "#/q"} for _ in given], "$defs": {"d": [{"id": name} for name in given]}}
    return lambda: reckoned(schema)


def of_recursion(given: list[str]) -> Callable[[], object]:
    schema = {"properties": {name: {"$ref": "#"} for name in given[:200]}}
    return lambda: reckoned(schema)


def of_values(given: list[str]) -> Callable[[], object]:
    value = {name: [name, {name: 1}] for name in given}
    return lambda: (depth(value), parts(value))


def kept(given: list[str]) -> Callable[[], object]:
    made = schemas.Kept()

    def work() -> None:
        for number, name in enumerate(given):
            made.put(f"server {number % 3}", name.encode(), schemas.Schema(size=schemas.MOST_KEPT // 7))

    return work


def nearest(given: list[str]) -> Callable[[], object]:
    return lambda: [names.near(name, given) for name in ("ab" * 90, "\ufdfa" * 60, "get_issue", "x1")]


def read(given: list[str]) -> Callable[[], object]:
    data = "".join(f"data: {name}\nid: {name}\n{name}: 1\n" for name in given).encode() + b"\n"

    def work() -> None:
        reader = sse.Reader(64 * MIB)
        for start in range(0, len(data), 7):
            reader.feed(data[start : start + 7])

    return work


WORK = {
    each.__name__: each
    for each in (of_properties, of_references, of_one_reference, of_recursion, of_values, kept, nearest, read)
}


@pytest.mark.parametrize("shape", SIZED)
@pytest.mark.parametrize("work", WORK)
def test_twice_as_much_takes_twice_the_work(work: str, shape: str) -> None:
    small, large = (steps(WORK[work](SIZED[shape](size))) for size in (4_000, 8_000))
    assert large <= MOST * small + 100


# Schemas.


def wild(references: int, places: int) -> bytes:
    """References that lead nowhere, in a schema that refers to itself, among many places that might be meant."""
    found = ",".join('{"$ref":"#/q"}' for _ in range(references)), ",".join('{"id":"a"}' for _ in range(places))
    return b'{"$id":"r","$anchor":"k","properties":{"x":{"$ref":"#k"}},"allOf":[%b],"$defs":{"d":[%b]}}' % (
        found[0].encode(),
        found[1].encode(),
    )


DISTINCT = jsonrpc.encode(
    {"$id": "r", "allOf": [{"$ref": f"#/$defs/q{n}"} for n in range(500)], "$defs": {"d": [{"id": "a"}] * 700}}
)
NESTED = jsonrpc.encode({"properties": {f"p{n}": {"anyOf": [{"$ref": "#"}, {"$ref": "#/none"}]} for n in range(400)}})
MANY = jsonrpc.encode(
    {
        "properties": {"x": {"items": {"$ref": "#"}}},
        "dependentRequired": {f"r{n}": ["x"] for n in range(3000)},
        "required": ["x"] * 3000,
    }
)


@pytest.mark.parametrize("text", [wild(150, 150), wild(500, 700), DISTINCT, NESTED, MANY], ids=len)
def test_reckoning_what_a_schema_costs_is_bounded_whatever_its_references_could_mean(text: bytes) -> None:
    schema = jsonrpc.value(text)
    assert steps(lambda: reckoned(schema)) < 100 * MOST_STEPS  # once more than 10^8, and more with each reference


def call(text: bytes, server: str = "there", arguments: bytes = b"{}") -> Call:
    made = Call(method="tools/call", target="x", client=Client(), server=server, arguments=msgspec.Raw(arguments))
    return msgspec.structs.replace(made, tool_info=ToolInfo(schema=text))


async def test_what_is_more_than_little_is_compiled_in_a_thread_and_little_at_once_and_the_unusual_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aside: list[bool] = []
    compile = vars(schemas)["_compiled"]
    monkeypatch.setattr(schemas, "_kept", schemas.Kept())
    monkeypatch.setattr(schemas, "_compiled", lambda text: aside.append(VirtualTimeLoop.is_aside) or compile(text))
    policy = Validate()
    properties = ",".join(f'"argument{number}":{{"type":"string"}}' for number in range(100))
    for text, here in (
        (wild(150, 150), []),
        (wild(40, 40), []),
        (b'{"properties":{%b}}' % properties.encode(), [True]),
    ):
        given = call(text)
        assert policy.refuses(given) and not aside, "whether it would be refused is not looked into"
        decision = policy.before(given, False)
        assert isinstance(decision, Wait) and not aside
        assert policy.before(given, False, await decision.until()) is given
        assert aside == here
        assert policy.before(given, False) is given and not policy.refuses(given) and aside == here, "it is kept"
        aside.clear()
    assert policy.before(small := call(b'{"required":[]}'), False) is small
    assert aside == [False]


def test_no_server_has_what_is_kept_of_another_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "_kept", found := schemas.Kept())
    size = {True: 20_000_000, False: 1000}
    monkeypatch.setattr(schemas, "_compiled", lambda text: schemas.Schema(size=size[b"large" in text]))
    mine = schemas.compiled(b"mine", "quiet")
    for number in range(40):
        schemas.compiled(b"large %d" % number, "wild")
    for number in range(1000):
        schemas.compiled(b"small %d" % number, "loud")
    schemas.compiled(b"large" * 10, "quiet")
    assert found.found.get(("quiet", b"mine")) is mine
    assert found.found.get(("wild", b"large 39")) and not found.found.get(("wild", b"large 0"))
    assert found.found.get(("loud", b"small 0")) and found.size <= schemas.MOST_KEPT


async def test_one_schema_beyond_all_room_is_not_kept_and_others_are() -> None:
    found = schemas.Kept()
    found.put("quiet", b"mine", mine := schemas.Schema(size=1000))
    found.put("wild", b"huge", schemas.Schema(size=schemas.MOST_KEPT + 1))
    assert found.found.get(("quiet", b"mine")) is mine and not found.found.get(("wild", b"huge"))
    assert found.size == 1000


# Names.

WAYS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "aggregate": ("/mcp", "tools/call", "there__{}", {}),
    "bare": ("/mcp", "tools/call", "{}", {}),
    "meta": ("/mcp/meta", "tools/call", "mcp_call", {"server": "there", "tool": "{}", "args": {}}),
    "children": (
        "/mcp/children",
        "tools/call",
        "execute_child_tool",
        {"server_id": "there", "tool_name": "{}", "arguments": {}},
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_modern", [False, True])
async def test_of_the_names_that_a_server_chose_few_letters_are_compared(
    way: str, is_modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    vars(names)["_near"].cache_clear()
    taken_apart = vars(names)["_parts"]
    monkeypatch.setattr(names, "_parts", lambda name: compared.append(name) or taken_apart(name))
    path, method, target, given = WAYS[way]
    chosen = [f"{alternating(150)}{number}" for number in range(2000)]
    script = Scripted(tools_list={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in chosen]})
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app, path=path)
        if not is_modern:
            await visitor.initialize()
        wanted = alternating(160) + "x"
        filled = {key: value.format(wanted) if isinstance(value, str) else value for key, value in given.items()}
        ask = visitor.ask_modern if is_modern else visitor.ask
        reply = await ask(method, name=target.format(wanted), arguments=filled)
        assert "not found" in str(reply.last)
    assert 0 < sum(map(len, compared)) <= 3 * (names.MOST_COMPARED + names.LONGEST_COMPARED), "for each look at lists"


# Streams of what servers say by themselves.


@contextmanager
def keeps_at_most(most: int) -> Iterator[None]:
    """Bytes that are there at the end, and were not at the beginning; nobody collects what holds itself."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
        found = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert found < most


class Opened:
    """What a `Following` has opened."""

    def __init__(self, longest: int = LONGEST_UNAWAITED) -> None:
        self.readers: list[Any] = []
        self.ended: list[int] = []
        told = (lambda data: None, lambda: True, self.ended.append)
        self.following = Following(FakeClock(), self.open, *told, Cursor(), longest, lambda size: None)

    async def open(self, headers: object, reader: Any) -> Any:
        reader.head(200, {b"content-type": b"text/event-stream"})
        self.readers.append(reader)
        return self

    def abort(self) -> None:
        """Nothing more is read."""

    async def says(self, size: int) -> bool:
        """Whether it takes so much of an event that does not end."""
        await settle()
        try:
            self.readers[-1].body(b"data: ")
            for _ in range(size // 65536):
                self.readers[-1].body(b"x" * 65536)
        except sse.TooLong:
            return False
        return True


async def test_what_has_come_of_an_event_is_little_where_nobody_waits_for_an_answer() -> None:
    with keeps_at_most(3 * MIB):
        opened = [Opened() for _ in range(10)]
        for each in opened:
            assert not await each.says(8 * MIB)
        await settle()
        assert all(each.ended == [0] or each.ended == [200] for each in opened)


@pytest.mark.parametrize("way", ["closed", "closed twice", "lost", "complete"])
async def test_nothing_of_an_event_stays_when_its_stream_is_over(way: str) -> None:
    kept: list[Opened] = []
    with keeps_at_most(MIB):
        for _ in range(5):
            opened = Opened(32 * MIB)
            kept.append(opened)
            assert await opened.says(8 * MIB)
            if way == "lost":
                opened.readers[-1].lost("it broke")
            elif way == "complete":
                opened.readers[-1].complete()
            else:
                await opened.following.closed()
            if way == "closed twice":
                opened.following.close()
            await settle()
    for each in kept:
        await each.following.closed()
