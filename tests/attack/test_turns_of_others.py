"""One client has so much to be searched for, approved or judged that others would wait for all of it: principals take
turns, and of one of them only so much waits."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from peers import LegacyServer, Scene, gateway
from virtualtime import FakeClock, settle

from toolgate.catalog.base import ServerList
from toolgate.config import Config, Limits, Server, access
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal, ToolInfo
from toolgate.core.redaction import Redactor
from toolgate.gateway import finder
from toolgate.gateway.finder import Finder
from toolgate.policy import approvals
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import MOST_CALLS, MOST_UNDECIDED, Approvals, Place, StoredRequest
from toolgate.policy.base import Wait
from toolgate.policy.checker import MOST_WAITING, Checker
from toolgate.policy.overflow import OverflowStore
from toolgate.policy.schemas import LARGE, ArgumentsVerdict, Schema
from toolgate.policy.validate import Validate
from toolgate.search import Document, Hit, Index
from toolgate.state.memory import MemoryStore

Begin = Callable[[str], Coroutine[Any, Any, Any]]
SERVERS = {"notes": (Server(id="notes", name="notes", type="stdio"), "")}
LIST = ServerList({"write": Raw(b'{"name":"write","description":null}')})


class Slow:
    """Work in a thread that goes on when it is told to. `order` is whose came, `most` how many went on at once."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.most = 0
        self._running = 0
        self._may = threading.Event()
        self._turn = threading.Lock()

    def work(self, whose: str) -> None:
        with self._turn:
            self.order.append(whose)
            self._running += 1
            self.most = max(self.most, self._running)
        assert self._may.wait(30)
        with self._turn:
            self._running -= 1

    def go_on(self) -> None:
        self._may.set()


def crowd(slow: Slow, begin: Begin, count: int) -> list[Any]:
    """So many of mallory's, then one of bob's and one of cid's; what became of each. Threads are real here."""

    async def run() -> list[Any]:
        asked = [asyncio.ensure_future(begin(who)) for who in (*["mallory"] * count, "bob", "cid")]
        for _ in range(20):
            await asyncio.sleep(0)
        slow.go_on()
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)

    return asyncio.run(run())


def refused(results: Sequence[Any]) -> int:
    faults = [each for each in results if isinstance(each, Fault)]
    assert all(fault.code == "RATE_LIMITED" and fault.reach == "not_sent" for fault in faults)
    return len(faults)


@pytest.mark.promise("b.attacks.turns")
def test_a_search_waits_for_one_of_each_other_client(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    whole = Index.search

    def search(index: Index, query: str, *args: Any, **more: Any) -> list[Hit]:
        slow.work(query)
        return whole(index, query, *args, **more)

    monkeypatch.setattr(Index, "search", search)
    found = Finder()

    async def begin(who: str) -> Any:
        return await found.find(who, SERVERS, lambda _, kind: LIST, ("tools",), 10, "bm25", whose=who)

    results = crowd(slow, begin, 100)
    found.close()
    assert slow.order[0] == "mallory" and slow.order.index("bob") <= 3 and slow.order.index("cid") <= 3
    assert slow.order.count("mallory") == 1 + finder.MOST_WAITING
    assert refused(results) == 99 - finder.MOST_WAITING
    assert "Too many searches at once: 8 of this client are waiting already" in str(results[99])


def tools(count: int) -> ServerList:
    return ServerList({f"t{n}": Raw(b'{"name":"t%d","description":"tool number %d"}' % (n, n)) for n in range(count)})


def test_a_large_list_is_indexed_in_turns_so_that_a_search_of_another_is_before_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finder, "SLICE", 0.0)  # a document or so
    read: list[str] = []
    whole = Index.read

    def noted(index: Index, document: Document, of: int = 1) -> Any:
        read.append(document.name)
        return whole(index, document, of)

    monkeypatch.setattr(Index, "read", noted)
    found = Finder()
    small = {"small": (Server(id="small", name="small", type="stdio"), "")}
    large = tools(300)

    async def run() -> int:
        hers = asyncio.ensure_future(
            found.find("number", SERVERS, lambda _, kind: large, ("tools",), 5, "bm25", whose="mallory")
        )
        await asyncio.sleep(0)
        his = await found.find("write", small, lambda _, kind: LIST, ("tools",), 5, "bm25", whose="bob")
        seen = len(set(read))
        assert [hit.document.name for hit in his] == ["write"] and not hers.done()
        assert len(await asyncio.wait_for(hers, 60)) == 5
        return seen

    assert asyncio.run(run()) < 30
    found.close()


