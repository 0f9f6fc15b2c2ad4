"""toolgate and other gateways and proxies, which take turns, in each case of `cases.py`. See README.md.

`--install` puts the peers that come by a package name into `.bench/`; a peer that is not there is reported as missing.
Everything runs in a network namespace of its own, with nothing but a loopback, so that no program can call home.
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import os
import platform
import shlex
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cases import CASES, Case, Figure, Starts
from chart import Bar, bars
from gateways import CACHE, ERAS, PEERS, Peer, Place, Running, install, nginx
from harness import ROOT, build
from harness import upstream as c_upstream
from lanes import Lane, free_port
from listing import Lister, Refused

RESULTS = CACHE / "results"
INSIDE = "TOOLGATE_BENCH_INSIDE"  # set in the namespace of our own
PATIENCE = 90.0  # seconds for a peer to start
QUICK_START = 45.0  # seconds for all of them, where it is to be quick
LISTS = 3  # that are fetched once more


class Bench:
    """What all cases share: the programs, and what the command line says."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self._folder = args, folder
        self.load, self._upstream = build(folder, "load"), build(folder, "upstream")
        also = [Peer(name, "HTTP", (era,), "", command_line(command, path, tool))
                for name, era, command, path, tool in args.also]  # fmt: skip
        self.rows = [(peer, era) for peer in (*PEERS, *also) for era in peer.eras if self._wanted(peer, era)]

    def _wanted(self, peer: Peer, era: str) -> bool:
        if self.args.quick and peer.starts_slowly:
            return False
        words = [word.strip().lower() for word in self.args.rows.split(",") if word.strip()]
        return not words or any(word in Lane(peer, era).label.lower() for word in words)

    @contextmanager
    def upstreams(self, *options: str) -> Generator[dict[str, str]]:
        with ExitStack() as stack:
            yield {
                era: stack.enter_context(c_upstream(self._upstream, *options, *["--legacy"] * (era == "legacy")))[0]
                for era in ERAS
            }

    def place(self, urls: Mapping[str, str], options: Sequence[str] = (), servers: int = 1) -> Place:
        own = Path(tempfile.mkdtemp(dir=self._folder))
        stdio = [str(self._upstream), "--stdio", *(each for each in options if each != "--sse"), "--seconds", "3600"]
        return Place(own, free_port(), urls, stdio, servers)

    def start(self, lane: Lane, place: Place) -> None:
        paths = {"agentgateway": self.args.agentgateway, "go/mcp-proxy": self.args.go_proxy}
        lane.start(place, {name: path for name, path in paths.items() if path})


def command_line(command: str, path: str, tool: str) -> Callable[[Path, Place, str], Running]:
    """A gateway of which only its command line is known."""

    def start(_: Path, place: Place, era: str) -> Running:
        told = {"port": place.port, "url": place.urls[era], "folder": place.folder}
        return Running([part.format(**told) for part in shlex.split(command)], path, tool)

    return start


# Calls.


def calls(case: Case, bench: Bench) -> list[Lane]:
    options = ["--shapes", *case.upstream]
    lanes = [Lane(peer, era) for peer, era in bench.rows]
    if case.upstream:  # says how it answers over HTTP
        lanes = [lane for lane in lanes if lane.peer.behind == "HTTP"]
    with ExitStack() as stack:
        urls = stack.enter_context(bench.upstreams(*options))
        all_by = time.monotonic() + (QUICK_START if bench.args.quick else PATIENCE * len(lanes))
        for lane in lanes:  # one after the other: all at once, the slow ones hold up each other
            stack.callback(lane.end)
            bench.start(lane, bench.place(urls, options))
            lane.up(bench.load, min(all_by, time.monotonic() + PATIENCE))
        last = time.monotonic() + 60 * bench.args.minutes
        for turn in range(bench.args.runs):
            for key, cell in case.cells.items():
                for lane in lanes if turn % 2 else lanes[::-1]:
                    if turn and time.monotonic() > last:
                        continue
                    lane.measure(bench.load, key, cell)
                    print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return lanes


