"""Canaries: secrets that are looked for wherever the gateway says something, and wherever it reaches.

Of two kinds: twenty that stand in a configuration, its variables and its environment, told by servers in every way that
a server has; and one that a client presents, which no upstream of any kind may ever see.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from pathlib import Path
from typing import Any

import pytest
from processes.ground import (
    LEGACY,
    MODERN,
    STREAM,
    WAIT,
    Client,
    child,
    gateway,
    home,
    over_the_socket,
    read_response,
    real,
    settings,
    shut,
    toolgate,
)
from processes.scripted_component import component, said
from processes.scripted_http import Request, scripted, serving
from processes.test_sse_link import OldServer, answering
from processes.test_ws_link import Scripted, listening

from toolgate import config as configs

Json = dict[str, Any]


class Canaries(dict[str, str]):
    """One for each name that is asked for."""

    def __missing__(self, name: str) -> str:
        self[name] = f"canary-{name.lower()}-{secrets.token_hex(8)}"
        return self[name]

    def seen_in(self, shown: object) -> list[str]:
        text = shown.decode(errors="replace") if isinstance(shown, bytes | bytearray) else str(shown)
        return [name for name, value in self.items() if value in text or secrets_tail(value) in text]


def secrets_tail(value: str) -> str:
    return value.rpartition("-")[2]


def told(birds: Canaries, port: int) -> tuple[dict[str, Json], dict[str, str]]:
    """A configuration with twenty of them, and the environment that some come from."""
    env = {
        "API_KEY": birds["env"],
        "SETTING": birds["neutral"],
        "FROM_VARIABLE": "${MINE}",
        "FROM_SECRET": "${secret:mine}",
        "DATABASE_URL": f"postgres://ann:{birds['password']}@db/x?sslkey={birds['query']}",
        "WRITTEN": "Bearer " + birds["scheme"],
    }
    args = ["--token", birds["argument"], f"--api-key={birds['assigned']}", "--x=${OTHER}", f"key={birds['pair']}"]
    args += [f"https://x/{birds['path']}0123456789abcdef?token={birds['url']}", "${secret:second}"]
    url = f"http://ann:{birds['userinfo']}@127.0.0.1:{port}/mcp?api_key={birds['parameter']}"
    headers = {"Authorization": f"Bearer {birds['header']}", "X-Api-Key": birds["apikey"], "X-Other": birds["other"]}
    servers = {
        "telling": child("telling", *args, env=env),
        "dying": child("telling", "--die", *args, env=env),
        "far": {"url": url, "headers": headers | {"Cookie": f"a={birds['cookie']}"}},
        "closed": {"url": f"http://127.0.0.1:1/mcp?key={birds['closed']}", "headers": headers},
        "hidden": child("telling", tools={"everything": {"parameters": {"key": {"fixed": birds["fixed"]}}}}),
    }
    variables = {"MINE": birds["variable"], "OTHER": birds["another"], "TOOLGATE_SECRET_SECOND": birds["second"]}
    return servers, variables | {"UNUSED_TOKEN": birds["unused"], "HTTPS_PROXY": f"http://u:{birds['proxy']}@p:1"}


async def echoes(request: Request) -> None:
    """A server that says what it was sent: in its results, and with `fail` in an error of HTTP."""
    heard = json.dumps([request.path, request.headers])
    if "fail" in request.body.decode():
        request.whole(heard.encode(), "500 Internal Server Error")
    else:
        request.whole(request.answer(heard))


async def streamed(client: Client, tool: str, **params: Any) -> str:
    """All that comes on the stream of a call."""
    reader, writer = await client.start("tools/call", {"name": tool, "arguments": {}, **params}, STREAM)
    async with asyncio.timeout(WAIT):
        whole = await reader.read()
    await shut(writer)
    return whole.decode()


CALLS = [("telling__everything", {}), ("telling__fails", {}), ("far__act", {}), ("far__act", {"fail": 1})]
CALLS += [("dying__x", {}), ("closed__x", {}), ("telling__dies", {}), ("nothing__x", {}), ("hidden__everything", {})]
RESOURCES = ["mcp://children", "mcp://servers", "mcp://children/dying", "mcp://children/telling"]


async def conversation(client: Client) -> list[str]:
    """All that a client can be told."""
    heard: list[str] = []
    for era in (MODERN, LEGACY):
        each = Client(client.port, era)
        if era == LEGACY:
            await each.open()
        with_progress = {"_meta": {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}}
        heard.append(await streamed(each, "telling__notes", **with_progress))
        for name, arguments in CALLS:
            heard.append(await streamed(each, name, arguments=arguments))
        for method in ("tools/list", "resources/list", "prompts/list"):
            heard.append(await _any(each, method, {}))
        for uri in RESOURCES:
            heard.append(await _any(each, "resources/read", {"uri": uri}))
    return heard


async def _any(client: Client, method: str, params: Json) -> str:
    reader, writer = await client.start(method, params)
    async with asyncio.timeout(WAIT):
        _, _, body = await read_response(reader)
    await shut(writer)
    return body.decode()


@pytest.mark.promise("b.secrets.shown-nowhere")
@real
async def test_twenty_secrets_of_a_configuration_are_shown_nowhere() -> None:
    birds = Canaries()
    async with scripted(echoes) as far:
        servers, variables = told(birds, far.port)
        with home() as environ:
            state = Path(environ["HOME"], ".local", "state", "toolgate")
            state.mkdir(parents=True)
            kept = state / "secrets.json"
            kept.write_text(json.dumps({"mine": birds["kept"]}))
            kept.chmod(0o600)
            environ |= variables
            audit = {"enabled": True, "arguments": "full"}
            async with toolgate("serve", "--port", "0", config=servers, environ=environ, audit=audit) as process:
                client = await process.until_it_serves()
                heard = await conversation(client)
                far_alone = {"other": birds["other"]}  # a header that goes by no name of a secret
                whole = {name: value for name, value in birds.items() if name not in ("path", *far_alone)}
                for tool, given in (("telling__fails", whole), ("far__act", far_alone)):
                    heard.append(await streamed(Client(client.port, MODERN), tool, arguments=given))
                for path in ("/servers", "/servers/telling", "/servers/dying", "/nothing"):
                    heard.append((await over_the_socket(environ, "GET", path))[1].decode())
                process.process.terminate()
                await process.ended()
                heard.append(process.errors.decode())
            noted = (state / "audit.jsonl").read_text()
            assert noted.count('"tools/call"') > len(CALLS) and "[secret]" in noted
            heard.append(noted)
            for command in (["doctor"], ["doctor", "--server", "telling"], ["list"], ["config", "show"], ["secrets"]):
                heard.append(await printed(command, servers, environ))
        assert len(birds) >= 20
        assert "[secret]" in heard[0] and "[secret]" in heard[1], "there was something to be taken out"
        sent = [json.dumps([request.path, request.headers]) for request in far.requests]
        assert {"header", "apikey", "other", "cookie", "parameter"} <= set(birds.seen_in(sent)), "servers get theirs"
        assert not [(found, text[:3000]) for text in heard if (found := birds.seen_in(text))]


async def printed(command: list[str], servers: dict[str, Json], environ: dict[str, str]) -> str:
    if command[0] == "config":
        async with toolgate(*command, config=servers, environ=environ) as process:
            return await _output(process)
    if command == ["secrets"]:
        command = ["secrets", "list"]
    async with toolgate(*command, config=servers, environ=environ) as process:
        return await _output(process)


async def _output(process: Any) -> str:
    assert process.process.stdout
    async with asyncio.timeout(WAIT):
        out = await process.process.stdout.read()
    await process.ended()
    return out.decode() + process.errors.decode()


# What a client presents.

CANARY = f"canary-of-a-client-{secrets.token_hex(8)}"
PRESENTED = {
    "Authorization": f"Bearer {CANARY}",
    "Proxy-Authorization": f"Basic {CANARY}",
    "Cookie": f"session={CANARY}",
    "X-Api-Key": CANARY,
    "X-Forwarded-Access-Token": CANARY,
    "Mcp-Canary": CANARY,
    "Last-Event-ID": CANARY,
    "Referer": f"http://x/?token={CANARY}",
    "X-Request-Id": "trace-1",
}


async def presented(port: int, era: str, path: str, method: str, params: Json, session: str = "") -> tuple[str, str]:
    """What is answered to a request with all of these, and the session."""
    client = Client(port, era)
    client.session = session.encode() or None
    head, _, body = client.request(method, params, STREAM).partition(b"\r\n\r\n")
    lines = "".join(f"{name}: {value}\r\n" for name, value in PRESENTED.items())
    head = head.replace(b"POST /mcp ", f"POST {path}?access_token={CANARY} ".encode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"\r\n" + lines.encode() + b"\r\n" + body)
    async with asyncio.timeout(WAIT):
        status, headers, answered = await read_response(reader)
    await shut(writer)
    return f"{status} {answered.decode()}", headers.get(b"mcp-session-id", b"").decode()


@pytest.mark.promise("b.secrets.no-passthrough")
@pytest.mark.parametrize("era", [MODERN, LEGACY])
@real
async def test_what_a_client_presents_is_at_no_upstream_and_in_no_log(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def heard_by_component(request: Request) -> None:
        request.whole(said(json.dumps(request.headers)))

    web, old = Scripted(modern=era == MODERN), answering(OldServer())
    async with (
        scripted(echoes, modern=True) as modern,
        scripted(echoes, session=True) as legacy,
        serving(old),
        listening(web),
        component(on_post=heard_by_component) as parts,
    ):
        config = settings(
            stdio=child("telling"),
            modern={"url": f"http://127.0.0.1:{modern.port}/mcp", "forward_headers": ["X-Request-Id"]},
            legacy={"url": f"http://127.0.0.1:{legacy.port}/mcp", "scope": "session"},
            old={"type": "sse", "url": f"http://127.0.0.1:{old.port}/sse"},
            web={"type": "ws", "url": f"ws://127.0.0.1:{web.port}/mcp"},
            parts={"type": "component", "url": parts.url},
        )
        answers: list[str] = []
        async with gateway(config) as served:
            session = ""
            if era == LEGACY:
                info = {"name": "test", "version": "1"}
                opening = {"protocolVersion": era, "capabilities": {}, "clientInfo": info}
                answer, session = await presented(served.port, era, "/mcp", "initialize", opening)
                answers.append(answer)
            tools = ["stdio__everything", "modern__act", "legacy__act", "old__act", "web__act", "parts__echo"]
            for name in tools:
                call = {"name": name, "arguments": {}}
                answers.append((await presented(served.port, era, "/mcp", "tools/call", call, session))[0])
                assert answers[-1].startswith("200") and '"error"' not in answers[-1], answers[-1]
            meta = {"name": "mcp_call", "arguments": {"server_name": "modern", "tool_name": "act", "arguments": {}}}
            for method, params in [
                ("tools/list", {}),
                ("tools/call", {"name": "modern__act", "arguments": {"fail": 1}}),
                ("tools/call", meta),
                ("tools/call", {"name": "nothing__at_all"}),
                ("tools/call", {"name": "stdio__fails"}),
                ("resources/read", {"uri": "mcp://servers"}),
                ("nothing/such", {}),
            ]:
                answers.append((await presented(served.port, era, "/mcp", method, params, session))[0])
            for path in ("/mcp/nothing", "/nothing", "/admin/nothing"):
                answers.append((await presented(served.port, era, path, "tools/list", {}, session))[0])
            answers.append((await presented(served.port, era, "/mcp", "tools/list", {}, CANARY))[0])
        requests = [*modern.requests, *legacy.requests, *old.requests, *parts.requests]
        reached = [json.dumps([each.path, each.headers, each.body.decode()]) for each in requests]
        reached += [json.dumps(web.messages), *(str(each.request.headers) for each in web.connections if each.request)]
        assert len({type(each) for each in (modern, old, parts, web)}) == 4 and modern.calls and legacy.calls
        assert not [each for each in reached if CANARY in each]
        assert not [each for each in answers if CANARY in each]
        assert CANARY not in caplog.text
        passed_on = [each.headers.get("x-request-id") for each in modern.calls]
        assert passed_on and set(passed_on) == {"trace-1"}, "but what is on the list is passed on"
        assert not [each for each in (*legacy.requests, *old.requests) if "x-request-id" in each.headers]


@real
async def test_a_header_of_the_configuration_is_not_replaced_by_a_clients() -> None:
    async with scripted(echoes, modern=True) as far:
        entry = {"url": f"http://127.0.0.1:{far.port}/mcp", "headers": {"X-Request-Id": "ours"}}
        async with gateway(settings(far={**entry, "forward_headers": ["x-request-id"]})) as served:
            call = {"name": "far__act", "arguments": {}}
            await presented(served.port, MODERN, "/mcp", "tools/call", call)
        assert [request.headers["x-request-id"] for request in far.calls] == ["ours"]


@pytest.mark.parametrize("own", [{}, {"headers": {"User-Agent": "of the configuration"}}])
@real
async def test_a_server_is_told_of_one_program_and_hears_all_lines_of_a_header(own: Json) -> None:
    async with scripted(echoes, modern=True) as far:
        entry = {"url": f"http://127.0.0.1:{far.port}/mcp", "forward_headers": ["user-agent", "baggage"], **own}
        async with gateway(settings(far=entry)) as served:
            for more in (["User-Agent: theirs", "Baggage: a=1", "Baggage: b=2"], []):
                client = Client(served.port, MODERN)
                client.headers = more
                assert "result" in await _any(client, "tools/call", {"name": "far__act", "arguments": {}})
    agents = [[line for line in call.lines if line.lower().startswith("user-agent:")] for call in far.requests]
    assert {len(each) for each in agents} == {1}
    assert [each.headers.get("baggage") for each in far.calls] == ["a=1, b=2", None]
    found = [each.headers["user-agent"].partition("/")[0] for each in far.calls]
    assert found == (["of the configuration"] * 2 if own else ["theirs", "toolgate"])


@real
async def test_children_get_of_the_gateways_environment_only_what_is_listed() -> None:
    environ = {"GITHUB_TOKEN": CANARY, "NPM_CONFIG__AUTH": CANARY, "UV_PUBLISH_TOKEN": CANARY, "PIP_PASSWORD": CANARY}
    with home() as plain:
        async with toolgate(
            *("call", "telling", "everything"), config={"telling": child("telling")}, environ=plain | environ
        ) as process:
            out = await _output(process)
    shown = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert set(shown["environ"]) & set(environ) == set()
    assert CANARY not in out and "[secret]" not in out


@pytest.mark.parametrize("era", [MODERN, LEGACY])
@real
async def test_a_key_that_lets_a_client_in_goes_no_further(era: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted(echoes, modern=True) as far:
        servers = {"far": {"url": f"http://127.0.0.1:{far.port}/mcp"}, "near": child("telling")}
        clients = [{"id": "ci", "key": CANARY, "mcp_server_access": "all"}]
        text = json.dumps({"clients": clients, "mcpServers": servers})
        config = configs.read(text, file="toolgate.json", environ={}, format="json")
        answers: list[str] = []
        async with gateway(config) as served:
            session = ""
            if era == LEGACY:
                info = {"name": "test", "version": "1"}
                opening = {"protocolVersion": era, "capabilities": {}, "clientInfo": info}
                answer, session = await presented(served.port, era, "/mcp", "initialize", opening)
                assert answer.startswith("200"), answer
            for name in ("far__act", "near__everything", "near__fails", "nothing__x"):
                call = {"name": name, "arguments": {}}
                answers.append((await presented(served.port, era, "/mcp", "tools/call", call, session))[0])
            answers.append((await presented(served.port, era, "/mcp/nothing", "tools/list", {}, session))[0])
            refused = await _any(Client(served.port, era), "tools/list", {})
        assert answers[0].startswith("200") and answers[1].startswith("200"), answers
        assert "error" in refused
        reached = [json.dumps([each.path, each.headers, each.body.decode()]) for each in far.requests]
        assert far.calls and not [each for each in (*reached, *answers, caplog.text) if CANARY in each]