def test_large_arguments_of_one_client_take_one_thread_and_others_wait_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    schema = b'{"type":"object","properties":{"a":{"type":"string"}}}'
    tool_info = ToolInfo(schema=schema)
    policy = Validate()

    def work(checker: Checker, whose: str, *given: Any) -> tuple[Schema, ArgumentsVerdict]:
        slow.work(whose)
        return Schema(), ArgumentsVerdict()

    monkeypatch.setattr(Checker, "_tried", work)

    async def begin(who: str) -> Any:
        client, arguments = Client(Principal(who, client=who)), Raw(b'{"a":"%b"}' % (b"*" * LARGE))
        call = Call("tools/call", "t", client, arguments, server="there", tool_info=tool_info)
        wait = policy.before(call, False)
        assert isinstance(wait, Wait)
        return policy.before(call, False, await wait.until())

    results = crowd(slow, begin, 60)
    assert slow.most == 1
    assert slow.order.index("bob") <= 3 and slow.order.index("cid") <= 3
    assert refused(results) == 59 - MOST_WAITING


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"a":[%b[]]}' % (b'[[[{"b":[1,"1"]}]]],' * 12_000),
        b'{"a":{%b"z":1}}' % b"".join(b'"k%d":1,' % number for number in range(20_000)),
        b'{"a":"%b"}' % (b"\\u00e9" * 40_000),
    ],
    ids=["nested", "members", "text"],
)
def test_nobody_waits_while_arguments_of_240_kilobytes_are_checked(arguments: bytes) -> None:
    tool_info = ToolInfo(schema=b'{"type":"object","properties":{"a":{"items":{"type":"array"}}}}')
    call = Call("tools/call", "t", Client(Principal("ann")), Raw(arguments), server="there", tool_info=tool_info)
    assert len(arguments) < 260_000 and isinstance(Validate().before(call, False), Wait)


def test_who_goes_away_takes_no_second_thread() -> None:
    slow = Slow()

    async def run() -> None:
        turns = FairThreads(1)
        with ThreadPoolExecutor(4) as threads:
            for _ in range(10):
                asked = asyncio.ensure_future(turns.in_thread("mallory", lambda: slow.work("mallory"), threads))
                await asyncio.sleep(0)
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
            last = asyncio.ensure_future(turns.in_thread("bob", lambda: slow.work("bob"), threads))
            await asyncio.sleep(0)
            slow.go_on()
            await asyncio.wait_for(last, 60)

    asyncio.run(run())
    assert (slow.order, slow.most) == (["mallory", "bob"], 1)


def test_work_that_fails_after_its_client_went_away_gives_its_turn_back() -> None:
    async def run() -> str:
        turns, may = FairThreads(1), threading.Event()

        def fail() -> None:
            assert may.wait(30)
            raise ValueError("nobody hears this")

        asked = asyncio.ensure_future(turns.in_thread("mallory", fail))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        may.set()
        return await asyncio.wait_for(turns.in_thread("bob", lambda: "done"), 60)

    assert asyncio.run(run()) == "done"


# Calls that ask.


async def echo(scene: Scene) -> str:
    return "echo"


