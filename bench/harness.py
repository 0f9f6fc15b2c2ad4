"""What the benchmark scripts share: building the C programs, starting processes, reading /proc."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
TOOLGATE = [sys.executable, "-m", "toolgate"]
TICK = os.sysconf("SC_CLK_TCK")
LISTENING = "toolgate is listening on "


def build(folder: Path, name: str) -> Path:
    """Compile one of the C programs of this folder."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        sys.exit("a C compiler is needed: install gcc or clang, or set CC")
    program = folder / name
    subprocess.run([compiler, "-O2", "-o", str(program), str(BENCH / f"{name}.c")], check=True)
    return program


def environment(folder: Path) -> dict[str, str]:
    """This checkout's package, compiled once as an installed one is, and nothing of the user's own folders."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    places = {f"XDG_{k}_HOME": str(folder / k.lower()) for k in ("CONFIG", "STATE", "DATA")}
    # an empty PYTHONDONTWRITEBYTECODE is none: with it every start would compile every module anew
    return {**os.environ, **places, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}


def stop(process: subprocess.Popen[Any], patience: float = 8.0) -> None:
    """End a process that we started: TERM, then KILL."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def upstream(program: Path, *options: str) -> Iterator[tuple[str, int]]:
    """The C upstream; yields its URL and process id."""
    process = subprocess.Popen([program, "--seconds", "1800", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        stop(process)


class Gateway:
    """A running gateway. `command` gets `--config FILE --port 0` appended."""

    def __init__(self, command: Sequence[str], config: Path, folder: Path) -> None:
        self.last_words: collections.deque[str] = collections.deque(maxlen=20)
        self._url: str | None = None
        self._settled = threading.Event()
        self.process = subprocess.Popen(
            [*command, "--config", str(config), "--port", "0"],
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            if LISTENING in line:
                self._url = line.split(LISTENING)[1].split()[0]
                self._settled.set()
            self.last_words.append(line)
        self._settled.set()

    def url(self, patience: float = 30.0) -> str:
        """Where it listens, as soon as it says so."""
        self._settled.wait(patience)
        if self._url is None:
            stop(self.process)
            sys.exit("the gateway did not come up; it said:\n" + "".join(self.last_words))
        return self._url

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        stop(self.process)


class Load:
    """A steered load: its connections stay open from one run to the next."""

    def __init__(
        self,
        program: Path,
        url: str,
        era: str,
        tool: str,
        connections: int,
        seconds: int,
        key: str = "",
        may_be_refused: bool = False,
        at_least: int = 0,
        more: Sequence[str] = (),
    ) -> None:
        options = ["--url", url, "--era", era, "--tool", tool, "--seconds", str(seconds)]
        options += ["--key", key] if key else []
        options += ["--refused"] if may_be_refused else []
        options += ["--at-least", str(at_least)] if at_least else []
        options += more
        self._process = subprocess.Popen(
            [program, *options, "--connections", str(connections), "--steered"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout and self._process.stderr
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(self._process.stderr.read().strip() or "the load ended early")
        return line

    def run(self, calls: int) -> dict[str, float]:
        self.begin(calls)
        return self.finish()

    def begin(self, calls: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, float]:
        return json.loads(self._line())

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


class LoadFailed(Exception):
    """A call was not answered, or not with its own id and text."""


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def family(pid: int) -> list[int]:
    """A process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time so far: every thread, and children that have ended and been reaped."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in pids) / TICK


def cpu_microseconds(pid: int) -> float:
    """The same of the threads that a process has now, finer than a tick of the clock."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e3


def reaped_microseconds(pid: int) -> float:
    """User and system time of children that have ended, by the clock's ticks."""
    return sum(map(int, _stat(pid)[13:15])) / TICK * 1e6


def resident_mb(pid: int) -> float:
    """VmRSS in megabytes of 1,000,000 bytes (the stricter reading of a limit in MB)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
