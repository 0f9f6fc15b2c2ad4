"""A warm tools/call through toolgate and through other gateways and proxies, which take turns. See README.md.

`--install` puts the peers that come by a package name into `.bench/`; a peer that is not there is reported as missing.
Everything runs in a network namespace of its own, with nothing but a loopback, so that no program can call home.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from chart import Bar, bars
from harness import ROOT, TOOLGATE, Load, LoadFailed, build, cpu_microseconds, environment, family, resident_mb, stop
from harness import upstream as c_upstream
from paired import KEY, POLICIES

CACHE = ROOT / ".bench"
RESULTS = CACHE / "results"
ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
SETTLE = 0.05  # seconds; work put off until after the answer counts as well
INSIDE = "TOOLGATE_BENCH_INSIDE"  # set in the namespace of our own
SLOW = 2000.0  # microseconds of CPU a call
PATIENCE = 90.0  # seconds for a peer to start
SIZES = {"1 KB": ("size_1k", 1000), "10 KB": ("size_10k", 10_000), "100 KB": ("size_100k", 100_000),
         "1 MB": ("size_1m", 1_000_000), "10 MB": ("size_10m", 10_000_000)}  # fmt: skip
REAL = {"file": 4000, "rows": 2000, "issues": 40_000, "page": 12_000, "picture": 200_000}

FASTMCP = """
import asyncio, sys
from fastmcp import Client
from fastmcp.server import create_proxy
async def main():
    async with Client(sys.argv[1]) as connected:  # one session for all, the fastest way that it offers
        proxy = create_proxy(connected)
        await proxy.run_http_async(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False,
            log_level="error", stateless_http=True, json_response=True,
            uvicorn_config={"loop": "uvloop", "http": "httptools", "access_log": False})