def table_of_calls(case: Case, lanes: Sequence[Lane]) -> str:
    lines: list[str] = []
    for key in case.cells:
        here = [lane for lane in lanes if lane.seen.get(key)]
        if not here:
            continue
        floors = {lane.era: lane.least(key, "cpu") for lane in here if lane.peer.start is nginx}
        more = "".join(f" {figure.title} |" for figure in case.more)
        lines += [
            f"### {case.title}: {key}",
            "",
            "| gateway | server by | client and server | CPU µs a call | median | times nginx | calls/s | p50 µs "
            f"| p99 µs | runs |{more}",
            "|---|---|---|" + "---:|" * (7 + len(case.more)),
        ]
        for lane in here:
            cpu, runs = lane.least(key, "cpu"), lane.seen[key]
            times = f"{cpu / floors[lane.era]:.1f}" if floors.get(lane.era) else ""
            columns = [f"{cpu:.0f}", f"{statistics.median(run['cpu'] for run in runs):.0f}", times]
            columns += [f"{max(run['rate'] for run in runs):.0f}"]
            columns += [f"{lane.least(key, 'p50_us'):.0f}", f"{lane.least(key, 'p99_us'):.0f}", str(len(runs))]
            columns += [most(figure, runs) for figure in case.more]
            lines.append(f"| {lane.label} | {' | '.join(columns)} |")
        lines.append("")
    lines += ["### Memory", "", "| gateway | server by | client and server | resident MB, most seen |"]
    lines += ["|---|---|---|---:|", *(f"| {lane.label} | {lane.memory:.0f} |" for lane in lanes if lane.memory)]
    return "\n".join([*lines, *not_measured(lanes)]) + "\n"


def most(figure: Figure, runs: Sequence[Mapping[str, float]]) -> str:
    found = [run[figure.of] for run in runs if figure.of in run]
    return f"{max(found) * figure.scale:.1f}" if found else ""


def not_measured(lanes: Sequence[Lane]) -> list[str]:
    missing = [f"| {lane.label} | {why} |" for lane in lanes for why in [lane.why, *lane.failed.values()] if why]
    head = ["", "### Not measured", "", "| gateway | server by | client and server | why |", "|---|---|---|---|"]
    return [*head, *missing] if missing else []


def pictures(case: Case, lanes: Sequence[Lane]) -> dict[str, str]:
    drawn: dict[str, str] = {}
    for key in case.cells:
        found = [
            Bar(lane.label.replace(" | ", ", "), lane.least(key, "cpu"), lane.peer.name.startswith("toolgate"))
            for lane in lanes
            if lane.seen.get(key)
        ]
        short = f"{case.name}-{key.replace(' ', '-').replace(',', '')}.svg"
        drawn[short] = bars(f"{case.title}, {key}: CPU of the gateway, µs a call (logarithmic)", found)
    return drawn


# Starts.


def starts(case: Starts, bench: Bench) -> list[Lane]:
    """One start after the other: what a start takes, others beside it would take from it."""
    lanes = [Lane(peer, era) for peer, era in bench.rows if peer.start is not nginx]
    with bench.upstreams("--tools", str(case.tools)) as urls:
        for turn in range(min(3, bench.args.runs)):
            for servers in case.servers:
                for lane in lanes if turn % 2 else lanes[::-1]:
                    many_take_long = servers >= 100 and turn
                    if (servers > 1 and not lane.peer.joins_lists) or many_take_long or str(servers) in lane.failed:
                        continue
                    start(case, lane, servers, bench, bench.place(urls, ["--tools", str(case.tools)], servers))
                    print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return lanes


def start(case: Starts, lane: Lane, servers: int, bench: Bench, place: Place) -> None:
    key, wanted = str(servers), servers * case.tools
    patience = PATIENCE + servers * 0.2
    begun = time.perf_counter()
    bench.start(lane, place)
    lister = None
    try:
        while lane.here and time.perf_counter() < begun + patience and lane.running:
            try:
                lister = lister or Lister(lane.url, lane.era, lane.running.key, patience)
                if len(lister.tools().names) >= wanted:
                    break
            except (OSError, http.client.HTTPException, Refused, ValueError) as error:
                lister, lane.failed[key] = None, f"{servers} servers: {' '.join(str(error).split())[:200]}"
            time.sleep(0.01)
        else:
            lane.look()
            if lister:
                lane.failed[key] = f"{servers} servers: no whole list within {patience:g} s"
            return
        lane.failed.pop(key, None)
        told = {"ms": (time.perf_counter() - begun) * 1e3, "cpu": lane.cpu() / 1e3}
        time.sleep(0.3)
        before = lane.cpu()
        for _ in range(LISTS):
            lister.tools()
        time.sleep(0.1)
        told["again"] = (lane.cpu() - before) / 1e3 / LISTS
        told["resident"] = lane.resident()
        lane.seen.setdefault(key, []).append(told)
    finally:
        if lister:
            lister.close()
        lane.end()


