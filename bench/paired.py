"""CPU of a warm tools/call in pairs that take turns: one server against many, and this tree against another's.

`make bench` compares one server with 1000 of them. `--base TREE` compares with another checkout of toolgate;
`--instructions` counts instead of timing, and `--policies` has calls pass the whole chain. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from harness import ROOT, TOOLGATE, Gateway, Load, build, cpu_microseconds, upstream

ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
WARM, COUNTED = 1000, 3000  # calls
KEY = "the-key-of-a-client-that-is-measured"
POLICIES = {  # each of them is passed, and none of them refuses
    "clients": [
        {
            "id": "measured",
            "key": KEY,
            "mcp_permissions": {"tools": {f"{era}__*": "allow" for era in ERAS}},
            "limits": {"rate": "1000000/s", "concurrency": 1000},
        }
    ],
    "audit": {"enabled": True},
}
SETTLE = 0.05  # seconds; work put off until after the answer counts as well


def cost(load: Load, pid: int, calls: int) -> float:
    """Microseconds of the gateway's CPU for each of so many calls."""
    before = cpu_microseconds(pid)
    seen = load.run(calls)
    time.sleep(SETTLE)
    return (cpu_microseconds(pid) - before) / seen["calls"]


def pair(row: str, loads: list[tuple[Load, int]], args: argparse.Namespace) -> float:
    """Prints a line of the table; the second's least cost as a multiple of the first's."""
    for load, pid in loads:
        cost(load, pid, args.warm)
    seen: list[list[float]] = [[], []]
    for turn in range(args.rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            load, pid = loads[which]
            seen[which].append(cost(load, pid, args.calls))
    least = [min(each) for each in seen]
    middle = [statistics.median(each) for each in seen]
    ratio = least[1] / least[0]
    figures = f"{least[0]:.1f} | {least[1]:.1f} | {ratio:.3f} | {middle[1] / middle[0]:.3f}"
    print(f"| {row} | {figures} |", flush=True)
    return ratio


def configured(own: Path, servers: object, args: argparse.Namespace) -> Path:
    """The file of a gateway's configuration."""
    file = own / "servers.json"
    file.touch(0o600)
    file.write_text(json.dumps({"mcpServers": servers, **(POLICIES if args.policies else {})}))
    return file


def counted(
    calls: Sequence[int],
    url: str,
    era: str,
    behind: str,
    args: argparse.Namespace,
    program: Path,
    tree: Path,
    own: Path,
) -> int:
    """The instructions of a gateway from its start to its end, with so many calls."""
    file = configured(own, {behind: {"url": url}}, args)
    said = own / "said"
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = ["env", f"PYTHONPATH={tree / 'src'}", "PYTHONHASHSEED=0", *valgrind, f"--log-file={said}", *TOOLGATE]
    with Gateway([*command, "serve"], file, own) as gateway:
        with Load(
            program, gateway.url(300), era, f"{behind}__echo", 1, 600, args.key
        ) as load:  # always as many wakeups
            for each in calls:
                load.run(each)
        gateway.process.terminate()
        gateway.process.wait(300)
    found = re.search(r"I\s+refs:\s+([\d,]+)", said.read_text())
    assert found, said.read_text()
    return int(found[1].replace(",", ""))


def instructions(args: argparse.Namespace, urls: Mapping[str, str], program: Path, folder: Path) -> list[str]:
    """Prints the table; what is wrong with it."""
    problems: list[str] = []
    print("| client | upstream | first | second | times |\n|" + "---|" * 5, flush=True)
    for client in ERAS:
        for behind in ERAS:
            each: list[float] = []
            for tree in (args.base, ROOT):
                given = (urls[behind], client, behind, args, program, tree)
                with ThreadPoolExecutor(2) as together:
                    few, many = (
                        together.submit(counted, calls, *given, Path(tempfile.mkdtemp(dir=folder)))
                        for calls in ((WARM,), (WARM, COUNTED))
                    )
                each.append((many.result() - few.result()) / COUNTED)
            row, ratio = f"{ERAS[client]} | {ERAS[behind]}", each[1] / each[0]
            print(f"| {row} | {each[0]:,.0f} | {each[1]:,.0f} | {ratio:.3f} |", flush=True)
            if ratio > args.most_of_base:
                problems.append(f"{row}: {ratio:.3f} times as many, and may be {args.most_of_base:g}")
    return problems


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--base", type=Path, help="another checkout, whose gateway is measured beside this one's")
    add("--servers", type=int, default=1000, help="of the gateway with many (%(default)s)")
    add("--rounds", type=int, default=16, help="runs of each of a pair; the least counts (%(default)s)")
    add("--calls", type=int, default=3000, help="calls of a run (%(default)s)")
    add("--warm", type=int, default=6000, help="calls before the first run (%(default)s)")
    add("--connections", type=int, default=16, help="(%(default)s)")
    add("--most", type=float, default=1.15, help="times as much with many servers (%(default)s)")
    add("--most-of-base", type=float, default=1.0, help="times as much as the other checkout (%(default)s)")
    add("--policies", action="store_true", help="with a key, permissions, limits and the audit log")
    add("--instructions", action="store_true", help="count them, beside the other checkout (needs valgrind)")
    args = parser.parse_args()
    args.key = KEY if args.policies else ""
    if args.instructions and not args.base:
        parser.error("--instructions compares with another checkout: name it with --base")
    return args


def main() -> int:
    args = arguments()
    problems: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-bench-")))
        program, server = build(folder, "load"), build(folder, "upstream")
        urls = {era: stack.enter_context(upstream(server, *["--legacy"] * (era == "legacy")))[0] for era in ERAS}
        if args.instructions:
            problems = instructions(args, urls, program, folder)
            return told(problems)
        few = {era: {"url": url} for era, url in urls.items()}
        many = {**{f"server-{at}": {"url": urls["modern"]} for at in range(args.servers - 2)}, **few}

        def gateway(name: str, servers: object, tree: Path | None = None) -> Gateway:
            own = folder / name
            own.mkdir()
            file = configured(own, servers, args)
            command = ["env", f"PYTHONPATH={tree / 'src'}", *TOOLGATE] if tree else TOOLGATE
            return stack.enter_context(Gateway([*command, "serve"], file, own))

        here = gateway("one", few)
        beside = {f"{args.servers} servers beside 2": (here, gateway("many", many), args.most)}
        if args.base:
            beside = {"this tree beside the other": (gateway("base", few, args.base), here, args.most_of_base)}
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n")
        print("| pair | client | upstream | first µs | second µs | times | of medians |\n|" + "---|" * 7, flush=True)
        for name, (first, second, most) in beside.items():
            for client in ERAS:
                for behind in ERAS:
                    row = f"{name} | {ERAS[client]} | {ERAS[behind]}"
                    with ExitStack() as loads:
                        each = [
                            (
                                loads.enter_context(
                                    Load(program, g.url(), client, f"{behind}__echo", args.connections, 60, args.key)
                                ),
                                g.pid,
                            )
                            for g in (first, second)
                        ]
                        ratio = pair(row, each, args)
                    if ratio > most:
                        problems.append(f"{row}: {ratio:.3f} times as much, and may be {most:g}")
    return told(problems)


def told(problems: Sequence[str]) -> int:
    for problem in problems:
        print("FAILED:", problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