asyncio.run(main())
"""


class Place(NamedTuple):
    """Where a peer is to run, and before what."""

    folder: Path
    port: int
    urls: Mapping[str, str]  # of the upstream, by era
    stdio: list[str]  # the command of the same upstream as a child


class Running(NamedTuple):
    """How to start a peer, and where it listens then."""

    command: Sequence[str | Path]
    path: str = "/mcp"
    tool: str = "echo"
    key: str = ""


class Peer(NamedTuple):
    name: str
    behind: str  # how it reaches its server: HTTP or stdio
    eras: tuple[str, ...]  # of client and server alike
    needs: str  # the program, under .bench or where an option says
    start: Callable[[Path, Place, str], Running]
    comes_by: str = ""


def nginx(program: Path, place: Place, era: str) -> Running:
    to = place.urls[era].removeprefix("http://").partition("/")[0]
    (place.folder / "logs").mkdir()
    temporary = "".join(
        f"{kind}_temp_path {place.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = place.folder / "nginx.conf"
    file.write_text(
        f"daemon off; worker_processes 1; pid {place.folder}/pid; error_log stderr error;"
        + ("user root;" if os.geteuid() == 0 else "")
        + f"events {{ worker_connections 4096; }} http {{ access_log off; {temporary} keepalive_requests 100000000;"
        f"upstream to {{ server {to}; keepalive 256; keepalive_requests 100000000; }}"
        f"server {{ listen 127.0.0.1:{place.port}; location / {{ proxy_pass http://to; proxy_http_version 1.1;"
        'proxy_set_header Connection ""; proxy_set_header Host $host:$server_port; client_max_body_size 64m; } } }'
    )
    return Running([program, "-p", str(place.folder), "-c", str(file)])


def toolgate(full: bool, stdio: bool) -> Callable[[Path, Place, str], Running]:
    def start(_: Path, place: Place, era: str) -> Running:
        server = {"command": place.stdio[0], "args": place.stdio[1:]} if stdio else {"url": place.urls[era]}
        file = place.folder / "servers.json"
        file.touch(0o600)
        file.write_text(json.dumps({"mcpServers": {era: server}, **(POLICIES if full else {})}))
        command = [*TOOLGATE, "serve", "--config", str(file), "--port", str(place.port)]
        return Running(command, tool=f"{era}__echo", key=KEY if full else "")

    return start


def fastmcp(program: Path, place: Place, era: str) -> Running:
    return Running([program, "-c", FASTMCP, place.urls[era], str(place.port)])


def mcp_proxy(program: Path, place: Place, _: str) -> Running:
    return Running([program, "--port", str(place.port), "--log-level", "ERROR", "--", *place.stdio])


def supergateway(program: Path, place: Place, _: str) -> Running:
    command = ["node", program, "--stdio", " ".join(place.stdio), "--outputTransport", "streamableHttp", "--stateful"]
    return Running([*command, "--port", str(place.port), "--logLevel", "none"])


def litellm(program: Path, place: Place, era: str) -> Running:
    file = place.folder / "litellm.json"  # JSON is YAML
    servers = {"bench": {"url": place.urls[era], "transport": "http", "allow_all_keys": True}}
    general = {"master_key": "sk-bench-1234"}
    file.write_text(json.dumps({"model_list": [], "mcp_servers": servers, "general_settings": general}))
    command = [program, "--config", file, "--port", str(place.port), "--host", "127.0.0.1", "--telemetry", "False"]
    return Running(command, path="/mcp/", tool="bench-echo", key="sk-bench-1234")


def go_proxy(stdio: bool) -> Callable[[Path, Place, str], Running]:
    def start(program: Path, place: Place, era: str) -> Running:
        here = {"baseURL": f"http://127.0.0.1:{place.port}", "addr": f"127.0.0.1:{place.port}", "name": "bench"}
        server = (
            {"command": place.stdio[0], "args": place.stdio[1:]}
            if stdio
            else {"url": place.urls[era], "transportType": "streamable-http"}
        )
        file = place.folder / "config.json"
        proxy = {**here, "version": "1", "type": "streamable-http"}
        file.write_text(json.dumps({"mcpProxy": proxy, "mcpServers": {"bench": server}}))
        return Running([program, "--config", file], path="/bench/")

    return start


def agentgateway(program: Path, place: Place, era: str) -> Running:
    file = place.folder / "agentgateway.json"
    backend = {"mcp": {"targets": [{"name": "bench", "mcp": {"host": place.urls[era]}}]}}
    listener = {"routes": [{"backends": [backend]}]}
    file.write_text(json.dumps({"binds": [{"port": place.port, "listeners": [listener]}]}))
    return Running([program, "-f", file])


BOTH, LEGACY = ("legacy", "modern"), ("legacy",)
PEERS = (
    Peer("nginx, reverse proxy", "HTTP", BOTH, "nginx/usr/sbin/nginx", nginx, "Debian: nginx"),
    Peer("toolgate, open", "HTTP", BOTH, "", toolgate(full=False, stdio=False)),
    Peer("toolgate, full policy", "HTTP", BOTH, "", toolgate(full=True, stdio=False)),
    Peer("toolgate, open", "stdio", LEGACY, "", toolgate(full=False, stdio=True)),
    Peer("toolgate, full policy", "stdio", LEGACY, "", toolgate(full=True, stdio=True)),
    Peer("FastMCP, tuned", "HTTP", LEGACY, "fastmcp/bin/python", fastmcp, "PyPI: fastmcp uvloop httptools"),
    Peer("mcp-proxy (Python)", "stdio", LEGACY, "mcp-proxy/bin/mcp-proxy", mcp_proxy, "PyPI: mcp-proxy mcp<2"),
    Peer("supergateway", "stdio", LEGACY, "supergateway/node_modules/supergateway/dist/index.js", supergateway,
         "npm: supergateway"),
    Peer("LiteLLM", "HTTP", LEGACY, "litellm/bin/litellm", litellm, "PyPI: litellm[proxy]"),
    Peer("mcp-proxy (Go)", "HTTP", LEGACY, "go/mcp-proxy", go_proxy(stdio=False),
         "Go: github.com/TBXark/mcp-proxy@latest"),
    Peer("mcp-proxy (Go)", "stdio", LEGACY, "go/mcp-proxy", go_proxy(stdio=True)),
    Peer("agentgateway", "HTTP", BOTH, "agentgateway", agentgateway),
)  # fmt: skip


def install() -> None:
    """Each peer that has a package name, into a folder of its own; a failure is kept beside it and said again later."""
    CACHE.mkdir(exist_ok=True)
    for peer in PEERS:
        if not peer.comes_by or (CACHE / peer.needs).exists():
            continue
        source, _, names = peer.comes_by.partition(": ")
        folder = CACHE / peer.needs.partition("/")[0]
        folder.mkdir(exist_ok=True)
        print(f"{peer.name}: {source} {names}", flush=True)
        steps: list[list[str]] = {
            "PyPI": [
                [sys.executable, "-m", "venv", str(folder)],
                [f"{folder}/bin/pip", "install", "-q", "--disable-pip-version-check", *names.split()],
            ],
            "npm": [
                [
                    "npm",
                    "install",
                    "--silent",
                    "--no-fund",
                    "--no-audit",
                    "--ignore-scripts",
                    "--prefix",
                    str(folder),
                    names,
                ]
            ],
            "Go": [["env", f"GOBIN={folder}", "go", "install", names]],
            "Debian": [["sh", "-c", f"cd {folder} && apt-get -q download {names} && dpkg -x {names}_*.deb ."]],
        }[source]
        for step in steps:
            try:
                done = subprocess.run(step, capture_output=True, text=True, timeout=900)
                why = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1].strip()
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)
            if why:
                (folder / "failure").write_text(why[:300])
                print(f"  not installed: {why[:300]}", flush=True)
                break


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


class Lane:
    """One row: a peer that runs, with the connections of its clients."""

    def __init__(self, peer: Peer, era: str) -> None:
        self.peer, self.era = peer, era
        self.process: subprocess.Popen[bytes] | None = None
        self.running: Running | None = None
        self.url = ""
        self.why = ""
        self.loads: dict[object, Load] = {}
        self.seen: dict[object, list[dict[str, float]]] = {}
        self.failed: dict[object, str] = {}
        self.memory = 0.0

    @property
    def label(self) -> str:
        return f"{self.peer.name} | {self.peer.behind} | {ERAS[self.era]}"

    def start(self, place: Place, paths: Mapping[str, Path]) -> None:
        peer = self.peer
        program = paths.get(peer.needs) or CACHE / peer.needs
        if peer.needs and not program.exists():
            failure = CACHE / peer.needs.partition("/")[0] / "failure"
            self.why = f"not installed: {failure.read_text()}" if failure.exists() else "not here"
            return
        self.running = peer.start(program, place, self.era)
        self.url = f"http://127.0.0.1:{place.port}{self.running.path}"
        own = {"HOME": str(place.folder), "NO_COLOR": "1", "DO_NOT_TRACK": "1"}
        with (place.folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [str(part) for part in self.running.command],
                env={**environment(place.folder), **own} if not peer.needs else {**os.environ, **own},
                cwd=place.folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip

    def up(self, program: Path, until: float, folder: Path) -> None:
        """Wait until a client is let in and its call answered."""
        if not self.process or not self.running:
            return
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with Load(program, self.url, self.era, self.running.tool, 1, 5, self.running.key) as load:
                    load.run(1)
                    return
            except LoadFailed as failure:
                self.why = f"no right answer: {' '.join(str(failure).split())[:200]}"
                time.sleep(0.25)
        if self.process.poll() is not None:
            said = (folder / "said").read_text(errors="replace").strip().splitlines() or ["nothing"]
            self.why = f"it ended, and said: {said[-1][:200]}"
        self.end()

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
                total += cpu_microseconds(pid)
        return total

    def measure(self, program: Path, key: object, connections: int, calls: int, tool: str, at_least: int) -> None:
        """One run; the first of its kind connects and warms up. A slow peer gets two, as noise is nothing to it."""
        known = self.seen.get(key, [])
        if not self.here or key in self.failed or (len(known) > 1 and least(self, key, "cpu") > SLOW):
            return
        try:
            self._run(program, key, connections, calls, tool, at_least)
        except (LoadFailed, BrokenPipeError, OSError) as failure:
            if self.loads.pop(key, None) and known and self.here:  # it closes connections that are idle for a while
                self.measure(program, key, connections, calls, tool, at_least)
            else:
                self.failed[key] = f"at {key}: {' '.join(str(failure).split())[:200]}"

    def _run(self, program: Path, key: object, connections: int, calls: int, tool: str, at_least: int) -> None:
        assert self.running
        if key not in self.loads:
            name = self.running.tool.removesuffix("echo") + tool
            load = Load(program, self.url, self.era, name, connections, 1, self.running.key, False, at_least)
            load.run(connections if self.is_slow else min(calls, max(500, 20 * connections)))
            self.loads[key] = load
        before = self.cpu()
        seen = self.loads[key].run(2 * connections + 50 if self.is_slow else calls)
        time.sleep(SETTLE)
        seen["cpu"] = (self.cpu() - before) / seen["calls"]
        self.seen.setdefault(key, []).append(seen)
        self.memory = max(self.memory, sum(resident_mb(pid) for pid in self.pids()))


class Plan(NamedTuple):
    """A table: for each column what is called, and how often."""

    title: str
    name: str
    columns: dict[object, tuple[int, int, str, int]]  # key: connections, calls of a run, tool, bytes at least


def warm(connections: Sequence[int], calls: int) -> Plan:
    return Plan("A warm tools/call", "warm", {c: (c, calls, "echo", 0) for c in connections})


def large(calls: int) -> Plan:
    columns: dict[object, tuple[int, int, str, int]] = {
        title: (4, max(4, min(calls, 20_000_000 // size)), tool, size * 9 // 10)
        for title, (tool, size) in SIZES.items()
    }
    return Plan("Results of 1 KB to 10 MB, 4 connections", "sizes", columns)


def real(calls: int) -> Plan:
    columns: dict[object, tuple[int, int, str, int]] = {
        f"{tool}, {size / 1000:g} KB": (4, min(calls, 20_000_000 // size), tool, size * 9 // 10)
        for tool, size in REAL.items()
    }
    return Plan("Results shaped as those of five real servers, 4 connections", "real", columns)


def tables(plan: Plan, lanes: Sequence[Lane]) -> str:
    lines: list[str] = []
    for key in plan.columns:
        here = [lane for lane in lanes if lane.seen.get(key)]
        if not here:
            continue
        unit = f"{key} connections" if isinstance(key, int) else key
        floors = {lane.era: least(lane, key, "cpu") for lane in here if lane.peer.start is nginx}
        lines += [f"### {plan.title}: {unit}", ""]
        lines += [
            "| gateway | server by | client and server | CPU µs a call | median | times nginx | calls/s | p50 µs "
            "| p99 µs | runs |"
        ]
        lines += ["|---|---|---|" + "---:|" * 7]
        for lane in here:
            cpu = least(lane, key, "cpu")
            runs = lane.seen[key]
            middle = statistics.median(run["cpu"] for run in runs)
            times = f"{cpu / floors[lane.era]:.1f}" if floors.get(lane.era) else ""
            rate = max(run["rate"] for run in runs)
            tail = f"{least(lane, key, 'p50_us'):.0f} | {least(lane, key, 'p99_us'):.0f} | {len(runs)}"
            lines.append(f"| {lane.label} | {cpu:.0f} | {middle:.0f} | {times} | {rate:.0f} | {tail} |")
        lines.append("")
    lines += [
        "### Memory",
        "",
        "| gateway | server by | client and server | resident MB, most seen |",
        "|---|---|---|---:|",
    ]
    lines += [f"| {lane.label} | {lane.memory:.0f} |" for lane in lanes if lane.memory]
    missing = [f"| {lane.label} | {why} |" for lane in lanes for why in [lane.why, *lane.failed.values()] if why]
    if missing:
        lines += [
            "",
            "### Not measured",
            "",
            "| gateway | server by | client and server | why |",
            "|---|---|---|---|",
            *missing,
        ]
    return "\n".join(lines) + "\n"


def least(lane: Lane, key: object, what: str) -> float:
    return min(run[what] for run in lane.seen[key])


def pictures(plan: Plan, lanes: Sequence[Lane]) -> dict[str, str]:
    drawn: dict[str, str] = {}
    for key in plan.columns:
        found = [
            Bar(lane.label.replace(" | ", ", "), least(lane, key, "cpu"), lane.peer.name.startswith("toolgate"))
            for lane in lanes
            if lane.seen.get(key)
        ]
        unit = f"{key} connections" if isinstance(key, int) else str(key)
        short = f"{plan.name}-{str(key).replace(' ', '-').replace(',', '')}.svg"
        drawn[short] = bars(f"{plan.title}, {unit}: CPU of the gateway, µs a call (logarithmic)", found)
    return drawn


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start.\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--install", action="store_true", help="install what is missing, then end")
    add("--quick", action="store_true", help="1 and 16 connections: under two minutes")
    add("--only", choices=("warm", "sizes", "real"), nargs="+", default=["warm"], help="which tables (%(default)s)")
    add("--rows", default="", metavar="WORDS", help="only gateways whose row has one of these words, as toolgate,nginx")
    add("--connections", type=lambda s: [int(n) for n in s.split(",")], default=[1, 16, 64, 256])
    add("--runs", type=int, default=8, help="of each row and column at most; the least counts (%(default)s)")
    add("--minutes", type=float, default=5, help="no new round of a table after this (%(default)s)")
    add("--calls", type=int, default=8000, help="of a run, which ends after a second in any case (%(default)s)")
    add("--agentgateway", type=Path, help="where that program is")
    add("--go-proxy", type=Path, help="where the Go mcp-proxy is")
    add("--sse", action="store_true", help="the upstreams answer calls with streams of one event")
    args = parser.parse_args()
    if args.quick:
        args.connections, args.runs, args.calls, args.minutes = [1, 16], 3, 4000, 1.4
    return args


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
    paths = {"agentgateway": args.agentgateway, "go/mcp-proxy": args.go_proxy}
    words = [word.strip().lower() for word in args.rows.split(",") if word.strip()]
    lanes = [Lane(peer, era) for peer in PEERS for era in peer.eras]
    lanes = [lane for lane in lanes if not words or any(word in lane.label.lower() for word in words)]
    plans = {"warm": warm(args.connections, args.calls), "sizes": large(args.calls), "real": real(args.calls)}
    told = machine()
    begun = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-bench-")))
        program, server = build(folder, "load"), build(folder, "upstream")
        more = ["--shapes", *["--sse"] * args.sse]
        urls = {
            era: stack.enter_context(c_upstream(server, *more, *["--legacy"] * (era == "legacy")))[0] for era in ERAS
        }
        stdio = [str(server), "--stdio", "--shapes", "--seconds", "1800"]
        places: list[Path] = []
        for at, lane in enumerate(lanes):
            own = folder / str(at)
            own.mkdir()
            places.append(own)
            lane.start(Place(own, free_port(), urls, stdio), {name: path for name, path in paths.items() if path})
            stack.callback(lane.end)
        until = time.monotonic() + PATIENCE
        for lane, own in zip(lanes, places, strict=True):
            lane.why = lane.why or ""
            lane.up(program, until, own)
            if lane.here:
                lane.why = ""
        for at, name in enumerate(args.only):
            plan = plans[name]
            begun = time.monotonic() if at else begun
            for lane in lanes:
                lane.failed.clear()
            for turn in range(args.runs):
                for key, (connections, calls, tool, size) in plan.columns.items():
                    for lane in lanes if turn % 2 else lanes[::-1]:
                        if turn and time.monotonic() > begun + 60 * args.minutes:
                            continue
                        lane.measure(program, key, connections, calls, tool, size)
                        print(".", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            RESULTS.mkdir(parents=True, exist_ok=True)
            text = f"## {plan.title}\n\n{told}\n{tables(plan, lanes)}"
            print(text, flush=True)
            (RESULTS / f"{plan.name}.md").write_text(text)
            for file, svg in pictures(plan, lanes).items():
                (RESULTS / file).write_text(svg)
    print(f"written to {RESULTS.relative_to(ROOT)}/: tables, and a picture of each")
    return not any(lane.seen for lane in lanes)


if __name__ == "__main__":
    sys.exit(main())