class Noted(Approvals):
    """Notes whose requests are looked for, and whose are made, in their order."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(MemoryStore(clock), clock)
        self.order: list[str] = []
        self.looked_for: dict[str, int] = {}

    def find(self, place: Place, digest: str) -> StoredRequest | None:
        self.looked_for.setdefault(place.principal, len(self.order))
        return super().find(place, digest)

    async def ask(self, place: Place, *more: Any) -> StoredRequest:
        self.order.append(place.principal)
        return await super().ask(place, *more)


@pytest.mark.parametrize("count", [2 * MOST_UNDECIDED, 500])
async def test_a_call_that_asks_waits_for_one_of_each_other_client(count: int) -> None:
    clock = FakeClock()
    book = Noted(clock)
    settings = access.Approvals(by=("operator",), wait=0.0)
    rule = Approval(lambda _call: "ask", book, settings, Redactor(), clock, {})
    async with gateway(policies=[rule], there=LegacyServer({"echo": echo})) as rig:
        mallory, bob = rig.modern("mallory"), rig.modern("bob")
        await bob.request("tools/list")
        asked = [mallory.start("tools/call", name="there__echo", arguments={"n": n}) for n in range(count)]
        his = bob.start("tools/call", name="there__echo")
        await his.reply()
        ahead = book.order.index("bob") - book.looked_for["bob"]
        replies = [await each.reply() for each in asked]
    # What mallory may have: 32 that are written, and 32 that wait and are refused then; the rest is not looked at.
    assert ahead <= 2 and book.order.count("mallory") <= 2 * MOST_UNDECIDED + 1
    assert sum("nobody has decided yet" in each.error["message"] for each in replies) == MOST_UNDECIDED
    assert sum("too many calls are already waiting" in each.error["message"] for each in replies) == count - 32


async def test_calls_that_repeat_one_that_waits_for_an_operator_are_counted() -> None:
    clock = FakeClock()
    book = Approvals(MemoryStore(clock), clock)
    settings = access.Approvals(by=("operator",), wait=60.0)
    rule = Approval(lambda _call: "ask", book, settings, Redactor(), clock, {})
    async with gateway(policies=[rule], there=LegacyServer({"echo": echo})) as rig:
        mallory, bob = rig.modern("mallory"), rig.modern("bob")
        await bob.request("tools/list")
        same = [mallory.start("tools/call", name="there__echo", arguments={})]
        await settle()
        same += [mallory.start("tools/call", name="there__echo", arguments={}) for _ in range(MOST_CALLS + 49)]
        over = [await each.reply() for each in same[MOST_CALLS:]]
        his = bob.start("tools/call", name="there__echo")
        await settle()
        assert all("too many calls are already waiting for an operator" in each.error["message"] for each in over)
        for request in book.requests():
            await book.allow(request, "hour", 60)
        await clock.advance(1)
        assert {(await each.reply()).text for each in (*same[:MOST_CALLS], his)} == {"echo"}


async def test_calls_that_wait_for_an_operator_count_together_at_all_paths_and_across_configurations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approvals, "MOST_CALLS", 3)
    asks = KnownClient(id="mallory", name="mallory", servers=None, permissions=Permissions(everything="ask"))
    config = Config(clients=(asks,), approvals=access.Approvals(by=("operator",), wait=60.0))

    def edited(config: Config) -> Config:
        return msgspec.structs.replace(config, validate_arguments=False)

    async with gateway(config=config, edited=edited, there=LegacyServer({"echo": echo})) as rig:
        mallory, alone = rig.modern("mallory"), rig.modern("mallory", path="/mcp/servers/there")
        waiting = [mallory.start("tools/call", name="there__echo", arguments={})]
        waiting.append(alone.start("tools/call", name="echo", arguments={}))
        await settle()
        await rig.app.reload()
        waiting.append(mallory.start("tools/call", name="there__echo", arguments={}))
        await settle()
        for refused in (await mallory.call("there__echo"), await alone.call("echo")):
            assert "too many calls are already waiting for an operator" in refused.error["message"]
        for each in waiting:
            await each.gone()


# Kept results.


@pytest.mark.parametrize("line", ["x" * 99 + "\n", "ä€😀" * 30 + "\n", "x"])
@pytest.mark.parametrize("asked", ["lines=50000-50009", "chars=6000000-6000099", "bytes=6000000-6000099", "chars=0-9"])
async def test_a_range_of_a_large_result_takes_no_copy_of_all_of_it(line: str, asked: str) -> None:
    kept = OverflowStore(FakeClock())
    whole = line * (8_000_000 // len(line.encode()))
    uri = kept.keep(Client(Principal("ann")), whole, "text/plain")
    tracemalloc.start()
    try:
        kept.read(Client(Principal("ann")), f"{uri}?{asked}")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
        kept.close()


async def test_large_results_of_one_client_take_one_thread_and_another_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    whole = FairThreads.in_thread

    async def noted(turns: FairThreads, whose: str, work: Callable[[], Any], threads: Any = None) -> Any:
        def worked() -> Any:
            order.append(whose.partition("@")[0])
            return work()

        return await whole(turns, whose, worked, threads)

    monkeypatch.setattr(FairThreads, "in_thread", noted)

    async def large(scene: Scene) -> str:
        return "word " * 400_000

    async with gateway(config=Config(limits=Limits(result_limit=1000)), there=LegacyServer({"large": large})) as rig:
        mallory, bob = rig.modern("mallory"), rig.modern("bob")
        await bob.request("tools/list")
        hers = [mallory.start("tools/call", name="there__large") for _ in range(20)]
        his = bob.start("tools/call", name="there__large")
        assert len((await his.reply()).text) < 2000
        for each in hers:
            await each.reply()
    assert order.index("bob") <= 8 and order.count("mallory") >= 40
