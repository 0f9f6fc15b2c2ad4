"""Live traffic: who watches sees calls as they end, and nothing else; nobody pays for it who is not watched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from doors.issuers import KEYS, client
from inmemory import GREETER, THE_SOCKET, Exchange, Refusal, Scripted, Visitor, gateway, said, tools
from reader import Reader, signed_in
from virtualtime import FakeClock

from toolgate.app import App
from toolgate.config import Audit, Config
from toolgate.config.access import Permissions
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.frontends.streams import Response
from toolgate.frontends.web import live
from toolgate.state.audit import Trail
from toolgate.telemetry import traffic

SECRET = "hunter2-hunter2-hunter2"
TWO = Config(
    clients=(
        client("ann", key=KEYS["ada"], permissions=Permissions(tools={"there__delete": "off"})),
        client("bob", key=KEYS["bob"]),
        client("root", key=KEYS["carl"], admin=True),
    )
)


def there() -> Scripted:
    return Scripted(tools_list=tools("echo", "delete"), tools_call=said("done"))


@asynccontextmanager
async def served(config: Config = TWO, **more: Any) -> AsyncGenerator[App]:
    async with gateway(config=config, scripts={"there": there(), "other": there()}, **more) as app:
        yield app


async def call(app: App, name: str, who: str = "ada", **arguments: Any) -> None:
    visitor = Visitor(app, authorization=f"Bearer {KEYS[who]}")
    await visitor.ask_modern("tools/call", name=name, arguments=arguments)


async def watched(app: App, reader: Reader, **query: str) -> Exchange:
    """A page that has asked for what comes."""
    begun = reader.visitor.begin(
        "GET", b"", path="/ui/traffic/events", query_string=urlencode(query).encode(), headers={"cookie": reader.cookie}
    )
    await pass_time(app)
    return begun


async def pass_time(app: App, seconds: float = 2 * live.LOOK) -> None:
    assert isinstance(app.clock, FakeClock)
    await app.clock.advance(seconds)


def calls(watching: Exchange) -> list[dict[str, Any]]:
    return [each for portion in watching.so_far.messages for each in portion["calls"]]


@pytest.mark.promise("b.operator.live")
async def test_who_watches_sees_calls_as_they_end_without_their_results() -> None:
    async with served() as app:
        reader = await signed_in(app)
        assert "Live traffic" in (await reader.open("/ui/traffic")).text
        await call(app, "there__echo")
        watching = await watched(app, reader)
        assert not calls(watching)
        await call(app, "there__echo", text="private")
        await call(app, "there__delete")
        await pass_time(app)
        first, second = calls(watching)
        assert (first["who"], first["server"], first["target"], first["kind"]) == (
            "client:ann",
            "there",
            "echo",
            "tools",
        )
        assert (first["decision"], first["outcome"], first["bytes_in"]) == (
            "allow",
            "done",
            len(json.dumps({"text": "private"})),
        )
        assert (second["decision"], second["code"]) == ("deny", "ACCESS_DENIED")
        assert b"private" not in watching.so_far.body and b'"done"}]' not in watching.so_far.body
        assert watching.so_far.headers["x-content-type-options"] == "nosniff"
        await watching.gone()


@pytest.mark.promise("b.operator.live")
async def test_calls_that_take_long_are_seen_before_they_end_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MOST_UNDER_WAY", 1)
    slow = Scripted(tools_list=tools("echo"), tools_call=...)
    async with gateway(config=TWO, scripts={"there": slow}) as app:
        reader = await signed_in(app)
        watching, other = await watched(app, reader), await watched(app, reader, only="failed")
        first = asyncio.ensure_future(call(app, "there__echo", text="private"))
        await pass_time(app, traffic.LONG / 2)
        assert not watching.so_far.messages
        await pass_time(app, traffic.LONG)
        second = asyncio.ensure_future(call(app, "there__echo", "bob"))
        await pass_time(app, 3 * traffic.LONG)
        (portion,) = watching.so_far.messages  # what stays as it is, is told once
        (seen,) = portion["under_way"]
        assert (seen["who"], seen["server"], seen["target"], seen["kind"]) == ("client:ann", "there", "echo", "tools")
        assert not portion["calls"] and b"private" not in watching.so_far.body
        for asked in [each["id"] for each in slow.requests if each["method"] == "tools/call"]:
            slow.say(json.dumps({"jsonrpc": "2.0", "id": asked, "result": said("done")}).encode())
        await asyncio.gather(first, second)
        await pass_time(app)
        assert watching.so_far.last["under_way"] == [] and len(calls(watching)) == 2
        assert not other.so_far.messages
        await watching.gone()
        await other.gone()
        assert not app._frontend_deps.traffic._begun


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"client": "ann"}, ["there echo", "there delete", "other echo"]),
        ({"server": "other"}, ["other echo"]),
        ({"tool": "ele"}, ["there delete"]),
        ({"kind": "tools", "client": "bob"}, ["there echo"]),
        ({"kind": "prompts"}, []),
        ({"only": "denied"}, ["there delete"]),
        ({"only": "failed"}, ["there delete"]),
    ],
)
async def test_filters_choose_among_them(query: dict[str, str], found: list[str]) -> None:
    async with served() as app:
        reader = await signed_in(app)
        watching = await watched(app, reader, **query)
        for name, who in [
            ("there__echo", "ada"),
            ("there__delete", "ada"),
            ("other__echo", "ada"),
            ("there__echo", "bob"),
        ]:
            await call(app, name, who)
        await pass_time(app)
        assert [f"{each['server']} {each['target']}" for each in calls(watching)] == found
        await watching.gone()


async def test_a_filter_that_there_is_not_is_refused() -> None:
    async with served() as app:
        reader = await signed_in(app)
        assert (await (await watched(app, reader, kind="nonsense")).response()).status == 400
        assert (await (await watched(app, reader, tool="x" * 201)).response()).status == 400


async def test_arguments_are_seen_where_the_audit_has_them_too_and_without_secrets() -> None:
    clock, redactor = FakeClock(), Redactor()
    redactor.learn([SECRET])
    config = msgspec.structs.replace(TWO, audit=Audit(arguments="full"))
    async with served(config, clock=clock, audit=Trail(None, clock, None, redactor)) as app:
        watching = await watched(app, await signed_in(app))
        await call(app, "there__echo", text=f"a {SECRET}")
        await call(app, "there__echo", text="long" * 10_000)
        await pass_time(app)
        short, long = calls(watching)
        assert "a " in short["arguments"] and SECRET not in watching.so_far.body.decode()
        assert len(long["arguments"]) == traffic.LONGEST_ARGUMENTS
        await watching.gone()


async def test_who_is_watched_pays_for_it_and_nobody_else() -> None:
    async with served() as app:
        route = app.gateway.route("/mcp")

        def passed() -> list[str]:
            return [hook.name for plan in route.plans._plans.values() for hook in plan.hooks]

        await call(app, "there__echo")
        await call(app, "there__echo")
        assert passed() and "traffic" not in passed()
        watching = await watched(app, await signed_in(app))
        await call(app, "there__echo")
        await call(app, "there__echo")
        assert "traffic" in passed()
        await watching.gone()
        await call(app, "there__echo")
        assert passed() and "traffic" not in passed()


async def test_who_reads_too_slowly_is_told_how_much_was_lost() -> None:
    async with served() as app:
        watching = await watched(app, await signed_in(app))
        for _ in range(traffic.MOST_WAITING + 7):
            await call(app, "there__echo")
        await pass_time(app)
        (portion,) = watching.so_far.messages
        assert len(portion["calls"]) == traffic.MOST_WAITING and portion["lost"] == 7
        await call(app, "there__echo")
        await pass_time(app)
        assert watching.so_far.last["lost"] == 0
        await watching.gone()


async def test_only_so_many_watch_at_once() -> None:
    async with served() as app:
        reader = await signed_in(app)
        all = [await watched(app, reader) for _ in range(traffic.MOST_WATCHERS)]
        refused = await (await watched(app, reader)).response()
        assert refused.status == 429 and b"Too many watch" in refused.body
        for each in all:
            await each.gone()
        assert not app._frontend_deps.traffic.is_watched


async def test_who_is_signed_in_no_more_is_told_nothing_more() -> None:
    async with served() as app:
        reader = Reader(app)
        await reader.open("/ui/login")
        await reader.press("/ui/login", key=KEYS["carl"])
        watching = await watched(app, reader)
        app.http.web.end_unknown(lambda principal: principal.client != "root")
        await call(app, "there__echo")
        await pass_time(app)
        assert watching.has_ended and not calls(watching)


async def test_nobody_watches_without_a_session() -> None:
    async with served() as app:
        watching = await watched(app, Reader(app))
        assert (await watching.response()).status == 303
        refused = await Visitor(app, authorization=f"Bearer {KEYS['ada']}").send("POST", b"{}", path="/admin/traffic")
        assert refused.status == 403


async def test_the_end_of_the_gateway_waits_for_nobody_who_watches() -> None:
    async with served() as app:
        watching = await watched(app, await signed_in(app))
        app.gateway.phase = "draining"
        await pass_time(app)
        assert watching.has_ended
        await watching.response()


async def test_programs_get_the_same_until_their_key_is_one_no_more() -> None:
    async with served() as app:
        program = Visitor(app, path="/admin/traffic", authorization=f"Bearer {KEYS['carl']}")
        watching = program.begin("POST", b'{"tool":"echo"}')
        await pass_time(app)
        await call(app, "there__echo", "bob")
        await call(app, "there__delete", "bob")
        await pass_time(app)
        assert [each["target"] for each in calls(watching)] == ["echo"]
        app.http.expel_unknown(lambda principal: principal.client != "root")
        await call(app, "there__echo", "bob")
        await pass_time(app)
        assert watching.has_ended and len(calls(watching)) == 1


async def test_nothing_but_json_is_told() -> None:
    hostile = "echo</script>\u202e\n\ndata: x"

    def fails(_params: Any) -> Any:
        raise Refusal(-32000, hostile)

    scripts = {"there": Scripted(tools_list=tools(hostile), tools_call=fails)}
    async with gateway(GREETER, scripts=scripts) as app:
        watching = await watched(app, await signed_in(app))
        await (
            Visitor(app)
            .begin("POST", json.dumps({"tool": f"there__{hostile}"}).encode(), path="/admin/call", client=THE_SOCKET)
            .response()
        )
        await pass_time(app)
        lines = [line for line in watching.so_far.body.split(b"\n") if not line.startswith(b"data: ")]
        assert set(lines) <= {b"", b": keep-alive", b"event: message"}
        assert calls(watching)[0]["target"] == hostile
        await watching.gone()


async def test_who_does_not_read_is_let_go() -> None:
    async with served() as app:
        sent: list[Any] = []

        async def send(part: Any) -> None:
            sent.append(part)
            if len(sent) > 2:
                await asyncio.Event().wait()

        nothing_comes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        response, operator = Response(send), Principal("operator")
        streaming = asyncio.ensure_future(
            app.http.web._live.stream(traffic.Wanted(), operator, lambda: True, nothing_comes.get, response)
        )
        await pass_time(app)
        await call(app, "there__echo")
        await pass_time(app, live.PATIENCE - 1)
        assert not streaming.done()
        await pass_time(app, 2)
        assert streaming.done() and not app._frontend_deps.traffic.is_watched
