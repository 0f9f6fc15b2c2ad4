"""`toolgate stdio --client ID`: whoever is at the other end of the pipe may do what that client may, and is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from processes.ground import LEGACY, MODERN, WAIT, Gateway, Json, child, home, real, toolgate

META = "io.modelcontextprotocol/"
ERAS = pytest.mark.parametrize("era", ["2025-06-18", LEGACY, MODERN])
FORMS: Json = {"elicitation": {}}
CI: Json = {"id": "ci", "mcp_permissions": {"servers": {"one": "allow"}, "tools": {"one__echo": "ask"}}}


class Client:
    """The other end of the pipe. `says` answers the questions that come: a decision."""

    def __init__(self, running: Gateway, era: str, says: str = "", capabilities: Json = FORMS) -> None:
        assert running.process.stdin and running.process.stdout
        self._in, self._out = running.process.stdin, running.process.stdout
        self._era = era
        self._capabilities = capabilities
        self._says = says
        self._ids = 0
        self.asked: list[str] = []

    async def opens(self) -> None:
        if self._era != MODERN:
            info = {"name": "t", "version": "1"}
            shown = {"protocolVersion": self._era, "capabilities": self._capabilities, "clientInfo": info}
            assert (await self.ask("initialize", **shown))["result"]["protocolVersion"] == self._era

    async def ask(self, method: str, **params: Any) -> Json:
        if self._era == MODERN:
            about = {META + "protocolVersion": MODERN, META + "clientCapabilities": self._capabilities}
            params["_meta"] = about
        self._ids += 1
        self._write({"id": self._ids, "method": method, "params": params})
        async with asyncio.timeout(WAIT):
            answer = await self._answer()
        result = answer.get("result", {})
        if result.get("resultType") != "input_required":
            return answer
        answers = {key: self._decide(question["params"]) for key, question in result["inputRequests"].items()}
        return await self.ask(method, **params, requestState=result["requestState"], inputResponses=answers)

    async def _answer(self) -> Json:
        while True:
            message = json.loads(await self._out.readline())
            if message.get("id") == self._ids and "method" not in message:
                return message
            if message.get("method") == "elicitation/create":
                self._write({"id": message["id"], "result": self._decide(message["params"])})

    def _decide(self, question: Json) -> Json:
        self.asked.append(question["message"])
        return {"action": "accept", "content": {"decision": self._says}}

    def _write(self, message: Json) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def call(self, tool: str, **arguments: Any) -> Json:
        return await self.ask("tools/call", name=tool, arguments=arguments)


@contextlib.asynccontextmanager
async def talking(
    *flags: str, era: str, says: str = "", environ: dict[str, str], capabilities: Json = FORMS, **more: Any
) -> AsyncIterator[Client]:
    config: Json = {"clients": [CI], "approvals": {"by": ["client"]}, **more}
    servers = {"one": child("opening", "-32601"), "two": child("opening", "-32601")}
    piped = asyncio.subprocess.PIPE
    async with toolgate("stdio", *flags, config=servers, stdin=piped, environ=environ, **config) as running:
        client = Client(running, era, says, capabilities)
        await client.opens()
        yield client
        assert running.process.stdin
        running.process.stdin.close()
        assert await running.ended() == 0
        said = running.errors.decode()
        assert all(line.startswith("INFO toolgate: ") for line in said.splitlines()), said


async def tools(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]]


def text(answer: Json) -> str:
    return answer["result"]["content"][0]["text"]


async def cli(environ: dict[str, str], *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-W", "error", "-m", "toolgate", *arguments],
        env=environ | {"TOOLGATE_CONFIG": "toolgate.json"},
        cwd=environ["HOME"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.mark.promise("b.approval.pipe")
@pytest.mark.parametrize("says", ["once", "deny"])
@ERAS
@real
async def test_what_a_client_is_to_be_asked_is_asked_over_the_pipe(era: str, says: str) -> None:
    with home() as environ:
        async with talking("--client", "ci", era=era, says=says, environ=environ) as client:
            assert {name.partition("__")[0] for name in await tools(client)} == {"one"}, "the other server is off"
            answer = await client.call("one__echo", say="hello")
            assert len(client.asked) == 1 and '"hello"' in client.asked[0]
            if says == "once":
                assert text(answer) == "hello"
            else:
                assert answer["error"]["data"]["code"] == "APPROVAL_DENIED"
            assert (await client.call("two__echo", say="hello"))["error"]["data"]["code"] == "ACCESS_DENIED"
        lines = [json.loads(line) for line in _audit(environ)]
        assert {line["who"] for line in lines if line["event"] == "call"} == {"client:ci"}


@pytest.mark.promise("b.approval.pipe")
@ERAS
@real
async def test_an_operator_decides_for_who_has_no_forms(era: str) -> None:
    approvals = {"by": ["client", "operator"], "wait": "60s"}
    with home() as environ:
        async with talking("--client", "ci", era=era, environ=environ, capabilities={}, approvals=approvals) as client:
            call = asyncio.ensure_future(client.call("one__echo", say="hello"))
            while not (waiting := json.loads((await cli(environ, "approvals", "list", "--json"))[1])):
                assert not call.done()
            assert waiting[0]["principal"] == "client:ci"
            await cli(environ, "approvals", "allow", waiting[0]["id"], "--yes")
            assert text(await call) == "hello"


@ERAS
@real
async def test_without_a_client_whoever_starts_it_is_the_operator(era: str) -> None:
    with home() as environ:
        async with talking(era=era, environ=environ) as client:
            assert {name.partition("__")[0] for name in await tools(client)} == {"one", "two"}
            assert text(await client.call("one__echo", say="hello")) == "hello"
            assert not client.asked


@real
async def test_a_client_has_its_surface_and_its_limits_and_administers_nothing() -> None:
    limited = {"id": "ci", "mcp_server_access": "all", "surface": "daemon", "limits": {"rate": "1/h"}}
    added = {"name": "more", "transport": "stdio", "command": "true"}
    with home() as environ:
        async with talking("--client", "ci", era=MODERN, environ=environ, clients=[limited]) as client:
            assert "list_mcp_servers" in await tools(client)
            assert "Only an administrator" in text(await client.call("add_mcp_server", **added))
            assert "Too many calls" in text(await client.call("list_mcp_servers"))


@real
@pytest.mark.parametrize("others", [[], [{"id": "other", "mcp_server_access": "all"}]], ids=["the last", "one of two"])
@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_client_that_is_removed_while_it_is_served_has_no_rights_any_more(era: str, others: list[Json]) -> None:
    mine: Json = {"id": "ci", "mcp_server_access": "all"}
    servers = {"one": child("opening", "-32601"), "two": child("opening", "-32601")}
    with home() as environ:
        file = Path(environ["HOME"], "toolgate.json")
        piped = asyncio.subprocess.PIPE
        settings: Json = {"clients": [mine, *others]}
        command = ("stdio", "--client", "ci")
        async with toolgate(*command, config=servers, stdin=piped, environ=environ, **settings) as running:
            client = Client(running, era)
            await client.opens()
            assert "result" in await client.call("one__echo", say="x")
            file.write_text(json.dumps({"mcpServers": servers, "clients": others or [{**mine, "id": "another"}]}))
            async with asyncio.timeout(WAIT):
                while "error" not in (answer := await client.call("one__echo", say="x")):
                    await asyncio.sleep(0.05)
            assert "error" in await client.call("two__echo", say="x"), answer
            assert running.process.stdin
            running.process.stdin.close()
            assert await running.ended() == 0
            said = running.errors.decode()
            assert "has no client ci, given by --client: its requests are refused" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("flags", "clients", "why"),
    [
        (["--client", "nobody"], [CI], "nobody"),
        (["--client", "ci"], None, "add it to `clients`"),
        (["--client", "ci"], [{**CI, "enabled": False}], "disabled"),
    ],
)
@real
async def test_a_client_that_is_not_there_is_refused(flags: list[str], clients: Any, why: str) -> None:
    with home() as environ:
        file = Path(environ["HOME"], "toolgate.json")
        config: Json = {"mcpServers": {"one": child("opening", "-32601")}} | ({"clients": clients} if clients else {})
        file.write_text(json.dumps(config))
        code, said = await cli(environ, "stdio", *flags)
        assert (code, why in said, "Traceback" in said) == (2, True, False), said


def _audit(environ: dict[str, str]) -> list[str]:
    (found,) = (path for path in Path(environ["HOME"]).rglob("audit.jsonl") if os.path.getsize(path))
    return found.read_text().splitlines()


@real
@ERAS
async def test_a_configuration_without_servers_is_served(era: str) -> None:
    async with toolgate("stdio", config={}, stdin=asyncio.subprocess.PIPE) as running:
        client = Client(running, era)
        await client.opens()
        assert (await client.ask("tools/list"))["result"]["tools"] == []
        refused = (await client.ask("tools/call", name="nobody__echo", arguments={}))["error"]
        assert refused["data"]["code"] == "TOOL_NOT_FOUND"
