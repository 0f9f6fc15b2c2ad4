"""What each rule costs a call, in CPU time of the gateway: the same calls with and without it. See README.md.

Gateways stand side by side, each with other rules, in front of one upstream, and take turns, block by block, in another
order each time. A turn counts what its gateway's process takes from the beginning of it until that of the next, so that
what is written later counts too. Other work on the machine only ever adds to that: so a gateway costs what the quieter
half of its blocks takes on average, and a rule what that is more than without it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from harness import TOOLGATE, Gateway, Load, build, cpu_microseconds, upstream

KEY = "sixty-bits-of-nothing-in-particular"
LIMIT = 60.0  # µs: key check, permission, limits and audit line together
MANY = 10**6
SETTLE = 0.3  # seconds, until what was noted last is written

KNOWN = {"id": "bench", "key": KEY, "mcp_server_access": "all"}
PERMISSIONS = {
    "global": "off",
    "servers": {"there": "ask"},
    "tools": {"there__get_*": "allow", "there__echo": "allow", **{f"other__tool_{n}*": "off" for n in range(50)}},
}
RATE = f"{MANY}/s"
EACH = ("principal", "server", "tool")
LIMITS = {
    "argument_limit": MANY,
    "rates": dict.fromkeys(EACH, RATE),
    "concurrency": dict.fromkeys(EACH, MANY),
}  # all that there are
NEVER, ALWAYS = {"audit": {"enabled": False}}, {"audit": {"enabled": True}}


class Row(NamedTuple):
    """A gateway's configuration, and that of the one it is held against."""

    config: Mapping[str, Any]
    against: str = "no rule"


ROWS: Mapping[str, Row] = {
    "no rule": Row(NEVER, ""),
    "key check": Row({"clients": [KNOWN], **NEVER}),
    "permission": Row({"clients": [KNOWN | {"mcp_permissions": PERMISSIONS}], **NEVER}, "key check"),
    "limits": Row({"limits": LIMITS, **NEVER}),
    "audit line": Row(ALWAYS),
    "audit line, arguments in full": Row({"audit": {"enabled": True, "arguments": "full"}}),
    "counts (telemetry.usage)": Row({"telemetry": {"usage": True}, **NEVER}),
    "access log": Row({"log": {"access": True}, **NEVER}),
    "counts and access log": Row({"telemetry": {"usage": True}, "log": {"access": True}, **NEVER}),
    "all four": Row(
        {
            "clients": [KNOWN | {"mcp_permissions": PERMISSIONS, "limits": {"rate": RATE, "concurrency": MANY}}],
            "limits": LIMITS,
            **ALWAYS,
        }
    ),
}
OTHER = "no rule, the other gateway"


class ConcurrencyLimit:
    """One gateway and its clients."""

    def __init__(self, gateway: Gateway, load: Load) -> None:
        self._gateway = gateway
        self._load = load
        self._calls = self._before = 0.0
        self.blocks: list[float] = []  # µs a call

    def take(self, calls: int) -> None:
        self.count()
        self._calls = self._load.run(calls)["calls"]

    def count(self) -> None:
        """What the turn before this one has taken until now."""
        now = cpu_microseconds(self._gateway.pid)
        if self._calls:
            self.blocks.append((now - self._before) / self._calls)
        self._before = now

    def warm_up(self) -> None:
        self._load.run(2000)
        self._before = cpu_microseconds(self._gateway.pid)


def opened(
    stack: ExitStack, folder: Path, load: Path, name: str, config: Mapping[str, Any], command: Sequence[str]
) -> ConcurrencyLimit:
    own = folder / name
    own.mkdir()
    file = own / "toolgate.json"
    file.write_text(json.dumps(config))
    file.chmod(0o600)
    gateway = stack.enter_context(Gateway(command, file, own))
    key = KEY if "clients" in config else ""
    turns = ConcurrencyLimit(
        gateway, stack.enter_context(Load(load, gateway.url(), "modern", "there__echo", 16, 30, key))
    )
    turns.warm_up()
    return turns


def measured(seconds: float, calls: int, other: Sequence[str]) -> dict[str, list[float]]:
    """µs a call of each block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-bench-")))
        load, server = build(folder, "load"), build(folder, "upstream")
        url, _ = stack.enter_context(upstream(server))
        servers = {"mcpServers": {"there": {"url": url}}}
        commands = {name: ([*TOOLGATE, "serve"], row.config) for name, row in ROWS.items()}
        if other:
            commands[OTHER] = (other, {})
        found = {
            name: opened(stack, folder, load, name, {**servers, **config}, command)
            for name, (command, config) in commands.items()
        }
        chance, order, until = random.Random(1), list(found), time.monotonic() + seconds
        while time.monotonic() < until:
            chance.shuffle(order)
            for name in order:
                found[name].take(calls)
        time.sleep(SETTLE)
        for turns in found.values():
            turns.count()
        return {name: turns.blocks for name, turns in found.items()}


def quiet(blocks: Sequence[float]) -> float:
    return statistics.mean(sorted(blocks)[: (len(blocks) + 1) // 2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=75, help="of turns (%(default)s)")
    parser.add_argument("--calls", type=int, default=200, help="in one block (%(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="µs for all four (%(default)s)")
    parser.add_argument("--other", type=shlex.split, default=[], metavar="COMMAND", help="another open gateway")
    args = parser.parse_args()
    blocks = measured(args.seconds, args.calls, args.other)
    costs = {name: quiet(each) for name, each in blocks.items()}
    print(
        f"{min(map(len, blocks.values()))} blocks of {args.calls} calls each; {os.cpu_count()} cores, "
        f"load average {os.getloadavg()[0]:.1f}\n"
    )
    print("| rule | CPU µs a call | the whole call | median of all blocks | least |\n|---|---:|---:|---:|---:|")
    for name, row in {**ROWS, **({OTHER: Row({})} if args.other else {})}.items():
        more = f"{costs[name] - costs[row.against]:+.1f}" if row.against else ""
        more += "" if row.against in ("", "no rule") else f" on {row.against}"
        print(
            f"| {name} | {more} | {costs[name]:.1f} | {statistics.median(blocks[name]):.1f} | {min(blocks[name]):.1f} |"
        )
    total = costs["all four"] - costs["no rule"]
    print(f"\nall four together: {total:.1f} µs; the limit is {args.limit:.0f} µs")
    return int(total > args.limit)


if __name__ == "__main__":
    sys.exit(main())
