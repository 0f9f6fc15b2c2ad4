"""Servers that want OAuth, over real sockets: the whole way from a refused call to an answered one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import browser
import pytest
from authority import Authority
from processes.ground import (
    LEGACY,
    MODERN,
    Client,
    Failed,
    Json,
    Served,
    failure,
    gateway,
    read_response,
    real,
    settings,
)
from processes.scripted_http import Request, ScriptedServer, serving

from toolgate.core.model import Principal

URLS: Json = {"elicitation": {"form": {}, "url": {}}}
CANARY = "canary-of-the-caller-0123456789"


def user(shown: str) -> str:
    """How the server calls who shows this: a token itself would be taken out of its results."""
    return "for user " + hashlib.sha256(shown.encode()).hexdigest()[:12]


class Protected(ScriptedServer):
    """An MCP server and its authorization server at one port. `needs` are the scopes that a call takes."""

    def __init__(self, modern: bool = False, needs: tuple[str, ...] = (), sse: bool = False) -> None:
        super().__init__(self._answer, modern=modern)
        self.needs = needs
        self.is_sse = sse
        self.shown: list[tuple[str, str]] = []  # method, Authorization
        self._streams: list[Request] = []

    async def start(self, port: int = 0) -> None:
        await super().start(port)
        self.authority = Authority(f"http://127.0.0.1:{self.port}", self.url)
        self.authority.metadata["authorization_endpoint"] += "?tenant=1"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _answer(self, request: Request) -> None:
        request.whole(request.answer(user(request.headers["authorization"])))

    async def _respond(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        if path == "/authorize":
            self._redirect(request)
        elif path != "/mcp":
            status, said = self.authority.answer(request.verb, request.path, request.headers, request.body)
            request.whole(json.dumps(said).encode(), f"{status} Whatever")
        elif self._lets_in(request):
            await (self._respond_by_stream(request) if self.is_sse else super()._respond(request))

    def _redirect(self, request: Request) -> None:
        answer = self.authority.authorize(request.path)
        back = self.authority.asked("/authorize")[-1]["redirect_uri"]
        request.whole(b"", "302 Found", f"Location: {back}?{urlencode(answer)}")

    def _lets_in(self, request: Request) -> bool:
        shown = request.headers.get("authorization", "")
        self.shown.append((request.method, shown))
        scopes = self.authority.tokens.get(shown.removeprefix("Bearer "))
        wanted = self.needs if request.method == "tools/call" else ()
        if scopes is None:
            challenges = ('WWW-Authenticate: Basic realm="not this one"', 'WWW-Authenticate: Bearer scope="read"')
            request.whole(b'{"error":"invalid_token"}', "401 Unauthorized", *challenges)
        elif not set(wanted) <= set(scopes):
            challenge = f'WWW-Authenticate: Bearer error="insufficient_scope", scope="{" ".join(wanted)}"'
            request.whole(b'{"error":"insufficient_scope"}', "403 Forbidden", challenge)
        else:
            return True
        return False

    async def _respond_by_stream(self, request: Request) -> None:
        """The transport of 2024-11-05."""
        if request.verb == "GET":
            self._streams.append(request)
            request.open_stream()
            request.event(b"/mcp", "event: endpoint")
            return
        request.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        if request.method == "initialize":
            told = {
                "protocolVersion": "2024-11-05",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
            self._streams[-1].event(request.result(**told))
        elif request.method == "tools/list":
            self._streams[-1].event(request.result(tools=self.listed()))
        elif request.method == "tools/call":
            self._streams[-1].event(request.answer(user(request.headers["authorization"])))


async def by_header(headers: Mapping[str, str], address: str, path: str) -> Principal:
    return Principal(headers.get("x-test-principal", "local"), address)


@asynccontextmanager
async def protected(
    modern: bool = True, needs: tuple[str, ...] = (), sse: bool = False, **more: Any
) -> AsyncIterator[tuple[Served, Protected]]:
    async with serving(Protected(modern, needs, sse)) as server:
        written = {"url": server.url, "auth": "oauth"} | ({"type": "sse"} if sse else {}) | more
        async with gateway(settings(docs=written), identify=by_header) as served:
            served.app.port = served.port
            yield served, server


def client_of(served: Served, principal: str = "ann", era: str = MODERN) -> Client:
    client = served.client(era)
    client.headers = [f"X-Test-Principal: {principal}", f"Authorization: Bearer {CANARY}"]
    return client


async def sign_in(failed: Failed | Json) -> str:
    told = f"{failed.message} {failed.data}" if isinstance(failed, Failed) else json.dumps(failed)
    page = browser.PAGE.search(told)
    assert page, told
    return await asyncio.to_thread(browser.sign_in, page[0])


ACT = {"name": "docs__act", "arguments": {}}


@real
async def test_a_modern_client_is_asked_to_visit_a_page_and_its_call_goes_on() -> None:
    async with protected() as (served, server):
        client = client_of(served)
        client.capabilities = URLS
        asked = await client.ask("tools/call", ACT)
        assert asked["resultType"] == "input_required"
        ((key, question),) = asked["inputRequests"].items()
        assert question["params"]["mode"] == "url" and "elicitationId" not in question["params"]
        again = {**ACT, "requestState": asked["requestState"], "inputResponses": {key: {"action": "accept"}}}
        waiting = asyncio.ensure_future(client.ask("tools/call", again))
        await sign_in(asked)
        result = await waiting
        (token,) = server.authority.tokens
        assert result["content"][0]["text"] == user(f"Bearer {token}")
        assert len(server.calls) == 1 and "inputResponses" not in server.calls[0].message["params"]


@real
async def test_a_client_of_2025_11_25_gets_the_page_in_an_error_and_calls_again() -> None:
    async with protected(modern=False) as (served, _server):
        client = client_of(served, era=LEGACY)
        await client.open(**URLS)
        failed = await failure(client.call("docs__act"))
        assert failed.code == -32042 and failed.data["elicitations"][0]["mode"] == "url"
        await sign_in(failed)
        assert (await client.call("docs__act")).startswith("for user ")


@pytest.mark.parametrize("era", ["2024-11-05", "2025-06-18", MODERN])
def test_who_knows_no_pages_reads_where_it_is(era: str) -> None:
    @real
    async def told() -> None:
        async with protected() as (served, _server):
            client = client_of(served, era=era)
            if era != MODERN:
                await client.open()
            failed = await failure(client.call("docs__act"))
            assert failed.message.startswith("docs requires you to sign in: open http://127.0.0.1:")
            await sign_in(failed)
            assert await client.tools() == ["docs__act"] or era == MODERN
            assert (await client.call("docs__act")).startswith("for user ")

    told()


@real
async def test_a_list_says_where_to_sign_in_and_is_whole_afterwards() -> None:
    async with protected() as (served, _server):
        client = client_of(served)
        failed = await failure(client.tools())
        assert "SERVER_FAILED" in str(failed.data) or "sign in" in failed.message
        page = await sign_in(failed)
        assert "docs" in page
        assert "docs__act" in await client.tools()


@pytest.mark.promise("spec.2026.authorization.passthrough")
@real
async def test_what_a_caller_came_with_is_shown_to_no_server_and_each_user_is_itself_there() -> None:
    async with protected() as (served, server):
        ann, ben = client_of(served, "ann"), client_of(served, "ben")
        await sign_in(await failure(ann.call("docs__act")))
        first = await ann.call("docs__act")
        failed = await failure(ben.call("docs__act"))
        assert "sign in" in failed.message
        assert "/connect/" not in str(served.status("docs"))
        await sign_in(failed)
        second = await ben.call("docs__act")
        assert first != second and await ann.call("docs__act") == first
        sent = (
            b"".join(request.body for request in server.requests)
            + str([(request.path, request.headers) for request in server.requests]).encode()
        )
        assert b"canary" not in sent.lower()
        assert "ann" not in str(server.authority.requests)


@real
async def test_a_token_that_is_taken_back_is_renewed_and_the_call_is_made_once() -> None:
    async with protected() as (served, server):
        client = client_of(served)
        await sign_in(await failure(client.call("docs__act")))
        before = await client.call("docs__act")
        server.authority.end()
        several = await asyncio.gather(*(client_of(served).call("docs__act") for _ in range(10)))
        assert len(set(several)) == 1 and several[0] != before
        assert len([told for told in server.authority.asked("/token") if told["grant_type"] == "refresh_token"]) == 1


@real
async def test_a_call_that_takes_more_asks_its_user_for_more_and_then_no_longer() -> None:
    async with protected(needs=("write",)) as (served, server):
        client = client_of(served)
        await sign_in(await failure(client.tools()))
        await client.tools()
        failed = await failure(client.call("docs__act"))
        await sign_in(failed)
        assert server.authority.asked("/authorize")[-1]["scope"] == "read write"
        server.authority.grants = ["read"]
        assert (await client.call("docs__act")).startswith("for user ")


@real
async def test_an_older_server_is_signed_in_at_by_its_stream() -> None:
    async with protected(sse=True) as (served, server):
        client = client_of(served)
        await sign_in(await failure(client.call("docs__act")))
        first = await client.call("docs__act")
        server.authority.end()
        assert first != await client.call("docs__act") != ""
        assert all(shown for method, shown in server.shown if method == "tools/call")


@real
async def test_the_gateways_own_credentials_ask_nobody() -> None:
    auth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "of-the-robot"}
    async with protected(auth=auth) as (served, server):
        server.authority.clients["robot"] = "of-the-robot"
        said = await asyncio.gather(*(client_of(served, who).call("docs__act") for who in ("ann", "ben")))
        assert len(set(said)) == 1 and len(server.authority.asked("/token")) == 1


@real
async def test_what_stands_in_headers_is_shown_and_nothing_else() -> None:
    async with protected(headers={"Authorization": "Bearer by-hand"}) as (served, server):
        failed = await failure(client_of(served).call("docs__act"))
        assert "401" in failed.message and {shown for _, shown in server.shown} == {"Bearer by-hand"}
        server.authority.tokens["by-hand"] = []
        assert await client_of(served).call("docs__act") == user("Bearer by-hand")


@real
async def test_where_nothing_is_configured_the_error_names_the_key() -> None:
    async with serving(Protected()) as server, gateway(settings(docs={"url": server.url})) as served:
        failed = await failure(served.client().call("docs__act"))
        assert 'auth = "oauth"' in failed.data["hint"] and not server.authority.requests


async def asked(served: Served, head: str, body: bytes = b"") -> tuple[int, dict[bytes, bytes], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"{head}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        return await read_response(reader)
    finally:
        writer.close()
        await writer.wait_closed()


@real
async def test_the_page_says_what_it_is_for_and_is_neither_kept_framed_nor_used_from_elsewhere() -> None:
    async with protected() as (served, _server):
        failed = await failure(client_of(served, "ann<script>").call("docs__act"))
        found = browser.PAGE.search(failed.message)
        assert found
        path = re.sub(r"^http://[^/]+", "", found[0])
        host = f"127.0.0.1:{served.port}"
        status, headers, body = await asked(served, f"GET {path} HTTP/1.1\r\nHost: {host}")
        page = body.decode()
        assert status == 200 and "Sign in to docs" in page and "ann&lt;script&gt;" in page and "<script" not in page
        assert headers[b"cache-control"] == b"no-store" and headers[b"x-frame-options"] == b"DENY"
        assert b"frame-ancestors 'none'" in headers[b"content-security-policy"] and b"set-cookie" not in headers
        confirm = re.search(r'name="confirm" value="([^"]+)"', page)
        assert confirm
        form = f"confirm={confirm[1]}".encode()
        typed = "Content-Type: application/x-www-form-urlencoded"
        elsewhere = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://evil.example\r\n{typed}"
        assert (await asked(served, elsewhere, form))[0] == 403
        assert (await asked(served, f"GET {path} HTTP/1.1\r\nHost: evil.example"))[0] == 403
        assert (await asked(served, f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{typed}", b"confirm=guessed"))[0] == 404
        assert (await asked(served, f"PUT {path} HTTP/1.1\r\nHost: {host}"))[0] == 405
        own = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n{typed}"
        status, headers, _ = await asked(served, own, form)
        assert status == 303 and b"HttpOnly" in headers[b"set-cookie"] and b"SameSite=Lax" in headers[b"set-cookie"]
        assert b"/authorize?tenant=1&" in headers[b"location"]
        state = parse_qs(urlsplit(headers[b"location"].decode()).query)["state"][0]
        own_name = f"toolgate-connect-{hashlib.sha256(state.encode()).hexdigest()[:16]}="
        assert headers[b"set-cookie"].startswith(own_name.encode()), "a browser may have several sign-ins at once"
        assert (await asked(served, own, form))[0] == 404
        assert (await asked(served, f"GET {path} HTTP/1.1\r\nHost: {host}"))[0] == 404


@real
async def test_a_way_back_that_nobody_went_is_refused() -> None:
    async with protected() as (served, server):
        host = f"127.0.0.1:{served.port}"
        status, _, body = await asked(served, f"GET /connect/callback?code=c&state=s HTTP/1.1\r\nHost: {host}")
        assert status == 400 and b"unknown or has expired" in body and not server.authority.requests
        assert (await asked(served, f"GET /connect/client.json HTTP/1.1\r\nHost: {host}"))[0] == 404
