"""Who is told of a call that waits for an operator: the log, a command, a webhook, and whoever watches."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from processes.ground import MODERN, WAIT, Client, Failed, Json, child, home, real, toolgate, until

from toolgate.auth.safe_net import SafeNet
from toolgate.config import Config
from toolgate.config.access import Approvals
from toolgate.core.clock import SystemClock
from toolgate.core.redaction import Redactor
from toolgate.gateway import notices
from toolgate.gateway.notices import MOST_WAITING, Notices
from toolgate.policy.approvals import Place, StoredRequest
from toolgate.upstreams.process.supervisor import Supervisor

KEY = "tg-a-key-that-is-long-enough"
SECRET = "canary-0123456789"
TAKES = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


def asking(**approvals: object) -> Json:
    """A configuration whose one client's calls all wait for an operator."""
    clients = [{"id": "ci", "key": KEY, "mcp_server_access": "all", "mcp_permissions": {"global": "ask"}}]
    return {"clients": clients, "approvals": {"by": ["operator"], "wait": "0s", **approvals}}


def waiting(id: str = "one") -> StoredRequest:
    place = Place("client:ci", "files", "", "tools", "delete")
    return StoredRequest(id=id, place=place, digest="", shown='{"path": "/a"}', asked=0.0, until=900.0)


def made(**approvals: object) -> tuple[Notices, Supervisor]:
    clock = SystemClock()
    supervisor = Supervisor(clock, {"PATH": "/usr/bin:/bin"})
    config = Config(approvals=Approvals(**approvals))  # type: ignore[arg-type]
    return Notices(config, clock, supervisor, SafeNet(), Redactor([SECRET])), supervisor


@pytest.mark.promise("b.approval.told")
@real
async def test_the_log_and_a_command_are_told_of_a_call_that_waits(tmp_path: Path) -> None:
    file = tmp_path / "told"
    with home() as environ:
        config = asking(notify=[sys.executable, "-c", TAKES, str(file)])
        servers = {"one": child("counting")}
        async with toolgate("serve", "--port", "0", config=servers, environ=environ, **config) as running:
            port = (await running.until_it_serves()).port
            client = Client(port, MODERN)
            client.headers.append(f"Authorization: Bearer {KEY}")
            with pytest.raises(Failed) as failed:
                await client.call("one__counts")
            id = failed.value.data["approval"]["id"]
            command = f"toolgate approvals allow {id} --config {environ['HOME']}/toolgate.json"
            await running.until_it_says(command.encode())
            await until(lambda: file.exists() and file.read_text().endswith("\n"))
            told = json.loads(file.read_text())
            assert (told["id"], told["server"], told["target"], told["command"]) == (id, "one", "counts", command)
            watching = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "toolgate", "approvals", "watch", "--json"],
                *["--config", f"{environ['HOME']}/toolgate.json"],
                stdout=asyncio.subprocess.PIPE,
                env=environ,
            )
            assert watching.stdout
            async with asyncio.timeout(WAIT):
                assert json.loads(await watching.stdout.readline())["id"] == id
            watching.kill()
            await watching.wait()


@pytest.mark.promise("b.approval.told")
@real
async def test_a_webhook_is_told_without_secrets() -> None:
    bodies: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        bodies.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told, supervisor = made(notify=f"http://127.0.0.1:{port}/hook")
    request = StoredRequest(
        id="one", place=waiting().place, digest="", shown=f'{{"token": "{SECRET}"}}', asked=0.0, until=900.0
    )
    told.waits(request)
    await until(lambda: bodies)
    assert json.loads(bodies[0])["target"] == "delete" and SECRET.encode() not in bodies[0]
    await told.close()
    await supervisor.close()
    server.close()
    await server.wait_closed()


@real
async def test_one_that_does_not_end_holds_nothing_up_and_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "PATIENCE", 0.2)
    told, supervisor = made(notify=("sleep", "1000"))
    for number in range(MOST_WAITING + 5):
        told.waits(waiting(str(number)))
    assert "too many notices are queued" in caplog.text
    await until(lambda: "did not finish within" in caplog.text)
    await told.close()
    await supervisor.close()


@real
async def test_one_that_fails_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    told, supervisor = made(notify=("sh", "-c", "cat >&2; echo it is full >&2; exit 3"))
    told.waits(waiting())
    await until(lambda: "approvals.notify failed" in caplog.text)
    assert "status 3" in caplog.text and "it is full" in caplog.text
    await told.close()
    await supervisor.close()
