"""`toolgate hook` as agents' programs run it: whatever the gateway does, it says something within its time, ends well
and loses nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes.ground import WAIT, Gateway, Json, child, home, real, toolgate, until

from toolgate.config import Config, state_folder
from toolgate.frontends import hook
from toolgate.workspace.hooks import LONGEST_PAYLOAD, SPOOL

ENTRY = [sys.executable, "-I", "-W", "error", "-c", "from toolgate.frontends.hook import main; main()"]
START = {"session_id": "one", "cwd": "/repo", "hook_event_name": "SessionStart", "source": "startup"}
PROMPT = {"session_id": "one", "cwd": "/repo", "hook_event_name": "UserPromptSubmit", "prompt": "Mend the login"}
END = {"session_id": "one", "cwd": "/repo", "hook_event_name": "SessionEnd", "reason": "exit"}
NEXT = {**START, "session_id": "two"}


async def run(environ: dict[str, str], payload: Json | bytes, *arguments: str, entry: list[str] = ENTRY) -> Json:
    """What a hook prints; it ends with 0."""
    process = await asyncio.create_subprocess_exec(
        *[*entry, *(arguments or ("claude",))],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    async with asyncio.timeout(WAIT):
        out, err = await process.communicate(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
    assert (process.returncode, err) == (0, b"")
    return json.loads(out)


def state(environ: dict[str, str]) -> Path:
    return Path(environ["HOME"], ".local", "state", "toolgate")


def unread(environ: dict[str, str]) -> list[Path]:
    return sorted((state(environ) / SPOOL).glob("[0-9]*"))


def records(environ: dict[str, str]) -> list[tuple[str, str, str]]:
    connection = sqlite3.connect(f"file:{state(environ) / 'toolgate.db'}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT id, status, title FROM session_record ORDER BY created_at, id").fetchall()
    finally:
        connection.close()


@asynccontextmanager
async def serving(environ: dict[str, str]) -> AsyncIterator[Gateway]:
    async with toolgate("serve", "--port", "0", config={"one": child("counting")}, environ=environ) as gateway:
        await gateway.until_it_serves()
        await until(lambda: list(state(environ).glob("run/*.sock")))
        yield gateway


@pytest.mark.promise("004.hooks.start")
@real
async def test_a_gateway_that_runs_is_told_at_once_and_its_answer_is_printed() -> None:
    with home() as environ:
        async with serving(environ):
            told = [await run(environ, each, "claude", "--wait", "10") for each in (START, PROMPT, END, NEXT)]
            assert told[1:3] == [{}, {}] and "one" in told[0]["hookSpecificOutput"]["additionalContext"]
            assert "Mend the login" in told[3]["hookSpecificOutput"]["additionalContext"]
            assert not unread(environ)


@real
async def test_what_is_said_while_no_gateway_runs_is_read_by_the_next() -> None:
    with home() as environ:
        assert [await run(environ, payload) for payload in (START, PROMPT, END)] == [{}, {}, {}]
        assert len(unread(environ)) == 3
        assert stat.S_IMODE((state(environ) / SPOOL).stat().st_mode) == 0o700
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in unread(environ))
        async with serving(environ):
            await until(lambda: not unread(environ))
            assert records(environ) == [("one", "handoff_ready", "Mend the login")]


@real
async def test_a_gateway_that_hangs_holds_no_hook_up_and_reads_it_when_it_goes_on() -> None:
    with home() as environ:
        async with serving(environ) as gateway:
            gateway.process.send_signal(signal.SIGSTOP)
            try:
                assert [await run(environ, payload) for payload in (START, PROMPT)] == [{}, {}]
            finally:
                gateway.process.send_signal(signal.SIGCONT)
            await until(lambda: not unread(environ))
            assert records(environ) == [("one", "active", "Mend the login")]


@real
async def test_a_gateway_that_is_killed_over_it_has_lost_nothing() -> None:
    with home() as environ:
        async with serving(environ) as gateway:
            gateway.process.send_signal(signal.SIGSTOP)
            await run(environ, START)
            gateway.process.kill()
        async with serving(environ):
            await until(lambda: not unread(environ))
            assert [id for id, _, _ in records(environ)] == ["one"]


@real
async def test_the_command_is_the_same_and_finds_another_folder() -> None:
    with home() as environ:
        other = Path(environ["HOME"], "other state")
        entry = [sys.executable, "-m", "toolgate", "hook"]
        assert await run(environ, START, "--state", str(other), "gemini", entry=entry) == {}
        [file] = (other / SPOOL).glob("[0-9]*")
        assert file.name.endswith("-gemini.json") and json.loads(file.read_bytes()) == START


@real
@pytest.mark.parametrize(
    "arguments",
    [(), ("--state",), ("--wait", "long"), ("--wait", "."), ("Ünï", "x", "--what"), ("../../etc",), ("x" * 500,)],
)
async def test_no_argument_fails_a_hook(arguments: tuple[str, ...]) -> None:
    with home() as environ:
        assert await run(environ, START, *arguments) == {}
        [file] = unread(environ)
        assert json.loads(file.read_bytes()) == START


@real
async def test_no_payload_and_no_folder_fails_a_hook() -> None:
    with home() as environ:
        for payload in (b"", b"x" * (LONGEST_PAYLOAD + 1)):
            assert await run(environ, payload) == {}
        assert unread(environ) == []
        (state(environ) / SPOOL).chmod(0o777)
        assert await run(environ, START) == {}
        assert unread(environ) == []
        assert await run({**environ, "HOME": "/proc/nowhere", "XDG_STATE_HOME": ""}, START) == {}


def test_what_came_first_is_kept_where_the_folder_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MOST_FILES", 3)
    for number in range(5):
        hook.handed_over(str(tmp_path), "claude", b"%d" % number)
    files = sorted((tmp_path / SPOOL).glob("[0-9]*"))
    assert [file.read_bytes() for file in files] == [b"0", b"1", b"2"]
    monkeypatch.setattr(hook, "MOST_FILES", 1000)
    monkeypatch.setattr(hook, "MOST_BYTES", 10)
    hook.handed_over(str(tmp_path), "claude", b"x" * 8)
    hook.handed_over(str(tmp_path), "claude", b"x" * 7)
    assert sum(file.stat().st_size for file in (tmp_path / SPOOL).glob("[0-9]*")) == 10


CONTEXT = b'{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"%s"}}'
ALLOWED = {
    "nothing": b"{}",
    "context": CONTEXT % b"one",
    "any text": CONTEXT
    % json.dumps('\n\t\b\f\r\x01\x1f\\\\u \\ "}}" \U0001f41d Ünï \u2028', ensure_ascii=False)[1:-1].encode(),
}
BROKEN = {
    "no JSON": b"{oops",
    "another text": b"<html></html>",
    "empty": b"",
    "cut off": CONTEXT[:-2] % b"one",
    "cut off where it looks whole": CONTEXT[:-3] % b'one\\"}}',
    "more behind it": (CONTEXT % b"one") + b"{}",
    "huge": CONTEXT % (b"x" * hook.LONGEST_ANSWER),
    "no UTF-8": CONTEXT % b"\xff",
    "no escape": CONTEXT % b"\\x41",
    "half an escape": CONTEXT % b"\\u00",
    "an escape that is put together": CONTEXT % b"\\u0\\\\041",
    "a raw line feed": CONTEXT % b"one\ntwo",
    "an end of the text": CONTEXT % b'one","more":"two',
    "another event": (CONTEXT % b"one").replace(b"SessionStart", b"UserPromptSubmit"),
    "a decision": b'{"decision":"block","reason":"no"}',
    "an end of the session": b'{"continue":false}',
    "a permission": b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}',
}


@contextmanager
def answering(state: Path, *parts: bytes) -> Iterator[None]:
    """A gateway of this folder that says just this."""
    (state / "run").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(state / "run" / "1.sock"))
        listener.listen()
        listener.settimeout(WAIT)

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                for part in parts:
                    connection.sendall(part)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize("body", ALLOWED.values(), ids=ALLOWED)
def test_what_a_gateway_answers_is_printed_where_programs_take_it(tmp_path: Path, body: bytes) -> None:
    json.loads(body)
    with answering(tmp_path, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", body):
        assert hook.handed_over(str(tmp_path), "claude", b"{}", WAIT) == body


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_is_broken_or_more_than_context_is_not_printed(tmp_path: Path, body: bytes) -> None:
    with answering(tmp_path, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", body):
        assert hook.handed_over(str(tmp_path), "claude", b"{}", WAIT) == b"{}"


PIECES = [b"\\", b'"', b"u", b"00e9", b"n", b"x", b"/", b" ", b"\x01", b"\xff", "é".encode(), b"}}"]


@given(st.lists(st.sampled_from(PIECES)).map(b"".join))
def test_context_is_printed_where_it_is_json(text: bytes) -> None:
    try:
        read = json.loads(CONTEXT % text)
    except ValueError:
        read = None
    assert hook.is_allowed(CONTEXT % text) == (read is not None)


@pytest.mark.parametrize("head", [b"HTTP/1.1 500 Oh\r\n\r\n", b"HTTP/1.1 404 No\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b""])
def test_what_is_no_answer_is_not_printed(tmp_path: Path, head: bytes) -> None:
    with answering(tmp_path, head, CONTEXT % b"one"):
        assert hook.handed_over(str(tmp_path), "claude", b"{}", WAIT) == b"{}"


def test_it_imports_next_to_nothing() -> None:
    """Each module takes its program's time at each event."""
    shown = [
        subprocess.run([sys.executable, "-I", "-c", f"import sys{more}; print(*sys.modules)"], capture_output=True)
        for more in ("", ", toolgate.frontends.hook")
    ]
    bare, whole = ({name.split(".")[0].strip("_") for name in each.stdout.decode().split()} for each in shown)
    assert "toolgate" in whole and whole - bare <= {"toolgate", "future", "select", "socket"}


@pytest.mark.parametrize(
    "environ", [{"HOME": "/x"}, {"HOME": "/x", "XDG_STATE_HOME": "/y"}, {"HOME": "/x", "XDG_STATE_HOME": "y"}]
)
def test_the_folder_is_that_of_the_gateway(environ: dict[str, str]) -> None:
    assert hook.state_folder(environ) == os.fspath(state_folder(Config(), environ))
    assert hook.LONGEST_PAYLOAD == LONGEST_PAYLOAD
