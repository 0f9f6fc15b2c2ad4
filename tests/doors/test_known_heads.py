"""A head that was let in is known when it comes again, and means no more than it would mean anew."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from inmemory import LATEST, MODERN, Refusal, Scripted, gateway, said, tools
from virtualtime import FakeClock, settle
from wires import HELLO, Wire, hello, legacy, modern, post

from toolgate.app import App
from toolgate.auth import keys
from toolgate.auth.access import THE_OPERATOR
from toolgate.config import Config, Server
from toolgate.config.access import KnownClient, Permissions
from toolgate.core import mcp
from toolgate.core.model import Call, Done, Outcome
from toolgate.frontends import known_heads, server
from toolgate.frontends.known_heads import KnownHeads, is_plain
from toolgate.frontends.scheduling import Scheduler
from toolgate.policy.base import Policy
from toolgate.state import changes
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings
from toolgate.upstreams.links.memory import MemoryLink

ADA, BOB = "key-of-ada-that-is-long", "key-of-bob-that-is-long"


def client(id: str, key: str = "", **more: Any) -> KnownClient:
    return KnownClient(id=id, name=id, key=key, **{"servers": "all", **more})


CONFIG = Config(clients=(client("ada", ADA), client("bob", BOB, servers="none")))


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}"


def call(id: Any = 1, *lines: str, tool: str = "echo", **arguments: Any) -> bytes:
    return modern(id, "tools/call", {"name": f"there__{tool}", "arguments": arguments}, *lines)


def there() -> Scripted:
    return Scripted(tools_list=tools("echo", "slow"), tools_call=lambda asked: said(str(asked.get("arguments"))))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of the requests whose heads were known, and that no parser has seen."""
    seen: list[bytes] = []
    made = server._KnownCycle.__init__  # pyright: ignore[reportPrivateUsage]

    def seen_first(self: Any, protocol: Any, known: Any, came: Any, connection: Any) -> None:
        seen.append(came.body)
        made(self, protocol, known, came, connection)

    monkeypatch.setattr(server._KnownCycle, "__init__", seen_first)  # pyright: ignore[reportPrivateUsage]
    return seen


@asynccontextmanager
async def served(config: Config = Config(), **more: Any) -> AsyncIterator[tuple[App, Scripted]]:
    script = there()
    async with gateway(config=config, scripts={"there": script}, **more) as app:
        yield app, script


