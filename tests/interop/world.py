"""The pieces of the interop suite: the clients, the servers, the gateway process, and how each is run and ended.

Rules: every wait is bounded; nothing sleeps; only processes that were started here are ended; servers and
gateway keep their HOME and their files in a temporary folder and listen on loopback only.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import installed

SECONDS = 120.0
DRIVERS = installed.HERE / "clients"
MODERN = "2026-07-28"
LEGACY = "2025-11-25"


@dataclass(frozen=True)
class Client:
    """One generation of one SDK in one mode, as a command that takes the options of `clients/plan.py`."""

    name: str
    command: Sequence[str]
    speaks: str
    """The revision that it settles on with a peer that serves every one."""

    @property
    def is_modern(self) -> bool:
        return self.speaks == MODERN

    @property
    def loses_the_last_progress(self) -> bool:
        """The TypeScript SDKs forget a call's progress callback when its reply is read, and run callbacks later: the
        last note is lost where it arrives in one piece with the reply. (Seen on both generations, without a gateway.)
        """
        return self.name.startswith("typescript")

    def root(self) -> str:
        """What this client calls its root. Modern clients have no session, so on an open gateway they are one
        principal, who has one connection to a server with `scope: session` and therefore one set of roots.
        """
        return "file:///roots/modern" if self.is_modern else f"file:///roots/{self.name}"


def _python2(mode: str) -> list[str]:
    return [sys.executable, "-W", "error", str(DRIVERS / "python2.py"), "--mode", mode]


def _typescript(generation: str, mode: str) -> list[str]:
    node = shutil.which("node") or "node"
    script = str(DRIVERS / "typescript.mjs")
    return [node, script, "--modules", str(installed.NPM), "--sdk", generation, "--mode", mode]


_PYTHON1 = [str(installed.PY1 / "bin" / "python"), "-W", "error", str(DRIVERS / "python1.py")]

CLIENTS = {
    client.name: client
    for client in (
        Client("python2-legacy", _python2("legacy"), LEGACY),
        Client("python2-auto", _python2("auto"), MODERN),
        Client("python2-pinned", _python2(MODERN), MODERN),
        Client("python1", _PYTHON1, LEGACY),
        Client("typescript2-legacy", _typescript("2", "legacy"), LEGACY),
        Client("typescript2-auto", _typescript("2", "auto"), MODERN),
        Client("typescript2-pinned", _typescript("2", MODERN), MODERN),
        Client("typescript1", _typescript("1", "legacy"), LEGACY),
    )
}


def environment(home: Path) -> dict[str, str]:
    """What every process of the suite starts with: nothing of the caller's home, and no proxy. With
    `TOOLGATE_WORKERS` gateways have so many workers."""
    kept = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT", "TOOLGATE_WORKERS")
    folders = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    for name in folders:
        folder = home / name.lower()
        folder.mkdir(parents=True, exist_ok=True)
        env[name] = str(folder)
    return env | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "NO_PROXY": "*", "TZ": "UTC"}


# -- running clients -----------------------------------------------------------------------------------------------


def at_url(url: str) -> list[str]:
    return ["--url", url]


def at_command(command: Sequence[str]) -> list[str]:
    return ["--stdio", json.dumps(list(command))]


def run_client(client: Client, where: list[str], home: Path, *options: str) -> dict[str, Any]:
    """Run one client to its end and return its report."""
    done = subprocess.run(
        [*client.command, *where, *options],
        env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return _report(client, done.stdout, done.stderr)


def _report(client: Client, stdout: str, stderr: str) -> dict[str, Any]:
    try:
        return json.loads(stdout)
    except ValueError:
        raise AssertionError(f"{client.name} gave no report, but\n{stdout}\n{stderr}") from None


@contextmanager
def process(command: Sequence[str], home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of ours, gone at the end: asked first, killed if it does not listen."""
    started = subprocess.Popen(
        list(command),
        env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait(20)
        for stream in (started.stdin, started.stdout, started.stderr):
            if stream is not None:
                stream.close()


class Lines:
    """What a process writes, read all the time so that it never blocks; waited for line by line."""

    def __init__(self, stream: Any) -> None:
        self.seen: list[str] = []
        self._incoming: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._incoming.put(line)
        self._incoming.put(None)

    def until(self, pattern: str, seconds: float = SECONDS) -> re.Match[str]:
        while True:
            try:
                line = self._incoming.get(timeout=seconds)
            except queue.Empty:
                raise AssertionError(f"no {pattern!r} within {seconds} s, but\n{self.text()}") from None
            if line is None:
                raise AssertionError(f"ended without {pattern!r}, but\n{self.text()}")
            self.seen.append(line)
            if found := re.search(pattern, line):
                return found

    def rest(self) -> str:
        """Everything until the process has closed this stream."""
        self._reader.join(SECONDS)
        while (line := self._incoming.get(timeout=SECONDS)) is not None:
            self.seen.append(line)
        return self.text()

    def text(self) -> str:
        return "".join(self.seen)


def run_together(clients: Sequence[tuple[Client, str]], where: list[str], home: Path, *options: str) -> list[Any]:
    """Run clients at once: none begins before all are connected, none closes before all are done."""
    if not clients:
        return []
    return _together(list(clients), where, home, options, [])


def _together(
    waiting: list[tuple[Client, str]],
    where: list[str],
    home: Path,
    options: Sequence[str],
    running: list[tuple[Client, subprocess.Popen[str], Lines, Lines]],
) -> list[Any]:
    if waiting:
        (client, root), *others = waiting
        command = [*client.command, *where, *options, "--root", root, "--barrier"]
        with process(command, home / f"together-{len(running)}") as started:
            entry = (client, started, Lines(started.stdout), Lines(started.stderr))
            return _together(others, where, home, options, [*running, entry])
    for word in ("ready", "done"):
        for _, _, _, errors in running:
            errors.until(f"^{word}$")
        for _, started, _, _ in running:
            assert started.stdin is not None
            started.stdin.write("go on\n")
            started.stdin.flush()
    for _, started, _, _ in running:
        started.wait(SECONDS)
    return [_report(client, output.rest(), errors.rest()) for client, _, output, errors in running]


# -- servers and gateway -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """What the five servers work on."""

    folder: Path
    hello: Path
    graph: Path
    repository: Path


GREETING = "Hello from a file.\nSecond line, with ünïcode.\n"
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}


