"""One row of a table while it is measured: a gateway that runs, and the connections of its clients."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gateways import CACHE, ERAS, Peer, Place, Running
from harness import Load, LoadFailed, cpu_microseconds, environment, family, reaped_microseconds, resident_mb, stop

SETTLE = 0.05  # seconds; work put off until after the answer counts as well
SLOW = 2000.0  # microseconds of CPU a call
RELOAD_EVERY, RELOADS = 0.5, 4  # seconds; in a run


class Cell(NamedTuple):
    """A column: what a run calls, and what is around the calls."""

    connections: int
    calls: int
    tool: str = "echo"
    at_least: int = 0  # bytes of each answer
    idle_connections: int = 0  # that stay open beside
    idle_sessions: int = 0
    fresh: str = ""  # what each call has of its own: a connection, or a session
    reloads: bool = False
    differing: str = ""  # a header that has another value in each request

    @property
    def idle(self) -> int:
        return self.idle_connections + self.idle_sessions

    def options(self) -> list[str]:
        """Of the load."""
        found = ["--idle", str(self.idle_connections), "--idle-sessions", str(self.idle_sessions)]
        found += ["--fresh", self.fresh] if self.fresh else []
        found += ["--differing", self.differing] if self.differing else []
        return found + ["--lossy"] * self.reloads


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lane:
    def __init__(self, peer: Peer, era: str) -> None:
        self.peer, self.era = peer, era
        self.process: subprocess.Popen[bytes] | None = None
        self.running: Running | None = None
        self.url = ""
        self.why = ""  # it is not measured
        self.loads: dict[str, Load] = {}
        self.seen: dict[str, list[dict[str, float]]] = {}
        self.failed: dict[str, str] = {}
        self.memory = 0.0
        self._folder = Path()

    @property
    def label(self) -> str:
        return f"{self.peer.name} | {self.peer.behind} | {ERAS[self.era]}"

    def least(self, key: str, what: str) -> float:
        return min(run[what] for run in self.seen[key])

    def start(self, place: Place, paths: Mapping[str, Path]) -> None:
        peer = self.peer
        program = paths.get(peer.needs) or CACHE / peer.needs
        if peer.needs and not program.exists():
            failure = CACHE / peer.needs.partition("/")[0] / "failure"
            self.why = f"not installed: {failure.read_text()}" if failure.exists() else "not here"
            return
        self._folder = place.folder
        self.running = peer.start(program, place, self.era)
        self.url = f"http://127.0.0.1:{place.port}{self.running.path}"
        own = {"HOME": str(place.folder), "NO_COLOR": "1", "DO_NOT_TRACK": "1"}
        with (place.folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [str(part) for part in self.running.command],
                env={**environment(place.folder), **own} if not peer.needs else {**os.environ, **own},
                cwd=place.folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip

    def up(self, program: Path, until: float) -> None:
        """Wait until a client is let in and its call answered."""
        if not self.process or not self.running:
            return
        self.why = "not up in time"
        while time.monotonic() < until and self.here:
            try:
                with Load(program, self.url, self.era, self.running.tool, 1, 5, self.running.key) as load:
                    load.run(1)
                self.why = ""
                return
            except LoadFailed as failure:
                self.why = f"no right answer: {' '.join(str(failure).split())[:200]}"
                time.sleep(0.25)
        self.look()
        self.end()

    def look(self) -> None:
        """Where it has ended, why."""
        if self.process and self.process.poll() is not None:
            said = (self._folder / "said").read_text(errors="replace").strip().splitlines() or ["nothing"]
            self.why = f"it ended, and said: {said[-1][:200]}"

    @property
    def here(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        for load in self.loads.values():
            with suppress(Exception):
                load.__exit__()
        self.loads.clear()
        if self.process:
            stop(self.process, 3)
            self.process = None

    @property
    def is_slow(self) -> bool:
        """By what was seen so far: fewer calls are enough, and 256 at once take long."""
        return any(run["cpu"] > SLOW for runs in self.seen.values() for run in runs[:1])

    def pids(self) -> list[int]:
        """Without the upstream, where that is a child."""
        assert self.process
        found: list[int] = []
        for pid in family(self.process.pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() != "upstream":
                    found.append(pid)
        return found

    def cpu(self) -> float:
        total = 0.0
        for pid in self.pids():
            with suppress(OSError):
                total += cpu_microseconds(pid) + reaped_microseconds(pid)
        return total

    def resident(self) -> float:
        total = 0.0
        for pid in self.pids():
            with suppress(OSError):
                total += resident_mb(pid)
        return total

    def measure(self, program: Path, key: str, cell: Cell) -> None:
        """One run; the first of its kind connects and warms up. A slow peer gets two, as noise is nothing to it."""
        known = self.seen.get(key, [])
        if not self.here or key in self.failed or (len(known) > 1 and self.least(key, "cpu") > SLOW):
            return
        if why := self._not_asked(cell):
            self.failed[key] = f"at {key}: {why}"
            return
        try:
            self._run(program, key, cell)
        except (LoadFailed, BrokenPipeError, OSError) as failure:
            if self.loads.pop(key, None) and known and self.here:  # it closes connections that are idle for a while
                self.measure(program, key, cell)
            else:
                self.failed[key] = f"at {key}: {' '.join(str(failure).split())[:200]}"

    def _not_asked(self, cell: Cell) -> str:
        assert self.running
        if cell.reloads and not self.running.reload:
            return "it takes no other configuration while it runs, as it is started here"
        if cell.idle_sessions and (self.peer.no_sessions or self.era == "modern"):
            return self.peer.no_sessions or "this revision has no sessions"
        return "it is too slow for so many" if cell.idle > 1000 and self.is_slow else ""

    def _run(self, program: Path, key: str, cell: Cell) -> None:
        assert self.running
        calls = 2 * cell.connections + 50 if self.is_slow else cell.calls
        each: dict[str, float] = {}
        if key not in self.loads:
            name = self.running.tool.removesuffix("echo") + cell.tool
            seconds = round(RELOAD_EVERY * (RELOADS + 2)) if cell.reloads else 1
            before = self.resident()
            load = Load(
                program, self.url, self.era, name, cell.connections, seconds, self.running.key,
                at_least=cell.at_least, more=cell.options(),
            )  # fmt: skip
            if cell.idle:
                each = {"kb_each": (self.resident() - before) * 1e3 / cell.idle}
            load.run(cell.connections if self.is_slow else min(calls, max(500, 20 * cell.connections)))
            self.loads[key] = load
        before = self.cpu()
        self.loads[key].begin(calls)
        if cell.reloads:
            self._reload()
        seen = self.loads[key].finish()
        time.sleep(SETTLE)
        seen["cpu"] = (self.cpu() - before) / seen["calls"]
        self.seen.setdefault(key, []).append(seen | each)
        self.memory = max(self.memory, self.resident())

    def _reload(self) -> None:
        assert self.running and self.running.reload and self.process
        for _ in range(RELOADS):
            time.sleep(RELOAD_EVERY)
            self.running.reload(self.process)