async def test_the_second_request_with_a_head_is_known_and_answered_alike(known: list[bytes]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        first = await wire.ask(call(1, a=1))
        second = await wire.ask(call(22, a="longer"))
        other = await Wire(app).ask(call(3))
        assert (first.result["content"], second.result["content"]) == (
            [{"type": "text", "text": "{'a': 1}"}],
            [{"type": "text", "text": "{'a': 'longer'}"}],
        )
        assert (first.last["id"], second.last["id"], other.last["id"]) == (1, 22, 3)
        assert first.headers == {**second.headers, "content-length": first.headers["content-length"]}
        assert [json.loads(body)["id"] for body in known] == [22, 3]


async def test_a_head_is_known_as_well_if_its_body_comes_behind_it(known: list[bytes]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        for id in (1, 2, 3):
            head, end, body = call(id, a=id).partition(b"\r\n\r\n")
            wire.send(head + end)
            await settle()
            answer = await wire.ask(body)
            assert (answer.status, answer.last["id"]) == (200, id)
        assert (await wire.ask(call(4))).last["id"] == 4
        assert [json.loads(body)["id"] for body in known] == [2, 3, 4]


@pytest.mark.parametrize("at", [1, 9, 40])
async def test_a_body_that_comes_behind_its_head_in_several_pieces_is_answered(known: list[bytes], at: int) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        assert (await wire.ask(call(1))).status == 200
        head, end, body = call(2).partition(b"\r\n\r\n")
        for piece in (head + end, body[:at]):
            wire.send(piece)
            await settle()
        assert (await wire.ask(body[at:])).last["id"] == 2
        assert not known


@pytest.mark.parametrize("spelled", ["Expect", "EXPECT"])
async def test_a_head_that_waits_to_be_asked_for_its_body_is_asked(spelled: str) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        head, end, body = call(1, f"{spelled}: 100-continue").partition(b"\r\n\r\n")
        wire.send(head + end)
        await settle()
        assert wire.unread.startswith(b"HTTP/1.1 100 Continue")
        assert (await wire.ask(body)).last["id"] == 1


async def test_two_requests_of_which_the_second_comes_with_the_body_of_the_first_are_both_answered() -> None:
    async with served() as (app, _):
        wire = Wire(app)
        head, end, body = call(1).partition(b"\r\n\r\n")
        wire.send(head + end)
        await settle()
        wire.send(body + call(2))
        assert [(await wire.answer()).last["id"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("before", [0, 2])
async def test_a_head_whose_body_does_not_come_ends_its_connection(before: int) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        for id in range(before):
            await wire.ask(call(id))
        head, end, _ = call(9).partition(b"\r\n\r\n")
        wire.send(head + end)
        await asyncio.sleep(server.HEAD_PATIENCE - 1)
        assert not wire.is_over
        await asyncio.sleep(2)
        assert wire.is_over


async def test_a_legacy_request_is_known_by_its_session(known: list[bytes]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        session = (await wire.ask(hello())).headers["mcp-session-id"]
        for id in (1, 2, 3):
            answer = await wire.ask(legacy(id, "tools/call", {"name": "there__echo"}, session=session))
            assert (answer.status, answer.last["id"], answer.headers["mcp-session-id"]) == (200, id, session)
        assert len(known) == 2


async def test_a_session_that_has_ended_is_not_found_by_a_known_head(known: list[bytes]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        session = (await wire.ask(hello())).headers["mcp-session-id"]
        for id in (1, 2):
            await wire.ask(legacy(id, "ping", session=session))
        app.sessions.end(app.sessions.all()[0])
        assert (await wire.ask(legacy(3, "ping", session=session))).status == 404
        assert len(known) == 2


async def test_what_the_body_says_is_held_against_a_known_head_each_time(known: list[bytes]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        assert (await wire.ask(call(1))).status == 200
        other = call(2).replace(b'"there__echo"', b'"there__slow"')
        assert other.partition(b"\r\n\r\n")[0] == call(2).partition(b"\r\n\r\n")[0]
        answer = await wire.ask(other)
        assert (answer.status, answer.error["code"]) == (400, -32020)
        head, end, body = call(3).partition(b"\r\n\r\n")
        assert (await wire.ask(head + end + body.replace(b"tools/call", b"tools/list"))).status == 400
        assert len(known) == 2


async def test_a_revoked_key_is_none_however_well_its_head_is_known(known: list[bytes]) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    id, made = await keys.create(store, "ada", clock.wall())
    async with served(CONFIG, store=store, clock=clock) as (app, _):
        wire = Wire(app)
        for number in (1, 2):
            assert (await wire.ask(call(number, bearer(made)))).status == 200
        await keys.revoke(store, id)
        await changes.tell(store, "keys")
        await clock.advance(0.6)
        assert not len(app.http.known_heads)
        assert (await wire.ask(call(3, bearer(made)))).status == 401
        assert len(known) == 1


async def test_a_key_whose_time_is_over_is_none_however_well_its_head_is_known(known: list[bytes]) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    _, made = await keys.create(store, "ada", clock.wall(), 60)
    async with served(CONFIG, store=store, clock=clock) as (app, _):
        wire = Wire(app)
        for number in (1, 2):
            assert (await wire.ask(call(number, bearer(made)))).status == 200
        await clock.advance(60)
        assert (await wire.ask(call(3, bearer(made)))).status == 401
        assert len(known) == 2, "its head was known, and passed the guards again"


async def test_another_configuration_holds_for_known_heads_at_once(known: list[bytes]) -> None:
    configs = [CONFIG]
    settings = Settings(lambda: configs[0], {})
    async with served(CONFIG, settings=settings) as (app, script):
        wire = Wire(app)
        for number in (1, 2):
            assert (await wire.ask(call(number, bearer(ADA)))).status == 200
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config, clients=(client("bob", ADA),))
        await app.reload()
        assert (await wire.ask(call(3, bearer(ADA)))).status == 200
        assert wire.protocol._connection.principal.client == "bob"
        configs[0] = msgspec.structs.replace(configs[0], clients=(client("bob", BOB),))
        await app.reload()
        asked = len(script.requests)
        assert (await wire.ask(call(4, bearer(ADA)))).status == 401
        assert len(script.requests) == asked


async def test_what_was_found_out_before_another_configuration_is_not_remembered_after_it() -> None:
    """A head comes before, and is found out while, the configuration becomes another."""
    async with served() as (app, _):
        heads: KnownHeads[str] = app.http.known_heads
        came = heads.parted("192.0.2.1", call(1))
        assert came
        heads.forget()
        heads.learn(came, "as before", "ann")
        assert came.head not in heads.by_head
        again = heads.parted("192.0.2.1", call(2))
        assert again
        heads.learn(again, "as now", "ann")
        assert heads.by_head[came.head] == "as now"


async def test_a_request_that_waits_for_its_turn_is_judged_by_what_holds_then(known: list[bytes]) -> None:
    configs = [CONFIG]
    settings = Settings(lambda: configs[0], {})
    async with served(CONFIG, settings=settings) as (app, script):
        wire = Wire(app)
        assert (await wire.ask(call(1, bearer(ADA)))).status == 200
        wire.send(call(2, bearer(ADA)))  # its task has not begun
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config, clients=(client("bob", BOB),))
        app._prepared(configs[0])()  # pyright: ignore[reportPrivateUsage]
        asked = len(script.requests)
        assert (await wire.answer()).status == 401
        assert len(known) == 1 and len(script.requests) == asked


async def test_a_client_that_shows_its_key_for_the_first_time_is_not_taken_for_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes no turns with itself; with somebody else it does."""
    took_turns: list[str] = []
    start = Scheduler.start

    def seen(self: Scheduler, key: str, run: Any) -> Any:
        took_turns.append(key)
        return start(self, key, run)

    monkeypatch.setattr(Scheduler, "start", seen)
    config = msgspec.structs.replace(CONFIG, clients=(client("ann", ADA), client("bob", BOB)))
    async with served(config) as (app, _):
        wire = Wire(app)
        for number in range(4):
            assert (await wire.ask(call(number, bearer(ADA)))).status == 200
        assert not took_turns
        assert (await Wire(app).ask(call(1, bearer(BOB)))).status == 200
        assert (await wire.ask(call(5, bearer(ADA)))).status == 200
        assert len(took_turns) == 2


# One client's head is no other's.


async def test_the_same_head_from_another_address_is_somebody_elses(known: list[bytes]) -> None:
    async with served() as (app, _):
        here, far = Wire(app), Wire(app, "192.0.2.7")
        for number in (1, 2):
            await here.ask(call(number))
        await far.ask(call(3))
        assert [json.loads(body)["id"] for body in known] == [2]
        principals = [each.protocol._connection.principal for each in (here, far)]
        assert [each.address for each in principals] == ["127.0.0.1", "192.0.2.7"]
        assert [each.is_here for each in principals] == [True, False]


async def test_two_requests_in_one_piece_do_not_lend_each_other_their_heads(known: list[bytes]) -> None:
    """The first one is of who may, and the second of who may not; and the other way round."""
    async with served(CONFIG) as (app, _):
        wire = Wire(app)
        may, may_not = call(1, bearer(ADA)), call(2, bearer(BOB))
        for pair in ((may, may_not), (may_not, may)):
            for _ in range(3):
                wire.send(b"".join(pair))
                answers = [await wire.answer() for _ in pair]
                assert [answer.status for answer in answers] == [200 if each is may else 400 for each in pair]
        assert not known
        assert (await wire.ask(may)).status == 200
        assert (await wire.ask(may_not)).status == 400
        assert not known
        assert (await wire.ask(may)).status == 200
        assert (await wire.ask(may_not)).status == 400
        assert known == [each.partition(b"\r\n\r\n")[2] for each in (may, may_not)]


@pytest.mark.parametrize(
    "lines",
    [
        ("Connection: close",),
        ("Connection: keep-alive, close",),
        ("Expect: 100-continue",),
        ("Connection: keep-alive", "Connection: keep-alive"),
        ("TE: trailers",),
    ],
)
async def test_what_is_more_than_a_message_and_its_answer_is_never_known(lines: tuple[str, ...]) -> None:
    async with served() as (app, _):
        await Wire(app).ask(call(1, *lines))
        assert not len(app.http.known_heads)


async def test_what_the_guards_refuse_is_never_known() -> None:
    async with served(CONFIG) as (app, _):
        for lines in ((), (bearer("wrong"),), (bearer(ADA), "Origin: https://evil.example"), (bearer(ADA), "Host: b")):
            assert (await Wire(app).ask(call(1, *lines))).status in (400, 401, 403)
        assert (await Wire(app).ask(post(b"{}", bearer(ADA), path="/nowhere"))).status == 404
        assert not len(app.http.known_heads)


async def test_two_lengths_of_one_body_are_no_request() -> None:
    async with served() as (app, _):
        wire = Wire(app)
        assert (await wire.ask(call(1))).status == 200
        doubled = call(2).replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\n", 1)
        assert (await wire.ask(doubled)).status == 400
        assert wire.is_over


async def test_what_an_embedding_program_decides_is_decided_each_time(known: list[bytes]) -> None:
    asked: list[str] = []

    async def identify(_headers: Any, address: str, _path: str) -> Any:
        asked.append(address)
        return THE_OPERATOR

    async with served(identify=identify) as (app, _):
        wire = Wire(app)
        for number in (1, 2, 3):
            assert (await wire.ask(call(number))).status == 200
        assert len(asked) == 3 and not known


# What is another one each time.


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[bytes, bytes]]:
    """The headers of what servers are sent."""
    sent: list[dict[bytes, bytes]] = []
    send = MemoryLink.send_now

    def seen(self: Any, data: bytes, headers: Any, origin: int, whose: str) -> bool:
        sent.append(dict(headers))
        return send(self, data, headers, origin, whose)

    monkeypatch.setattr(MemoryLink, "send_now", seen)
    return sent


async def test_a_head_is_known_whatever_its_trace_is_which_its_server_gets(
    known: list[bytes], sent: list[dict[bytes, bytes]]
) -> None:
    there_too = Server(id="there", name="there", type="stdio", command="memory", forward_headers=("traceparent",))
    script = there()
    async with gateway(there_too, scripts={"there": script}) as app:
        wire = Wire(app)
        for number in range(6):
            answer = await wire.ask(
                call(number, f"Traceparent: 00-{number:032x}-{number:016x}-01", f"X-Request-Id: {number}")
            )
            assert (answer.status, answer.last["id"]) == (200, number)
        assert len(known) == 5 and len(app.http.known_heads) == 1
        calls = [headers for headers in sent if b"traceparent" in headers]
        assert [headers[b"traceparent"] for headers in calls] == [b"00-%032x-%016x-01" % (n, n) for n in range(6)]


@pytest.mark.parametrize("value", ["a\tb", "é", "", "x" * 2000])
async def test_a_trace_that_is_none_is_a_part_of_the_head(value: str) -> None:
    heads: KnownHeads[int] = KnownHeads()
    one, other = (heads.parted("192.0.2.1", call(1, f"Traceparent: {each}")) for each in (value, "00-1-1-01"))
    assert one and other and one.head != other.head and not one.varying


@pytest.mark.parametrize("name", sorted(mcp.CHANGING_HEADERS))
async def test_a_header_by_which_requests_are_named_may_be_another_each_time(
    name: str, known: list[bytes], sent: list[dict[bytes, bytes]]
) -> None:
    there_too = Server(id="there", name="there", type="stdio", command="memory", forward_headers=(name,))
    values = ("Sun, 29 Nov 2026 22:00:00 GMT", "k=v;p=1,q=2", "00-1-1-01", "x")
    async with gateway(there_too, scripts={"there": there()}) as app:
        wire = Wire(app)
        for value in values:
            answer = await wire.ask(call(1, f"{name.upper()}: {value} "))
            assert (answer.status, answer.last["id"]) == (200, 1)
        assert len(known) == 3 and len(app.http.known_heads) == 1
        assert [headers[name.encode()] for headers in sent if name.encode() in headers] == [*map(str.encode, values)]


async def test_two_traces_in_one_head_are_a_part_of_it() -> None:
    heads: KnownHeads[int] = KnownHeads()
    one, other = (heads.parted("192.0.2.1", call(1, "traceparent: a", f"Traceparent: {each}")) for each in "bc")
    assert one and other and one.head != other.head and not one.varying


# Torn, in order, and away.


async def test_a_known_head_is_answered_alike_however_it_is_torn(known: list[bytes]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        await wire.ask(call(1))
        request = call(2, a="x")
        body = request.index(b"\r\n\r\n") + 4
        for cut in (*range(1, len(request), 7), body):
            known.clear()
            answer = await wire.ask(request[:cut], request[cut:])
            assert (answer.status, answer.last["id"]) == (200, 2)
            assert bool(known) == (cut == body)
        known.clear()
        assert (await wire.ask(request)).last["id"] == 2 and len(known) == 1


async def test_what_comes_behind_a_known_request_is_answered_behind_it(known: list[bytes]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        await wire.ask(call(1, tool="slow"))
        script.answers["tools/call"] = ...
        wire.send(call(2, tool="slow"))
        await settle()
        wire.send(legacy(3, "ping"), legacy(4, "ping"))
        await settle()
        assert not wire.unread
        script.answer_last(said("late"))
        assert [(await wire.answer()).last["id"] for _ in range(3)] == [2, 3, 4]
        assert len(known) == 1


async def test_a_client_that_leaves_in_a_known_request_ends_its_call(known: list[bytes]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        await wire.ask(call(1, tool="slow"))
        script.answers["tools/call"] = ...
        wire.send(call(2, tool="slow"))
        await settle()
        await wire.leave()
        await FakeClock().advance(0.1)
        assert script.requests[-1]["method"] == "notifications/cancelled"
        assert len(known) == 1 and not app.http.under_way()


async def test_progress_makes_a_stream_of_a_known_request(known: list[bytes]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": "p"}
        meta |= {"io.modelcontextprotocol/clientCapabilities": {}}

        def asked(id: int) -> bytes:
            return modern(id, "tools/call", {"name": "there__echo", "arguments": {}, "_meta": meta})

        await wire.ask(asked(1))
        script.answers["tools/call"] = ...
        wire.send(asked(2))
        await settle()
        token = script.requests[-1]["params"]["_meta"]["progressToken"]
        script.tell("notifications/progress", progressToken=token, progress=1)
        script.answer_last(said("done"))
        answer = await wire.answer()
        assert answer.is_stream and len(known) == 1
        assert [each.get("method", each.get("id")) for each in answer.messages] == ["notifications/progress", 2]


async def test_a_server_that_ends_answers_a_known_request_and_closes(known: list[bytes]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        await wire.ask(call(1, tool="slow"))
        script.answers["tools/call"] = ...
        wire.send(call(2, tool="slow"))
        await settle()
        wire.protocol.shutdown()
        script.answer_last(said("done"))
        answer = await wire.answer()
        assert answer.headers["connection"] == "close" and wire.is_over and len(known) == 1


# Calls that no task works for, until something else is to be done.


def tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def begun(app: App, wire: Wire, script: Scripted, era: str, *lines: str) -> Any:
    """A call that waits for its server, whose head is known; a function that makes another one of it."""
    session = ""
    if era == "legacy":
        session = (await wire.ask(hello())).headers["mcp-session-id"]

    def ask(id: Any) -> bytes:
        if era == "legacy":
            return legacy(id, "tools/call", {"name": "there__slow"}, *lines, session=session)
        return call(id, *lines, tool="slow")

    for id in (0, 1):  # what its name means is found out by the first, and kept by the second
        await wire.ask(ask(id))
    script.answers["tools/call"] = ...
    before = tasks()
    wire.send(ask(2))
    await settle()
    assert tasks() == before and len(app.http._lane.calls) == 1  # pyright: ignore[reportPrivateUsage]
    return ask


ERA = pytest.mark.parametrize("era", ["modern", "legacy"])


@ERA
async def test_a_call_that_only_waits_for_its_server_has_no_task(era: str, known: list[bytes]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        ask = await begun(app, wire, script, era)
        script.answer_last(said("done"))
        answer = await wire.answer()
        assert (answer.status, answer.last["id"], answer.result["content"][0]["text"]) == (200, 2, "done")
        assert ("mcp-session-id" in answer.headers) == (era == "legacy")
        script.answers["tools/call"] = Refusal(-32000, "no")
        again = await wire.ask(ask(3))
        assert (again.error["code"], again.error["message"], again.last["id"]) == (-32000, "no", 3)
        assert not app.http._unanswered._by  # pyright: ignore[reportPrivateUsage]


PROMPT = {"messages": [{"role": "user", "content": {"type": "text", "text": "good day"}}]}
CONTENTS = {"contents": [{"uri": "docs://a", "text": "hello"}, {"uri": "docs://b", "text": "bye"}]}


def with_more() -> Scripted:
    return Scripted(
        prompts_list={"prompts": [{"name": "greet"}]},
        prompts_get=PROMPT,
        resources_list={"resources": [{"uri": "docs://a", "name": "a"}]},
        resources_read=CONTENTS,
    )


@ERA
@pytest.mark.parametrize(
    ("method", "named", "lists", "answer"),
    [
        ("prompts/get", {"name": "there__greet"}, "prompts/list", PROMPT),
        ("resources/read", {"uri": "there+docs://a"}, "resources/list", CONTENTS),
    ],
)
async def test_a_prompt_and_a_resource_that_are_listed_need_no_task_either(
    era: str, method: str, named: dict[str, str], lists: str, answer: dict[str, Any]
) -> None:
    script = with_more()
    async with gateway(config=Config(), scripts={"there": script}) as app:
        wire, session = Wire(app), ""
        if era == "legacy":
            session = (await wire.ask(hello())).headers["mcp-session-id"]

        def ask(id: int, method: str = method, named: dict[str, str] = named) -> bytes:
            mcp_name = [f"Mcp-Name: {named['uri']}"] if "uri" in named else []
            return (
                legacy(id, method, named, session=session) if era == "legacy" else modern(id, method, named, *mcp_name)
            )

        await wire.ask(ask(0, lists, {}))
        first = await wire.ask(ask(1))
        await wire.ask(ask(2))
        script.answers[method] = ...
        before = tasks()
        wire.send(ask(3))
        await settle()
        assert tasks() == before and len(app.http._lane.calls) == 1  # pyright: ignore[reportPrivateUsage]
        script.answer_last(answer)
        again = await wire.answer()
        assert (again.status, again.last["id"], again.result) == (200, 3, first.result)
        script.answers[method] = Refusal(-32002, "gone")
        assert (await wire.ask(ask(4))).error["message"] == "gone"


async def test_a_result_that_a_policy_changes_says_that_it_is_complete_all_the_same(known: list[bytes]) -> None:
    class Changes(Policy):
        name = "changes"

        def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
            assert isinstance(outcome, Done)
            return msgspec.structs.replace(outcome, body=b'{"content":[]}')

    def ask(id: int) -> bytes:
        return modern(id, "tools/call", {"name": "there__echo", "arguments": {}})

    script = Scripted(MODERN, tools_list=tools("echo"), tools_call=said("hello") | {"resultType": "complete"})
    async with gateway(scripts={"there": script}, policies=[Changes()]) as app:
        wire = Wire(app)
        for id in (1, 2, 3):
            result = (await wire.ask(ask(id))).result
            assert (result["content"], result["resultType"]) == ([], "complete")
    assert known


async def test_a_resource_that_is_turned_off_is_none_however_well_it_is_known(known: list[bytes]) -> None:
    def of(verdict: Any) -> Config:
        permissions = Permissions(resources={"there+docs://a": verdict})
        return Config(clients=(client("ada", ADA, permissions=permissions),))

    def ask(id: int) -> bytes:
        uri = "there+docs://a"
        return modern(id, "resources/read", {"uri": uri}, f"Mcp-Name: {uri}", bearer(ADA))

    script, configs = with_more(), [of("allow")]
    settings = Settings(lambda: configs[0], {})
    async with gateway(config=configs[0], scripts={"there": script}, settings=settings) as app:
        wire = Wire(app)
        await wire.ask(modern(0, "resources/list", {}, bearer(ADA)))
        for id in (1, 2, 3):
            assert (await wire.ask(ask(id))).result["contents"][0]["text"] == "hello"
        now = app.gateway.snapshot.config
        configs[0] = msgspec.structs.replace(now, clients=of("off").clients)
        await app.reload()
        asked = len(script.requests)
        refused = (await wire.ask(ask(4))).error
        assert refused == (await Wire(app).ask(ask(5))).error and len(script.requests) == asked


@ERA
async def test_a_call_that_takes_long_has_one_after_a_moment(era: str) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        await begun(app, wire, script, era)
        before = tasks()
        await FakeClock().advance(0.5)
        assert len(tasks() - before) >= 1 and not app.http._lane.calls  # pyright: ignore[reportPrivateUsage]
        await FakeClock().advance(16)
        assert b"text/event-stream" in wire.unread
        script.answer_last(said("late"))
        answer = await wire.answer()
        assert answer.last["id"] == 2 and answer.last["result"]["content"][0]["text"] == "late"


@ERA
async def test_a_key_that_is_revoked_ends_a_call_that_has_no_task(era: str) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    id, made = await keys.create(store, "ada", clock.wall())
    async with served(CONFIG, store=store, clock=clock) as (app, script):
        wire = Wire(app)
        if era == "legacy":
            session = (await wire.ask(post(HELLO, bearer(made)))).headers["mcp-session-id"]
            asked = [legacy(n, "tools/call", {"name": "there__slow"}, bearer(made), session=session) for n in (0, 1, 2)]
        else:
            asked = [call(n, bearer(made), tool="slow") for n in (0, 1, 2)]
        for request in asked[:2]:
            await wire.ask(request)
        script.answers["tools/call"] = ...
        wire.send(asked[2])
        await settle()
        assert len(app.http._lane.calls) == 1  # pyright: ignore[reportPrivateUsage]
        await keys.revoke(store, id)
        app._look_at_keys()  # pyright: ignore[reportPrivateUsage]
        answer = await wire.answer()
        assert answer.status == 401 or "error" in answer.last
        await clock.advance(0.1)
        assert script.requests[-1]["method"] == "notifications/cancelled"
        assert not app.http._active_requests.all and not app.http._unanswered._by  # pyright: ignore[reportPrivateUsage]


async def test_a_cancelled_call_that_has_no_task_is_cancelled_at_its_server() -> None:
    async with served() as (app, script):
        wire, other = Wire(app), Wire(app)
        await begun(app, wire, script, "legacy")
        session = app.sessions.all()[0].id
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        lines = f"MCP-Protocol-Version: {LATEST}", f"Mcp-Session-Id: {session}"
        assert (await other.ask(post(told, *lines))).status == 202
        assert (await wire.answer()).error["message"] == "The request was cancelled"
        await settle()
        assert script.requests[-1]["method"] == "notifications/cancelled"


async def test_an_id_of_a_call_that_has_no_task_is_in_use() -> None:
    async with served() as (app, script):
        wire, other = Wire(app), Wire(app)
        ask = await begun(app, wire, script, "legacy")
        assert "already in use" in (await other.ask(ask(2))).error["message"]
        script.answer_last(said("done"))
        assert (await wire.answer()).last["id"] == 2


@ERA
async def test_a_gateway_that_ends_waits_for_calls_that_have_no_task(era: str) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        await begun(app, wire, script, era)
        draining = asyncio.ensure_future(app.drain())
        await settle()
        assert not draining.done()
        script.answer_last(said("done"))
        assert (await wire.answer()).last["id"] == 2
        await draining


@ERA
async def test_what_a_call_that_has_no_task_leaves_is_nothing(era: str) -> None:
    """Not even for the collector of garbage."""
    async with served() as (app, script):
        wire = Wire(app)
        ask = await begun(app, wire, script, era)
        script.answer_last(said("done"))
        await wire.answer()
        script.answers["tools/call"] = said("at once")
        for id in range(3, 9):
            await wire.ask(ask(id))
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for id in range(9, 19):
                await wire.ask(ask(id))
            assert not gc.collect(), gc.garbage
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


# How much is kept.


def test_of_too_many_heads_whoever_has_most_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_heads, "MOST", 10)
    heads: KnownHeads[int] = KnownHeads()
    mine = heads.parted("192.0.2.1", call(0))
    assert mine
    heads.learn(mine, 0, "ann")
    for number in range(100):
        other = heads.parted("192.0.2.1", call(1, f"X: {number}"))
        assert other
        heads.learn(other, number, "bob")
    assert len(heads) == 10 and heads.by_head[mine.head] == 0


def test_heads_are_kept_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_heads, "MOST_BYTES", 10_000)
    heads: KnownHeads[int] = KnownHeads()
    for number in range(100):
        request = heads.parted("192.0.2.1", call(1, f"X: {number:01000}"))
        assert request
        heads.learn(request, number, "bob")
    assert 5 < len(heads) < 10


class Looked:
    """For the length of a body, in heads: how often."""

    def __init__(self) -> None:
        self.times = 0
        self._pattern = known_heads._length  # pyright: ignore[reportPrivateUsage]

    def search(self, *given: Any) -> Any:
        self.times += 1
        return self._pattern.search(*given)


def of_length(head: str, length: int) -> bytes:
    return post(b"x" * length, f"X: {head}")


@pytest.mark.parametrize("heads_of_bob", [1, 3])
def test_however_many_heads_of_one_client_were_taken_apart_that_of_another_need_not_be_again(
    heads_of_bob: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_heads, "MOST_BYTES", 20_000)
    monkeypatch.setattr(known_heads, "_length", looked := Looked())
    heads: KnownHeads[str] = KnownHeads()

    def came(whose: str, data: bytes) -> None:
        found = heads.parted("192.0.2.1", data)
        assert found and len(found.body) == len(data.partition(b"\r\n\r\n")[2])
        if found.head not in heads.by_head:
            heads.learn(found, whose, whose)
        assert heads.by_head[found.head] == whose

    for length in range(1, 400):  # some 60 kB of heads that are one but for the length of the body
        for head in range(heads_of_bob):
            came("bob", of_length(f"bob {head}", length))
    came("ann", of_length("ann", 7))
    came("ann", of_length("ann", 7))
    before = looked.times
    for _ in range(5):
        came("ann", of_length("ann", 7))
    assert looked.times == before
    assert heads._apart_size <= 20_000  # pyright: ignore[reportPrivateUsage]
    assert heads._apart_size == sum(len(head) for _, head in heads._apart)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "data",
    [
        call(1)[:-1],
        call(1) + b" ",
        call(1).replace(b"Content-Length: ", b"Content-Length:  "),
        call(1).replace(b"Content-Length: ", b"Content-Length: 0"),
        call(1).replace(b"Content-Length: ", b"Content-Length : "),
        call(1, "X: " + "x" * known_heads.LONGEST),
        call(1, a="x" * known_heads.LONGEST_BODY),
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"",
    ],
)
def test_what_is_not_one_whole_short_request_is_parsed(data: bytes) -> None:
    heads: KnownHeads[int] = KnownHeads()
    assert heads.parted("192.0.2.1", data) is None


def test_a_plain_request_is_of_http_1_1_and_says_nothing_of_its_connection_or_that_it_stays() -> None:
    assert is_plain("1.1", [(b"host", b"x")])
    assert is_plain("1.1", [(b"connection", b"Keep-Alive")])
    assert not is_plain("1.0", [(b"connection", b"keep-alive")])
    assert not is_plain("1.1", [(b"transfer-encoding", b"chunked")])