def make_files(home: Path) -> Files:
    folder = home.resolve() / "work"
    shared = folder / "shared"
    shared.mkdir(parents=True)
    hello = shared / "hello.txt"
    hello.write_text(GREETING, encoding="utf-8")
    graph = folder / "graph.jsonl"
    graph.write_text(json.dumps({"type": "entity", **ENTITY}) + "\n", encoding="utf-8")
    repository = folder / "repository"
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    repository.mkdir()
    (repository / "notes.txt").write_text("a note\n", encoding="utf-8")
    for arguments in (["init", "--quiet", "-b", "main"], ["add", "notes.txt"], ["commit", "--quiet", "-m", "first"]):
        subprocess.run([*git, *arguments], cwd=repository, env=environment(home), check=True, timeout=SECONDS)
    return Files(folder, hello, graph, repository)


def everything(*arguments: str) -> list[str]:
    return [shutil.which("node") or "node", installed.npm_server("server-everything"), *arguments]


def config(files: Files) -> dict[str, Any]:
    """All five as stdio children; `everything` asks its clients, so each session has one of its own."""
    node = shutil.which("node") or "node"

    def server(command: Sequence[str], **more: Any) -> dict[str, Any]:
        return {"command": command[0], "args": list(command[1:]), "timeout": 60, **more}

    filesystem = [node, installed.npm_server("server-filesystem"), str(files.hello.parent)]
    memory = [node, installed.npm_server("server-memory")]
    git = [*installed.python_server("mcp_server_git"), "--repository", str(files.repository)]
    return {
        "catalog": {"first_wait": "10s"},  # what is listed first must not depend on how busy the machine is
        "mcpServers": {
            "everything": server(everything("stdio"), scope="session"),
            "filesystem": server(filesystem),
            "memory": server(memory, env={"MEMORY_FILE_PATH": str(files.graph)}),
            "time": server([*installed.python_server("mcp_server_time"), "--local-timezone", "UTC"]),
            "git": server(git, env={"LC_ALL": "C.UTF-8"}),
        },
    }


def write_config(files: Files) -> Path:
    path = files.folder / "toolgate.json"
    path.write_text(json.dumps(config(files), indent=2), encoding="utf-8")
    return path


def toolgate(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "default", "-m", "toolgate", *arguments]


@dataclass(frozen=True)
class Gateway:
    url: str
    files: Files
    home: Path


@contextmanager
def gateway(home: Path) -> Iterator[Gateway]:
    """One gateway in front of the five servers."""
    files = make_files(home)
    with serving(toolgate("serve", "--config", str(write_config(files)), "--port", "0"), home) as url:
        yield Gateway(url, files, home)


@contextmanager
def serving(command: Sequence[str], home: Path) -> Iterator[str]:
    """A gateway's process: its URL. At its end it must go when asked, and must not have stumbled."""
    with process(command, home) as started:
        errors = Lines(started.stderr)
        Lines(started.stdout)
        yield errors.until(r"toolgate is listening on (http://127\.0\.0\.1:\d+/mcp)").group(1)
        assert started.poll() is None, f"the gateway ended by itself:\n{errors.rest()}"
        started.terminate()
        started.wait(20)
        said = errors.rest()
    assert "Traceback (most recent call last)" not in said, said
    assert not re.search(r"^\S+\.py:\d+: \w*Warning: ", said, re.MULTILINE), said


@contextmanager
def dual_server(home: Path) -> Iterator[str]:
    """A server of both eras without a gateway (`servers/dual.py`): its URL."""
    command = [sys.executable, "-W", "error", str(installed.HERE / "servers" / "dual.py")]
    with process(command, home) as started:
        Lines(started.stderr)
        yield Lines(started.stdout).until(r"^(http://127\.0\.0\.1:\d+/mcp)$").group(1)
