"""What 100,000 tasks cost: their lists, trees and file, what is done beside them, and writers at once. See README.md.

The gateway is a process of its own with the tasks in its store. One client calls the tools of `gobby-tasks` one after
another, in turns of all kinds; another calls a cheap server, all the while and once without the first.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness import ROOT, TOOLGATE, Gateway, cpu_microseconds, environment

from toolgate.config import Config
from toolgate.core import mcp
from toolgate.core.clock import SystemClock
from toolgate.core.model import Call, Client
from toolgate.state.base import Connection
from toolgate.state.sqlite import SqliteStore
from toolgate.workspace import syncing
from toolgate.workspace.services import internal_servers
from toolgate.workspace.tasks import Task, put, row_of
from toolgate.workspace.workspace import Workspace

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
EXPORT = 5.0  # s of CPU time
LIST, TREE, BESIDE = 20.0, 50.0, 50.0  # ms: p99 of a list, of a tree, and what calls beside them may take longer
PROJECT = "bench"
CLOCK = {"command": sys.executable, "args": ["-I", "-S", str(ROOT / "src" / "toolgate" / "demo" / "clock.py")]}
WORDS = [
    "fix",
    "parse",
    "dates",
    "time",
    "zone",
    "missing",
    "input",
    "tests",
    "users",
    "complain",
    "slow",
    "import",
    "export",
    "retry",
    "cache",
    "header",
]
NAMES = ("ann", "bob", "eve", "joe", None)

# Calls that are held to a limit, in milliseconds; `ID` and `HUB` are tasks.
LISTS: list[tuple[str, dict[str, Any]]] = [
    ("list_tasks", {}),
    ("list_tasks", {"status": "open"}),
    ("list_tasks", {"status": "escalated", "priority": 0}),
    ("list_tasks", {"assignee": "ann", "task_type": "bug"}),
    ("list_tasks", {"assignee": "nobody"}),
    ("list_tasks", {"label": "area-7"}),
    ("list_tasks", {"label": "no such label"}),
    ("list_tasks", {"title_like": "zone missing"}),
    ("list_tasks", {"title_like": "no such title"}),
    ("list_tasks", {"parent_task_id": "HUB"}),
    ("list_ready_tasks", {}),
    ("list_ready_tasks", {"assignee": "ann", "task_type": "chore"}),
    ("list_ready_tasks", {"assignee": "nobody"}),
    ("list_ready_tasks", {"parent_task_id": "HUB"}),
    ("list_blocked_tasks", {}),
]
TREES: list[tuple[str, dict[str, Any]]] = [
    ("get_dependency_tree", {"task_id": "ID"}),
    ("get_dependency_tree", {"task_id": "HUB"}),
    ("get_task", {"task_id": "HUB"}),
]
# Those that are not held to one, but to what they cost others.
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("create_task", {"title": "another one", "blocks": ["ID"]}),
    ("add_dependency", {"task_id": "ID", "depends_on": "ID"}),
    ("list_tasks", {"limit": 10_000}),
    ("check_dependency_cycles", {}),
]


def made(count: int, chance: random.Random) -> tuple[list[Task], list[tuple[str, str]]]:
    """Tasks as they come about: epics with parts, each part after some that are not much older; most of them closed."""
    found: list[Task] = []
    waits: list[tuple[str, str]] = []
    epics: list[str] = []
    for number in range(count):
        at = f"2026-{1 + number * 10 // count:02}-{1 + number % 28:02}T{number % 24:02}:00:00.{number:06}Z"
        status = chance.choices(("open", "in_progress", "closed", "failed", "escalated"), (30, 4, 64, 1, 1))[0]
        is_epic = number % 50 == 0
        task = Task(
            id=f"gt-{number:06x}",
            project_id=PROJECT,
            title=" ".join(chance.sample(WORDS, 8)),
            status=status,
            priority=chance.choice((0, 1, 2, 2, 2, 3)),
            type="epic" if is_epic else chance.choice(("task", "bug", "feature", "chore")),
            created_at=at,
            updated_at=at,
            description="What there is to say. " * chance.randrange(60),
            parent_task_id=None if is_epic else chance.choice(epics[-20:]),
            assignee=chance.choice(NAMES),
            labels=[f"area-{chance.randrange(50)}", "bench"],
        )
        near = found[-300:]
        waits += {(task.id, each.id) for each in chance.sample(near, min(len(near), chance.choice((0, 0, 1, 1, 2))))}
        if is_epic:
            epics.append(task.id)
        found.append(task)
    hub = found[count // 2]
    waits += {(each.id, hub.id) for each in chance.sample(found[count // 2 + 1 :], min(1500, count // 4))}
    return found, waits


async def fill(folder: Path, count: int) -> tuple[list[str], str]:
    """Write them. Tells their ids, and that of one for which many wait."""
    tasks, waits = made(count, random.Random(count))

    def work(connection: Connection) -> None:
        put(connection, [row_of(task) for task in tasks])
        rows = [(*pair, "blocks", "2026-11-24T08:30:00.000000Z") for pair in waits]
        connection.executemany("INSERT INTO task_dependency VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)

    store = SqliteStore(folder, SystemClock())
    await store.transact(work)
    await store.close()
    return [task.id for task in tasks], tasks[count // 2].id


class Caller:
    """One connection to the gateway."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.split("/")[2], timeout=60)

    def call(self, name: str, arguments: dict[str, Any]) -> float:
        """How long it takes, in milliseconds."""
        params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        start = time.perf_counter()
        self._connection.request("POST", "/mcp", body, headers)
        answer = self._connection.getresponse().read()
        took = (time.perf_counter() - start) * 1e3
        if b'"result"' not in answer[:1000]:
            sys.exit(f"{name} {arguments}: {answer[:500].decode()}")
        return took


