"""A server that does nothing but nonsense fills no disk through the log: some of it is told, and how much there was."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, tools
from processes.ground import gateway as over_http
from processes.ground import home, real, settings, toolgate
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core.clock import SystemClock
from toolgate.core.complaints import MOST, WHILE, Complaints
from toolgate.core.inflow import IntakeQueue
from toolgate.frontends import tls, unread
from toolgate.upstreams.links.http import HttpLink
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.links.stdio import StdioLink

NONSENSE = "what is not a message " + "x" * 200
FLOOD = """
import sys
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    sys.stdout.write(sys.argv[2] + "\\n")
sys.stdout.flush()
for line in sys.stdin:
    pass
"""


Told = Callable[[], list[str]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    """What the log has so far."""
    return lambda: [each.getMessage() for each in caplog.records]


async def nowhere(host: str, port: int) -> Any:
    raise ConnectionRefusedError


class Nobody:
    principal = ""

    def __getattr__(self, name: str) -> Any:
        return lambda *_given: None


@pytest.mark.promise("b.attacks.logs")
async def test_of_session_ids_that_are_too_long_some_are_told(told: Told) -> None:
    clock = FakeClock()
    server = Server(id="there", name="There", type="http", url="http://localhost/mcp")
    complaints = Complaints(clock)
    link = HttpLink(server, Nobody(), clock, nowhere, IntakeQueue(), Places(clock), complaints=complaints)
    for _ in range(1000):
        link.answered_in(b"s" * 5000)
    assert len(told()) == MOST + 1
    await link.close()
    complaints.close()


@pytest.mark.promise("b.attacks.logs")
async def test_of_lines_that_are_no_message_some_are_logged_and_the_rest_is_counted(told: Told) -> None:
    clock = FakeClock()
    complaints = Complaints(clock)
    link = StdioLink(
        Server(id="there", name="There", type="stdio", command="x"), Nobody(), SystemClock(), IntakeQueue(), complaints
    )
    link._output((NONSENSE + "\n").encode() * 10_000)
    await settle()
    assert len(told()) == MOST + 1 and "not logged for the next" in told()[-1]
    await clock.advance(WHILE)
    assert told()[-1] == f"there: {10_000 - MOST} more lines like this were not logged"
    link._output(b"nonsense again\n")
    assert "nonsense again" in told()[-1], "what it does later is told again"
    complaints.close()


@pytest.mark.promise("b.attacks.logs")
@pytest.mark.parametrize("flood", [b"{", b'{"jsonrpc":"1.0","method":"x"}', b'{"jsonrpc":"2.0","id":{},"method":"x"}'])
async def test_of_messages_out_of_shape_too(flood: bytes, told: Told) -> None:
    script = Scripted(tools_list=tools("read"))
    async with gateway(scripts={"there": script}) as app:
        await Visitor(app).ask("tools/list")
        for _ in range(1000):
            script.say(flood)
        await settle()
        assert len([each for each in told() if "invalid message" in each]) == MOST
    assert f"there: {1000 - MOST} more lines" in told()[-1], "it is said at the end of the gateway, too"


@pytest.mark.promise("b.attacks.logs")
async def test_of_lists_full_of_nonsense_there_is_one_line_and_other_servers_have_their_own_share(told: Told) -> None:
    listed = {
        "tools": [
            *({"title": f"{each}", "inputSchema": {"type": "object"}} for each in range(5000)),
            *tools("read")["tools"],
        ]
    }
    scripts = {each: Scripted(tools_list=listed) for each in ("one", "two")}
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        assert len((await visitor.ask("tools/list")).result["tools"]) == 2
        assert len([each for each in told() if "in its tools: 5000" in each]) == 2
        for _ in range(100):
            scripts["one"].say(b"{")
        scripts["two"].say(b"{")
        await settle()
        assert "two sent an invalid message" in told()[-1]


@pytest.mark.promise("b.attacks.logs")
async def test_a_server_that_is_started_again_and_again_has_one_share(told: Told) -> None:
    script = Scripted(tools_list=tools("read"))
    async with gateway(scripts={"there": script}) as app:
        for _ in range(3 * MOST):
            await Visitor(app).ask("tools/call", name="there__read")
            script.hang_up("it ended")
            await settle()
        assert len([each for each in told() if "it ended" in each]) <= MOST
        assert "not logged for the next" in "\n".join(told())


async def flooded(lines: int, folder: Path) -> tuple[bytes, float]:
    """What the log of a gateway has of a child that floods its stdout."""
    flood = {"command": sys.executable, "args": ["-S", "-c", FLOOD, str(lines), NONSENSE], "start_timeout": "3s"}
    with home() as environ:
        async with toolgate("serve", "--port", "0", config={"there": flood}, environ=environ) as served:
            client = await served.until_it_serves()
            await asyncio.wait([asyncio.ensure_future(client.call("list_tools", server="there"))])
            assert json.loads(await client.call("status"))["status"] == "running"
            return bytes(served.errors), lines * len(NONSENSE)


@pytest.mark.promise("b.attacks.logs")
@real
async def test_a_child_that_floods_its_stdout_leaves_a_short_log(tmp_path: Path) -> None:
    log, _ = await flooded(5_000, tmp_path)
    assert len(log) < 64 * 1024 and log.count(b"what is not a message") <= MOST and b"not logged for the next" in log


@pytest.mark.attack
@real
async def test_a_child_that_floods_for_long_leaves_a_short_log(tmp_path: Path) -> None:
    log, _ = await flooded(500_000, tmp_path)
    assert len(log) < 64 * 1024


@real
async def test_what_is_no_http_fills_no_log(told: Told) -> None:
    async with over_http(settings()) as served:
        for _ in range(3 * MOST):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"\x01\r\n\r\n")
            await reader.read()
            writer.close()
        assert len([each for each in told() if each.startswith("Invalid HTTP")]) == MOST
    assert f"an HTTP client: {2 * MOST} more lines" in told()[-1]


@real
async def test_strangers_hide_neither_a_client_that_does_not_read_nor_what_is_said_of_the_certificate(
    told: Told,
) -> None:
    async with over_http(settings()):
        for log in (logging.getLogger("uvicorn.error"), tls.of_clients):
            for _ in range(3 * MOST):
                log.warning("wrong")
        unread.log.warning("a connection of ann was closed")
        tls.log.warning("still serving the previous certificate")
        said = told()
        assert said.count("wrong") == 2 * MOST
        assert said[-2:] == ["a connection of ann was closed", "still serving the previous certificate"]


@real
async def test_failures_that_clients_bring_about_hide_no_other_failure(told: Told) -> None:
    """A WebSocket that is refused, and a client that goes while its answer is written."""
    async with over_http(settings()):
        log = logging.getLogger("uvicorn.error")

        def gone() -> None:
            raise RuntimeError("the handler is closed")

        def broken() -> None:
            raise RuntimeError("something of ours is broken")

        def fails(work: Callable[[], None]) -> None:
            try:
                work()
            except RuntimeError:
                log.exception("Exception in ASGI application")

        for _ in range(3 * MOST):
            log.error("ASGI callable returned without completing handshake.")
            fails(gone)
        fails(broken)
        said = told()
        assert said.count("ASGI callable returned without completing handshake.") == MOST
        assert said.count("Exception in ASGI application") == MOST + 1
    assert sum(f"{2 * MOST} more lines" in line for line in told()) == 2