def table_of_starts(case: Starts, lanes: Sequence[Lane]) -> str:
    lines: list[str] = []
    for servers in case.servers:
        here = [lane for lane in lanes if lane.seen.get(str(servers))]
        lines += [
            f"### {case.title}: {servers} server{'s' * (servers > 1)}, {case.tools} tools each",
            "",
            "| gateway | server by | client and server | ms | CPU ms until then | the list again, CPU ms "
            "| resident MB | runs |",
            "|---|---|---|" + "---:|" * 5,
        ]
        for lane in here:
            figures = [f"{lane.least(str(servers), what):.{1 if what == 'again' else 0}f}"
                       for what in ("ms", "cpu", "again", "resident")]  # fmt: skip
            lines.append(f"| {lane.label} | {' | '.join(figures)} | {len(lane.seen[str(servers)])} |")
        lines.append("")
    return "\n".join([*lines, *not_measured(lanes)]) + "\n"


# The rest.


def alone() -> None:
    """Run again in a network namespace that has only a loopback, or end: strangers' programs get no way out."""
    if os.environ.get(INSIDE):
        with socket.socket() as any_socket:  # bring the loopback up: SIOCSIFFLAGS with IFF_UP and IFF_RUNNING
            fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x41))
        return
    if not shutil.which("unshare"):
        sys.exit("needed to keep the peers from the network: unshare (util-linux)")
    how = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", *how, sys.executable, *sys.argv])


def machine() -> str:
    """What the figures are of. How busy it is afterwards is told where the table ends."""
    model = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    return (
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, commit {commit.strip() or 'unknown'}, "
        f"Python {platform.python_version()}, Linux {platform.release()}, {os.cpu_count()} cores "
        f"({model[0] if model else platform.machine()}), load average {busy()} at the start"
    )


def busy() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    names = [case.name for case in CASES]
    add("--install", action="store_true", help="install what is missing, then end")
    add("--quick", action="store_true", help="warm calls, 1 and 16 connections: under two minutes")
    add("--only", choices=names, nargs="+", default=names, help="which cases (all)")
    add("--rows", default="", metavar="WORDS", help="only gateways whose row has one of these words, as toolgate,nginx")
    add("--runs", type=int, default=8, help="of each row and column at most; the least counts (%(default)s)")
    add("--minutes", type=float, default=4, help="no new round of a case after this (%(default)s)")
    add("--agentgateway", type=Path, help="where that program is")
    add("--go-proxy", type=Path, help="where the Go mcp-proxy is")
    add("--also", nargs=5, action="append", default=[], metavar=("NAME", "ERA", "COMMAND", "PATH", "TOOL"),
        help="one more gateway: modern or legacy, its command with {port}, {url} of its server and {folder}, the path "
        "of its MCP endpoint, and what it calls the tool `echo`")  # fmt: skip
    args = parser.parse_args()
    if args.quick:
        args.only, args.runs, args.minutes = ["warm"], 3, 0.8
    return args


def quick(case: Case) -> Case:
    few = {key: cell._replace(calls=cell.calls // 2) for key, cell in case.cells.items() if cell.connections <= 16}
    return case._replace(cells=few)


def _ended(_signal: int, _frame: object) -> None:
    """So that what was started is stopped."""
    sys.exit("ended by a signal")


def main() -> int:
    args = arguments()
    if args.install:
        install()
        return 0
    alone()
    signal.signal(signal.SIGTERM, _ended)
    measured = False
    with tempfile.TemporaryDirectory(prefix="toolgate-bench-") as folder:
        bench = Bench(args, Path(folder))
        RESULTS.mkdir(parents=True, exist_ok=True)
        for case in CASES:
            if case.name not in args.only:
                continue
            told = machine()
            if isinstance(case, Starts):
                lanes = starts(case, bench)
                table = table_of_starts(case, lanes)
            else:
                case = quick(case) if args.quick else case
                lanes = calls(case, bench)
                table = table_of_calls(case, lanes)
                for file, svg in pictures(case, lanes).items():
                    (RESULTS / file).write_text(svg)
            text = f"## {case.title}\n\n{told}, {busy()} at the end.\n\n{table}"
            print(text, flush=True)
            (RESULTS / f"{case.name}.md").write_text(text)
            measured = measured or any(lane.seen for lane in lanes)
    print(f"written to {RESULTS.relative_to(ROOT)}/: tables, and a picture of each")
    return not measured


if __name__ == "__main__":
    sys.exit(main())
