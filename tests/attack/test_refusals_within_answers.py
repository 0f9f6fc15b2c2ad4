"""A request that is refused before anybody knows whose it is, sent behind another one that is being answered: its
refusal would stand within that answer, and a proxy that shares the connection would take it for another client's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from inmemory import LATEST, META, MODERN, Json, Scripted, said, tools
from processes.ground import WAIT, Served, gateway, read_response, real, until
from wires import modern

from toolgate.config import Config, Server
from toolgate.upstreams.links.memory import MemoryLink

REVISION: Json = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
HOST = b"Host: localhost\r\n"
REFUSED = {
    "many lines": (b"GET /mcp HTTP/1.1\r\n" + b"a:b\r\n" * 405, 431),
    "a long line": (b"GET /mcp HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 133_000, 431),
    "a long target": (b"GET /mcp?" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "a malformed target": (b"GET /mcp/%zz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "no HTTP": (b"HELO localhost\r\n\r\n", 400),
    "a tunnel": (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
}


def call(id: int, tool: str) -> bytes:
    params: Json = {"name": f"docs__{tool}", "arguments": {}, "_meta": {"progressToken": id, **REVISION}}
    return modern(id, "tools/call", params)


async def asked_of(script: Scripted) -> Json:
    """The call that is under way."""

    def found() -> list[Json]:
        calls = [each for each in script.requests if each.get("method") == "tools/call"]
        return [each for each in calls if each["params"]["name"] == "slow"]

    await until(found)
    return found()[0]


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[Served, Scripted]]:
    """A gateway on a socket. Its server answers `quick`, and is silent on `slow`."""

    def answer(asked: Json) -> object:
        return said("quick") if asked["name"] == "quick" else ...

    script = Scripted(LATEST, tools_list=tools("quick", "slow"), tools_call=answer)

    async def make(server: Server, receiver: Any, _ground: Any) -> MemoryLink:
        return MemoryLink(server.name, script, receiver)

    config = Config((Server(id="docs", name="docs", type="stdio", command="memory"),))
    async with gateway(config, links={"docs": make}) as found, asyncio.timeout(WAIT):
        yield found, script


@asynccontextmanager
async def connected(to: Served) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends."""
    found = b""
    try:
        while piece := await reader.read(65536):
            found += piece
    except ConnectionResetError:  # what the gateway has not read is thrown away
        pass
    return found


@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.parametrize("before", [0, 1, 2])
@real
async def test_what_is_refused_behind_answers_that_are_out_is_told_so(how: str, before: int) -> None:
    refused, status = REFUSED[how]
    async with served() as (to, _), connected(to) as (reader, writer):
        for id in range(before):
            writer.write(call(id, "quick"))
            assert (await read_response(reader))[0] == 200
        writer.write(refused)
        told = await rest(reader)
        assert told.startswith(b"HTTP/1.1 %d " % status) and told.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in told


@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.parametrize("before", [0, 2])
@real
async def test_what_is_refused_behind_a_request_without_an_answer_ends_the_connection(how: str, before: int) -> None:
    async with served() as (to, script), connected(to) as (reader, writer):
        for id in range(before):
            writer.write(call(id, "quick"))
            assert (await read_response(reader))[0] == 200
        writer.write(call(8, "slow"))
        await asked_of(script)
        writer.write(REFUSED[how][0])
        assert await rest(reader) == b""


@pytest.mark.parametrize("how", REFUSED)
@real
async def test_what_is_refused_behind_half_an_answer_is_no_part_of_it(how: str) -> None:
    async with served() as (to, script), connected(to) as (reader, writer):
        writer.write(call(1, "slow"))
        token = (await asked_of(script))["params"]["_meta"]["progressToken"]
        script.tell("notifications/progress", progressToken=token, progress=1)
        told = await reader.readuntil(b'"progress":1')
        writer.write(REFUSED[how][0])
        told += await rest(reader)
        assert told.startswith(b"HTTP/1.1 200 ") and told.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("how", REFUSED)
@real
async def test_what_is_refused_behind_a_request_that_waits_for_another_comes_behind_the_answers_of_both(
    how: str,
) -> None:
    refused, status = REFUSED[how]
    async with served() as (to, script), connected(to) as (reader, writer):
        writer.write(call(1, "slow"))
        await asked_of(script)
        writer.write(call(2, "quick") + refused)
        script.answer_last(said("slow"))
        told = await rest(reader)
        found = re.findall(rb"HTTP/1.1 (\d+) ", told)
        assert found in ([], [b"200"], [b"200", b"200"], [b"200", b"200", b"%d" % status])


BROKEN = b"POST %b HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"


@pytest.mark.parametrize("is_behind", [False, True])
@real
async def test_a_body_that_is_broken_is_refused_where_nothing_of_an_answer_is_out(is_behind: bool) -> None:
    async with served() as (to, script), connected(to) as (reader, writer):
        if is_behind:
            writer.write(call(1, "slow"))
            await asked_of(script)
        writer.write(BROKEN % b"/mcp")
        told = await rest(reader)
        assert told.startswith(b"HTTP/1.1 400 ") != is_behind and told.count(b"HTTP/1.1 ") == (not is_behind)


@real
async def test_a_body_that_is_broken_behind_its_own_answer_gets_no_second_one() -> None:
    async with served() as (to, _), connected(to) as (reader, writer):
        head, _, broken = (BROKEN % b"/nowhere").partition(b"zz")
        writer.write(head)
        assert (await read_response(reader))[0] == 404
        writer.write(b"zz" + broken)
        assert await rest(reader) == b""
