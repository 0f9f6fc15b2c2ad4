"""Where the CPU of a warm tools/call goes: samples of a gateway at work, as a flame graph and a table. See README.md.

The sampler is py-spy, which `bench/peers.py --install` puts into `.bench/`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from chart import flames
from gateways import CACHE, ERAS, SAMPLER
from harness import TOOLGATE, Gateway, Load, build, cpu_microseconds, upstream
from paired import KEY, POLICIES

RESULTS = CACHE / "results"
WARM, COUNTED = 6000, 8000  # calls
LEAST = 0.01  # share that has a row
MOST = 10_000_000  # calls of a run, which ends by its seconds
PYTHON = re.compile(r"^(?P<function>.+) \((?P<file>[^()]+\.pyx?)(:\d+)?\)$")
KERNEL = "kernel: read, write, wait for sockets"
CALLS = ("read", "recv", "write", "writev", "send", "sendmsg", "epoll_wait", "epoll_pwait")


def stacks_of(raw: str) -> Counter[tuple[str, ...]]:
    """What the event loop's thread did: functions in Python, and at the top the one in C that was at work."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in raw.splitlines():
        told, _, count = line.rpartition(" ")
        frames = told.split(";")
        starts = [at for at, frame in enumerate(frames) if frame.startswith("uv_run ")]
        if not starts:
            continue
        frames = frames[starts[0] + 1 :]
        stack = tuple(f"{each['function']} ({each['file']})" for each in map(PYTHON.match, frames) if each)
        leaf = frames[-1].partition(" (")[0] if frames else ""
        if frames and not PYTHON.match(frames[-1]):
            stack += (KERNEL if leaf in CALLS else leaf,)
        found[stack or ("event loop",)] += int(count)
    return found


def place_of(stack: tuple[str, ...]) -> str:
    """What of ours was at work, itself or by what it called; the kernel's work is the kernel's."""
    if stack[-1] == KERNEL:
        return KERNEL
    own = [frame for frame in stack if "(toolgate/" in frame]
    return own[-1].partition("(toolgate/")[2].removesuffix(")") if own else "event loop (uvloop, libuv)"


def weighed(stacks: Counter[tuple[str, ...]], kernel: float) -> dict[tuple[str, ...], float]:
    """As shares, with this one for the kernel. A thread that waits for a core is sampled too, and it loses its core
    mostly where a write wakes another process: by the samples alone the kernel would have twice its share."""
    inside = sum(count for stack, count in stacks.items() if stack[-1] == KERNEL)
    outside = sum(stacks.values()) - inside
    return {
        stack: count * (kernel / inside if stack[-1] == KERNEL else (1 - kernel) / outside)
        for stack, count in stacks.items()
    }


def ticks(pid: int) -> tuple[int, int]:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user), int(system)


def sampled(full: bool, args: argparse.Namespace, folder: Path, program: Path, url: str) -> str:
    """The text of one gateway; its picture is written."""
    own = folder / ("full" if full else "open")
    own.mkdir()
    file = own / "servers.json"
    file.touch(0o600)
    file.write_text(json.dumps({"mcpServers": {args.era: {"url": url}}, **(POLICIES if full else {})}))
    name = "full-policy" if full else "open"
    raw = own / "samples"
    with Gateway([*TOOLGATE, "serve"], file, own) as gateway:
        seconds = args.seconds + 30
        key = KEY if full else ""
        with Load(program, gateway.url(), args.era, f"{args.era}__echo", args.connections, seconds, key) as load:
            load.run(WARM)
            costs: list[float] = []
            split = [0, 0]
            for _ in range(args.runs):
                before, spent = ticks(gateway.pid), cpu_microseconds(gateway.pid)
                seen = load.run(COUNTED)
                costs.append((cpu_microseconds(gateway.pid) - spent) / seen["calls"])
                split = [total + now - then for total, now, then in zip(split, ticks(gateway.pid), before, strict=True)]
            before = ticks(gateway.pid)
            load.begin(MOST)
            command = [
                CACHE / SAMPLER,
                "record",
                "--pid",
                str(gateway.pid),
                "--native",
                "--format",
                "raw",
                "--output",
                raw,
            ]
            rate = ["--rate", str(args.rate), "--duration", str(args.seconds)]
            subprocess.run([*command, *rate], capture_output=True, check=True)
            split = [total + now - then for total, now, then in zip(split, ticks(gateway.pid), before, strict=True)]
    kernel = split[1] / max(1, sum(split))
    samples = stacks_of(raw.read_text())
    stacks = weighed(samples, kernel)
    RESULTS.mkdir(parents=True, exist_ok=True)
    title = f"A warm tools/call, {ERAS[args.era]}, {name}"
    (RESULTS / f"flame-{name}.svg").write_text(flames(title, stacks))
    return table(title, stacks, min(costs), kernel, sum(samples.values()))


def table(title: str, stacks: Mapping[tuple[str, ...], float], cost: float, kernel: float, samples: int) -> str:
    places: dict[str, float] = {}
    for stack, share in stacks.items():
        place = place_of(stack)
        places[place] = places.get(place, 0.0) + share
    lines = [
        f"### {title}",
        "",
        f"{cost:.0f} µs a call, {kernel:.0%} of it in the kernel by the clock's ticks; {samples} samples.",
        "",
        "| where | share | µs |",
        "|---|---:|---:|",
    ]
    ordered = sorted(places.items(), key=lambda each: -each[1])
    lines += [f"| {place} | {share:.1%} | {cost * share:.1f} |" for place, share in ordered if share >= LEAST]
    rest = sum(share for _, share in ordered if share < LEAST)
    lines.append(f"| the rest | {rest:.1%} | {cost * rest:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--era", choices=ERAS, default="modern", help="of client and server (%(default)s)")
    add("--connections", type=int, default=16, help="(%(default)s)")
    add("--seconds", type=int, default=20, help="of sampling, for each gateway (%(default)s)")
    add("--rate", type=int, default=100, help="samples a second; more disturb the gateway (%(default)s)")
    add("--runs", type=int, default=6, help="by which a call's cost is measured before; the least counts (%(default)s)")
    args = parser.parse_args()
    if not (CACHE / SAMPLER).exists():
        sys.exit("the sampler is missing: .venv/bin/python bench/peers.py --install")
    told = f"{time.strftime('%Y-%m-%d', time.gmtime())}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-bench-")))
        program, server = build(folder, "load"), build(folder, "upstream")
        url, _ = stack.enter_context(upstream(server, *["--legacy"] * (args.era == "legacy")))
        texts = [sampled(full, args, folder, program, url) for full in (False, True)]
    text = f"{told}.\n\n" + "\n".join(texts)
    print(text)
    (RESULTS / "flame.md").write_text(text)
    print(f"pictures: {RESULTS}/flame-open.svg and flame-full-policy.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
