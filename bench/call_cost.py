"""The gateway's CPU time for one warm tools/call over an HTTP upstream. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import TOOLGATE, Gateway, Load, LoadFailed, build, cpu_seconds, family, upstream

ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
SETTLE = 0.1  # seconds; work put off until after the answer counts as well


class Sample(NamedTuple):
    """One run: microseconds, and calls per second."""

    cpu: float
    upstream_cpu: float
    p50: float
    p99: float
    rate: float


def measure(load: Load, gateway: int, server: int, calls: int) -> Sample:
    pids = family(gateway)
    before, server_before = cpu_seconds(pids), cpu_seconds([server])
    seen = load.run(calls)
    time.sleep(SETTLE)
    each = 1e6 / seen["calls"]
    return Sample(
        (cpu_seconds(pids) - before) * each,
        (cpu_seconds([server]) - server_before) * each,
        seen["p50_us"],
        seen["p99_us"],
        seen["rate"],
    )


def cell(
    program: Path,
    url: str,
    era: str,
    tool: str,
    connections: int,
    pids: tuple[int, int],
    args: argparse.Namespace,
    runs: int,
) -> list[Sample]:
    """Warm up, then `runs` runs on the same connections, fewer if the cell's time is spent."""
    until = time.monotonic() + args.cell_seconds
    samples: list[Sample] = []
    with Load(program, url, era, tool, connections, args.run_seconds) as load:
        load.run(max(1000, 20 * connections))
        while len(samples) < runs and (not samples or time.monotonic() < until):
            samples.append(measure(load, *pids, args.calls))
    return samples


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--limit", type=float, default=300, help="µs of CPU a call at 16 connections (%(default)s)")
    add("--runs", type=int, default=10, help="runs per row; the least counts (%(default)s)")
    add("--calls", type=int, default=8000, help="calls per run (%(default)s)")
    add("--connections", type=lambda s: [int(n) for n in s.split(",")], default=[1, 16, 64])
    add("--clients", choices=ERAS, nargs="+", default=list(ERAS), help="eras of the client")
    add("--upstreams", choices=ERAS, nargs="+", default=list(ERAS), help="eras of the upstream")
    add("--run-seconds", type=int, default=4, help="a run ends after this (%(default)s)")
    add("--cell-seconds", type=int, default=60, help="no new run of a row after this (%(default)s)")
    add(
        "--gateway",
        type=shlex.split,
        default=[*TOOLGATE, "serve"],
        metavar="COMMAND",
        help="another gateway; it gets --config and --port and prints the same line when it is up",
    )
    return parser.parse_args()


def main() -> int:
    args = arguments()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="toolgate-bench-") as temporary:
        folder = Path(temporary)
        load, server = build(folder, "load"), build(folder, "upstream")
        with upstream(server) as modern, upstream(server, "--legacy") as legacy:
            servers = {"modern": modern, "legacy": legacy}
            config = folder / "servers.json"
            config.write_text(json.dumps({"mcpServers": {era: {"url": url} for era, (url, _) in servers.items()}}))
            print(
                f"CPU per tools/call: the least of {args.runs} runs of {args.calls} calls; "
                f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n"
            )
            with Gateway(args.gateway, config, folder) as gateway:
                table(args, load, gateway, servers, problems)
    print()
    for problem in problems:
        print("FAILED:", problem)
    if not problems:
        print(f"ok: at most {args.limit:g} µs of CPU a call at 16 connections")
    return bool(problems)


def table(
    args: argparse.Namespace,
    load: Path,
    gateway: Gateway,
    servers: dict[str, tuple[str, int]],
    problems: list[str],
) -> None:
    url = gateway.url()
    heads = ["client", "upstream", "c", "CPU µs", "median", "calls/s", "p50 µs", "p99 µs",
             "p50 added", "upstream µs", "runs"]  # fmt: skip
    print("| " + " | ".join(heads) + " |\n|" + "---|" * 2 + "---:|" * 9, flush=True)
    for connections in args.connections:
        for client in args.clients:
            here, pid = servers[client]
            direct = cell(load, here, client, "echo", connections, (pid, pid), args, 3)
            direct_p50 = min(s.p50 for s in direct)
            for behind in args.upstreams:
                row = f"{ERAS[client]} client, {ERAS[behind]} upstream, c={connections}"
                pids = gateway.pid, servers[behind][1]
                try:
                    samples = cell(load, url, client, f"{behind}__echo", connections, pids, args, args.runs)
                except LoadFailed as failure:
                    problems.append(f"{row}: {failure}")
                    if gateway.process.poll() is not None:
                        problems.append("the gateway has ended:\n" + "".join(gateway.last_words))
                        return
                    continue
                least = min(s.cpu for s in samples)
                p50 = min(s.p50 for s in samples)
                figures = [
                    f"{least:.0f}",
                    f"{statistics.median(s.cpu for s in samples):.0f}",
                    f"{max(s.rate for s in samples):.0f}",
                    f"{p50:.0f}",
                    f"{min(s.p99 for s in samples):.0f}",
                    f"{p50 - direct_p50:+.0f}",
                    f"{min(s.upstream_cpu for s in samples):.0f}",
                    f"{len(samples)}",
                ]
                cells = [ERAS[client], ERAS[behind], str(connections), *figures]
                print("| " + " | ".join(cells) + " |", flush=True)
                if connections == 16 and least > args.limit:
                    problems.append(f"{row}: {least:.0f} µs of CPU a call, limit {args.limit:g}")


if __name__ == "__main__":
    sys.exit(main())