class Beside:
    """Calls a tool of a cheap server, again and again."""

    def __init__(self, url: str) -> None:
        self.took: list[float] = []
        self._is_over = False
        self._caller = Caller(url)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._is_over:
            self.took.append(self._caller.call("clock__now", {}))
            time.sleep(0.005)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()


def rank(all: list[float], part: float) -> float:
    return sorted(all)[min(len(all) - 1, int(len(all) * part))]


def filled_in(arguments: dict[str, Any], ids: list[str], hub: str, chance: random.Random) -> dict[str, Any]:
    def value(each: Any) -> Any:
        if isinstance(each, list):
            return [value(one) for one in each]
        return chance.choice(ids) if each == "ID" else hub if each == "HUB" else each

    return {name: value(each) for name, each in arguments.items()}


def rows(
    gateway: Gateway, ids: list[str], hub: str, rounds: int
) -> Iterator[tuple[str, list[float], list[float], list[float]]]:
    """Each call with what it took, with the gateway's CPU time for it, and with what calls beside it took."""
    url = gateway.url()
    caller, chance = Caller(url), random.Random(1)
    for tool, arguments in (*LISTS, *TREES, *OTHERS):
        given = [filled_in(arguments, ids, hub, chance) for _ in range(rounds)]
        if tool == "add_dependency":  # the younger after the older, so that there is no circle
            pairs = [sorted(chance.sample(ids, 2), reverse=True) for _ in given]
            given = [{"task_id": task, "depends_on": depends_on} for task, depends_on in pairs]
        took: list[float] = []
        cpu: list[float] = []
        for each in given[: rounds // 2]:
            before = cpu_microseconds(gateway.pid)
            took.append(caller.call(f"gobby-tasks__{tool}", each))
            cpu.append((cpu_microseconds(gateway.pid) - before) / 1e3)
        with Beside(url) as beside:
            for each in given[rounds // 2 :]:
                caller.call(f"gobby-tasks__{tool}", each)
        yield f"{tool} {json.dumps(arguments)}", took, cpu, beside.took or [0.0]


async def write(folder: Path, name: str, count: int) -> None:
    """What one of the writers does: tasks in a row, each of which waits for the one before."""
    store = SqliteStore(folder, SystemClock())
    tools = internal_servers(Workspace(store, store._clock, Config(), folder))["gobby-tasks"]
    before = ""
    for number in range(count):
        given: dict[str, Any] = {"title": f"{name} {number}", "session_id": name}
        id = await _done(tools, "create_task", given)
        if before:
            await _done(tools, "add_dependency", {"task_id": id, "depends_on": before})
        before = id
    await store.close()


async def _done(tools: Any, tool: str, given: dict[str, Any]) -> str:
    call = Call(mcp.CALL, tool, Client(), json.dumps(given).encode(), "gobby-tasks")  # type: ignore[arg-type]
    return (await tools.answer(call, None))["structuredContent"].get("id", "")


def written_at_once(folder: Path, writers: int, count: int) -> tuple[float, list[str]]:
    """Processes that write at once: how long it takes, in seconds, and what was lost."""
    command = [sys.executable, __file__, "--write", str(folder), "--tasks", str(count), "--as"]
    start = time.perf_counter()
    all = [subprocess.Popen([*command, f"w{number}"], env=environment(folder)) for number in range(writers)]
    lost = [f"writer {number} failed" for number, each in enumerate(all) if each.wait(300)]
    took = time.perf_counter() - start

    async def counted() -> list[int]:
        store = SqliteStore(folder, SystemClock())
        kinds = ("task", "task_dependency", "task_session", "session_record")
        found = await store.query(
            lambda db: [db.execute(f"SELECT count(*) FROM {kind}").fetchone()[0] for kind in kinds]
        )
        await store.close()
        return found

    found, wanted = asyncio.run(counted()), [writers * count, writers * (count - 1), writers * count, writers]
    return took, lost + ([f"{found} rows instead of {wanted}"] if found != wanted else [])


class Synced(NamedTuple):
    """What one sync of the file took, in seconds, by the wall and of all threads; and in milliseconds what each write
    beside it waited, and by how much each turn of the event loop was late."""

    took: float
    cpu: float
    writes: list[float]
    late: list[float]


async def synced(state: Path, folder: Path, imports: bool) -> Synced:
    """Export or import the file of the project in a folder, with a writer beside it."""
    store = SqliteStore(state, SystemClock())
    workspace = Workspace(store, SystemClock(), Config(), folder)
    [project] = workspace.projects.values()
    writes: list[float] = []
    late: list[float] = []

    async def write() -> None:
        while True:
            start = time.perf_counter()
            await store.put("bench", "key", b"value")
            writes.append((time.perf_counter() - start) * 1e3)
            await asyncio.sleep(0.01)

    async def turn() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append((time.perf_counter() - start) * 1e3 - 5)

    beside = [asyncio.create_task(each) for each in (write(), turn())]
    start, cpu = time.perf_counter(), time.process_time()
    await syncing.synced(workspace, project, imports, not imports)
    done = Synced(time.perf_counter() - start, time.process_time() - cpu, writes, late)
    for each in beside:
        each.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    await store.close()
    return done


def synced_all(filled: Path, empty: Path, folder: Path) -> list[str]:
    """Write the file of all tasks, and read it into an empty store. Tells what was over a limit."""
    failed: list[str] = []
    for name, state, imports in (("export", filled, False), ("first import", empty, True), ("import", empty, True)):
        done = asyncio.run(synced(state, folder, imports))
        print(
            f"{name}: {done.took:.1f} s, CPU {done.cpu:.1f} s; a write beside it p50, p99, most"
            f" {_shown(done.writes, 0)} {max(done.writes):.1f} ms; the loop late {_shown(done.late, 0)}"
            f" {max(done.late):.1f} ms"
        )
        if not imports and done.cpu > EXPORT:
            failed.append(f"{name}: {done.cpu:.1f} s, limit {EXPORT:.0f} s")
        failed += [
            f"{name}: {what} p99 {rank(all, 0.99):.1f} ms, limit {BESIDE:.0f} ms"
            for what, all in (("writes beside it", done.writes), ("turns of the loop", done.late))
            if rank(all, 0.99) > BESIDE
        ]
    return failed


def _shown(all: list[float], width: int) -> str:
    return f"{rank(all, 0.5):{width}.1f} {rank(all, 0.99):7.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=300, help="of each call")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        asyncio.run(write(args.write, args.name, args.tasks))
        return 0
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        state, shared = folder / "state", folder / "shared"
        (folder / ".gobby").mkdir()
        (folder / ".gobby" / "project.json").write_text(json.dumps({"id": PROJECT}))
        ids, hub = asyncio.run(fill(state, args.tasks))
        config = folder / "toolgate.json"
        config.write_text(json.dumps({"state": str(state), "mcpServers": {"clock": CLOCK}}))
        command = ["env", "-C", place, *TOOLGATE, "serve"]
        print(f"{args.tasks:,} tasks, {(state / 'toolgate.db').stat().st_size / 1e6:.0f} MB; ms")
        print(f"{'':65} {'CPU p50':>8} {'p99':>7} {'took p50':>9} {'p99':>7} {'beside p50':>11} {'p99':>7} {'most':>7}")
        with Gateway(command, config, folder) as gateway:
            with Beside(gateway.url()) as alone:
                time.sleep(2)
            print(f"{'nothing':65} {'':34} {_shown(alone.took, 11)} {max(alone.took):7.1f}")
            limits = [LIST] * len(LISTS) + [TREE] * len(TREES) + [0.0] * len(OTHERS)
            lists: list[float] = []
            for limit, (name, took, cpu, beside) in zip(limits, rows(gateway, ids, hub, args.rounds), strict=True):
                print(f"{name:65} {_shown(cpu, 8)} {_shown(took, 9)} {_shown(beside, 11)} {max(beside):7.1f}")
                if limit == LIST:
                    lists += cpu
                elif limit and rank(cpu, 0.99) > limit:
                    failed.append(f"{name}: p99 {rank(cpu, 0.99):.1f} ms, limit {limit:.0f} ms")
                if rank(beside, 0.99) > BESIDE + rank(alone.took, 0.99):
                    failed.append(f"{name}: calls beside it took {rank(beside, 0.99):.1f} ms")
            print(f"{'all lists':65} {_shown(lists, 8)}")
            if rank(lists, 0.99) > LIST:
                failed.append(f"lists: p99 {rank(lists, 0.99):.1f} ms, limit {LIST:.0f} ms")
        failed += synced_all(state, folder / "cloned", folder)
        took, lost = written_at_once(shared, 8, 100)
        print(f"8 writers at once, 100 tasks each: {took:.1f} s, lost: {'; '.join(lost) or 'nothing'}")
        failed += lost
    print("\n".join(failed), file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
