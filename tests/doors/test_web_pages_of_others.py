"""A web page of another site, in a browser, uses the gateway where its origin is allowed; no other page does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from doors.pipes import WebSocket
from inmemory import MODERN, Refusal, Response, Scripted, Visitor, gateway, said, tools
from virtualtime import settle
from wires import Wire, hello, legacy, modern

from toolgate.app import App
from toolgate.config import Auth, Config, Http
from toolgate.config.access import KnownClient
from toolgate.frontends.streams import QUIET

PAGE, STRANGE, LOCAL = "https://app.example", "https://evil.example", "http://localhost:6274"
KEY = "key-of-ada-that-is-long"
SHOWN, FROM = f"Authorization: Bearer {KEY}", f"Origin: {PAGE}"
WISHES = "authorization,content-type,mcp-method,mcp-name,mcp-param-region,mcp-protocol-version,mcp-session-id"
CLIENTS = (KnownClient(id="ada", name="ada", key=KEY, servers="all"),)
AUTH = Auth(issuer="https://issuer.example", audience="https://gate.example")


@asynccontextmanager
async def served(*origins: str) -> AsyncGenerator[tuple[App, Scripted]]:
    script = Scripted(tools_list=tools("echo", "slow", "bad"), tools_call=answered)
    config = Config(clients=CLIENTS, http=Http(allowed_origins=origins), auth=AUTH)
    async with gateway(config=config, scripts={"there": script}) as app:
        yield app, script


def answered(asked: dict[str, object]) -> object:
    if asked["name"] == "bad":
        return Refusal(-32602, "Wrong")
    return said("yes") if asked["name"] == "echo" else ...


def call(id: int, tool: str, *lines: str) -> bytes:
    return modern(id, "tools/call", {"name": f"there__{tool}", "arguments": {}}, *lines)


async def preflight(
    app: App, origin: str, path: str = "/mcp", wishes: str = WISHES, host: str = "localhost"
) -> Response:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": wishes}
    return await Visitor(app, path, origin=origin, host=host).send("OPTIONS", headers=asks)


def allows(response: Response) -> bool:
    """Whether the page may read it; what no answer says is not said."""
    told = response.headers
    assert "access-control-allow-credentials" not in told
    if not any(name.startswith("access-control-") for name in told):
        return False
    assert (told["access-control-allow-origin"], told["vary"]) == (PAGE, "Origin")
    assert told["access-control-expose-headers"] == "Mcp-Session-Id, WWW-Authenticate"
    return True


# What a browser asks before.


@pytest.mark.promise("b.web.preflight")
@pytest.mark.parametrize(
    "path", ["/mcp", "/mcp/servers/there", "/mcp/sse", "/.well-known/oauth-protected-resource/mcp"]
)
async def test_a_page_that_is_allowed_may_send_what_clients_of_mcp_send(path: str) -> None:
    async with served(PAGE) as (app, _):
        response = await preflight(app, PAGE, path)
        assert (response.status, response.body, allows(response)) == (204, b"", True)
        names = response.headers["access-control-allow-headers"].split(", ")
        assert set(WISHES.split(",")) | {"last-event-id", "accept"} == set(names)
        assert response.headers["access-control-allow-methods"] == "GET, POST, DELETE"
        assert response.headers["access-control-max-age"] == "7200"


async def test_a_page_may_send_no_other_headers() -> None:
    async with served(PAGE) as (app, _):
        response = await preflight(
            app, PAGE, wishes="x-forwarded-for, mcp-param-, mcp-param-a b,mcp-param-\xe9, cookie"
        )
        names = response.headers["access-control-allow-headers"]
        assert "mcp-param" not in names and "x-" not in names and "cookie" not in names and "*" not in names


@pytest.mark.promise("b.web.others")
@pytest.mark.parametrize(
    "origin", [STRANGE, "null", "https://APP.example", PAGE + ":443", PAGE + ".evil.example", LOCAL]
)
async def test_no_other_page_is_told_anything(origin: str) -> None:
    async with served(PAGE) as (app, _):
        for response in (
            await preflight(app, origin),
            await preflight(app, origin, "/.well-known/oauth-protected-resource/mcp"),
            await Visitor(app, origin=origin).post(b"{}"),
        ):
            assert response.status in ((401, 405, 404) if origin == LOCAL else (403,))
            assert not allows(response) and "vary" not in response.headers


@pytest.mark.promise("b.web.others")
@pytest.mark.parametrize("path", ["/ui", "/ui/login", "/admin/status", "/metrics", "/connect/x", "/v0.1/servers"])
async def test_no_page_of_others_reads_those_of_the_operator(path: str) -> None:
    async with served(PAGE) as (app, _):
        asked = await preflight(app, PAGE, path)
        read = await Visitor(app, path, origin=PAGE, authorization=f"Bearer {KEY}").send("GET")
        assert asked.status >= 400 and not allows(asked) and not allows(read)


async def test_a_page_that_is_allowed_reaches_no_host_that_is_not() -> None:
    async with served(PAGE) as (app, _):
        assert (await preflight(app, PAGE, host="evil.example")).status == 403


async def test_where_no_origin_is_allowed_no_page_is_told_anything() -> None:
    async with served() as (app, _):
        response = await preflight(app, PAGE)
        assert response.status == 403 and not allows(response)


async def test_options_that_ask_nothing_are_another_method() -> None:
    async with served(PAGE) as (app, _):
        response = await Visitor(app, origin=PAGE, authorization=f"Bearer {KEY}").send("OPTIONS")
        assert response.status == 405 and allows(response)


# What it may read.


@pytest.mark.promise("b.web.answers")
async def test_a_page_reads_its_session_and_what_is_wrong() -> None:
    async with served(PAGE) as (app, _):
        wire = Wire(app)
        nobody = await wire.ask(hello(FROM))
        assert (nobody.status, allows(nobody)) == (401, True)
        assert "resource_metadata" in nobody.headers["www-authenticate"]
        opened = await wire.ask(hello(FROM, SHOWN))
        session = opened.headers["mcp-session-id"]
        assert (opened.status, allows(opened)) == (200, True)
        for message in (legacy(1, "tools/list", {}, FROM, SHOWN, session=session), hello(SHOWN, FROM)) * 2:
            assert allows(await wire.ask(message))
        lost = await wire.ask(legacy(1, "ping", {}, FROM, SHOWN, session="lost"))
        assert (lost.status, allows(lost)) == (404, True)
        hidden = await Visitor(app, "/mcp/servers/none", origin=PAGE, authorization=f"Bearer {KEY}").post(b"{}")
        assert hidden.status in (403, 404) and allows(hidden)


@pytest.mark.promise("b.web.answers")
@pytest.mark.parametrize("tool", ["echo", "bad"])
async def test_a_page_reads_answers_whose_way_is_short_and_other_clients_get_them_as_ever(tool: str) -> None:
    async with served(PAGE) as (app, _):
        page, program = Wire(app), Wire(app)
        for id in range(4):
            seen = await page.ask(call(id, tool, FROM, SHOWN))
            plain = await program.ask(call(id, tool, SHOWN))
            assert (seen.status, seen.body) == (plain.status, plain.body)
            assert allows(seen) and not allows(plain) and "vary" not in plain.headers


@pytest.mark.promise("b.web.answers")
async def test_a_page_reads_a_stream_also_of_a_call_that_was_begun_the_short_way() -> None:
    async with served(PAGE) as (app, script):
        wire = Wire(app)
        await wire.ask(call(1, "echo", FROM, SHOWN))
        for id in (2, 3):
            wire.send(call(id, "slow", FROM, SHOWN))
            await asyncio.sleep(QUIET + 1)
            script.answer_last(said("late"))
            response = await wire.answer()
            assert response.is_stream and allows(response)


@pytest.mark.promise("b.web.answers")
async def test_a_page_reads_where_tokens_are_to_be_had_and_nobody_keeps_that_for_another_page() -> None:
    async with served(PAGE) as (app, _):
        path = "/.well-known/oauth-protected-resource/mcp"
        assert allows(await Visitor(app, path, origin=PAGE, mcp_protocol_version=MODERN).send("GET"))
        plain = await Visitor(app, path).send("GET")
        assert not allows(plain) and plain.headers["vary"] == "Origin"


@pytest.mark.promise("b.web.others")
@pytest.mark.parametrize("path", ["/.well-known/ai-catalog.json", "/mcp/server-card", "/mcp/servers/there/server-card"])
async def test_a_page_of_another_server_of_this_machine_reads_no_card(path: str) -> None:
    config = Config(http=Http(allowed_origins=(PAGE,)))
    async with gateway(config=config, scripts={"there": Scripted(tools_list=tools("echo"))}) as app:
        told = [(await Visitor(app, path, origin=origin).send("GET")).headers for origin in (LOCAL, PAGE)]
        plain = (await Visitor(app, path).send("GET")).headers
        assert ["access-control-allow-origin" in each for each in (*told, plain)] == [False, True, True]
        assert all(each["vary"] == "Origin" for each in (*told, plain)), "nor does a cache give it what others got"


# A WebSocket, which browsers open without asking whether they may, and whose answers any page reads.


async def opened(app: App, origin: str, *headers: tuple[str, str]) -> int:
    """The status by which it was refused; 101 where it was not."""
    socket = WebSocket(app.http, headers=[("origin", origin), *headers])
    await settle()
    if socket.accepted:
        await socket.leave()
    return 101 if socket.accepted else socket.status or 0


@pytest.mark.promise("b.web.others")
@pytest.mark.parametrize(
    "origin",
    [LOCAL, "http://127.0.0.1:3000", "http://[::1]:9", "https://localhost", "http://localhost", "null", STRANGE],
)
@pytest.mark.parametrize("clients", [(), CLIENTS], ids=["open", "with keys"])
async def test_no_page_of_another_server_of_this_machine_opens_a_websocket(
    origin: str, clients: tuple[KnownClient, ...]
) -> None:
    host = ("host", "localhost:8765")
    async with gateway(config=Config(clients=clients)) as app:
        assert await opened(app, origin, host, ("authorization", f"Bearer {KEY}")) == 403


async def test_a_page_that_is_allowed_opens_one_and_so_does_what_names_the_gateway_itself() -> None:
    """Some libraries of programs send the address that they connect to."""
    config = Config(http=Http(allowed_origins=(LOCAL,)))
    async with gateway(config=config) as app:
        assert await opened(app, LOCAL) == 101
        assert await opened(app, "http://localhost:8765", ("host", "localhost:8765")) == 101
        assert await opened(app, "http://localhost:87650", ("host", "localhost:8765")) == 403
        assert await opened(app, "http://127.0.0.1:8765", ("host", "localhost:8765")) == 403
