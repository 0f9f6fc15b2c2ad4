"""What each rule costs a call, in CPU time: the same calls under the same gateway with and without it. See README.md.

The gateways stand side by side in this process, with one upstream in memory, and take turns, block by block in another
order each time; a rule costs the median of what its blocks took more than those without any rule of the same turn. CPU
time is of all threads, so that what is hashed and written elsewhere counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from toolgate.app import App, running
from toolgate.audit import Trail
from toolgate.config import Config, Limits, Server
from toolgate.config.access import Audit, Bounds, Concurrency, KnownClient, Permissions, Rate, Rates
from toolgate.ports import SystemClock
from toolgate.redaction import Redactor
from toolgate.store.memory import MemoryStore
from toolgate.upstreams.links import Ground
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.memory import MemoryLink

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
KEY = "sixty-bits-of-nothing-in-particular"
LIMIT = 60.0  # µs: key check, permission, limits and audit line together
MANY = 10**6

KNOWN = KnownClient(id="bench", name="bench", key=KEY, servers="all")
PERMISSIONS = Permissions(
    everything="off",
    servers={"there": "ask"},
    tools={"there__get_*": "allow", "there__plain": "allow", **{f"other__tool_{n}*": "off" for n in range(50)}},
)
RATE = Rate(MANY, 1.0)
LIMITS = Limits(
    argument_limit=MANY, rates=Rates(RATE, RATE, RATE), concurrency=Concurrency(MANY, MANY, MANY)
)  # all that there are
NEVER = Audit(enabled=False)

# What is measured against what. An open gateway has none of them.
ROWS: Mapping[str, tuple[Config, str]] = {
    "no rule": (Config(audit=NEVER), ""),
    "key check": (Config(clients=(KNOWN,), audit=NEVER), "no rule"),
    "permission": (
        Config(clients=(KnownClient(id="bench", name="bench", key=KEY, servers="all", permissions=PERMISSIONS),),
               audit=NEVER),
        "key check",
    ),
    "limits": (Config(limits=LIMITS, audit=NEVER), "no rule"),
    "audit line": (Config(audit=Audit(enabled=True)), "no rule"),
    "audit line, arguments in full": (Config(audit=Audit(enabled=True, arguments="full")), "no rule"),
    "all four": (
        Config(
            clients=(
                KnownClient(
                    id="bench", name="bench", key=KEY, servers="all", permissions=PERMISSIONS, limits=Bounds(RATE, MANY)
                ),
            ),
            limits=LIMITS,
            audit=Audit(enabled=True),
        ),
        "no rule",
    ),
}  # fmt: skip


class Answering:
    """A modern server with one tool that says the same again and again."""

    def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
        self._say = say

    def disconnected(self) -> None: ...

    def received(self, data: bytes) -> None:
        asked = json.loads(data)
        if "id" in asked:
            self._say(
                json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": self._result(asked["method"])}).encode()
            )

    def _result(self, method: str) -> dict[str, Any]:
        if method == "tools/call":
            return {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
        kept = {"resultType": "complete", "ttlMs": 600_000, "cacheScope": "public"}
        if method == "server/discover":
            return kept | {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        kind = method.removesuffix("/list")
        return kept | {kind: [{"name": "plain", "inputSchema": {"type": "object"}}] if kind == "tools" else []}


class Asking:
    """One client of the HTTP door, without a network."""

    def __init__(self, app: App) -> None:
        self._app = app
        envelope = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        params = {"name": "there__plain", "arguments": {"path": "/a/b", "limit": 10}, "_meta": envelope}
        self._body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {
            "host": "localhost",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": "there__plain",
            "authorization": f"Bearer {KEY}",
        }
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def once(self) -> bytes:
        sent: list[bytes] = []
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": self._body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        scope = {
            "type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": self._headers,
            "client": ("127.0.0.1", 50000),
        }  # fmt: skip
        await self._app.http(scope, receive, send)  # type: ignore[arg-type]
        return b"".join(sent)

    async def block(self, calls: int) -> float:
        """CPU µs for each call, with what is done a little later."""
        start = time.process_time()
        for _ in range(calls):
            await self.once()
        await asyncio.sleep(0.15)
        return (time.process_time() - start) * 1e6 / calls


async def opened(stack: AsyncExitStack, folder: Path, config: Config) -> Asking:
    clock = SystemClock()
    store = MemoryStore(clock)
    trail = Trail(folder / "audit.jsonl", clock, store, Redactor(f"secret-number-{n}" for n in range(20)))
    trail.is_on = bool(config.audit.enabled)
    stack.push_async_callback(trail.close)
    server = Server(id="there", name="there", type="stdio", command="none")
    config = Config(**{**{name: getattr(config, name) for name in config.__struct_fields__}, "servers": (server,)})

    async def link(_server: Server, receiver: Receiver, _ground: Ground) -> MemoryLink:
        return MemoryLink("there", Answering(), receiver)

    app = await stack.enter_async_context(running(config, links={"there": link}, store=store, audit=trail))
    asking = Asking(app)
    said = await asking.once()
    assert b'"done"' in said, said
    return asking


async def measured(rounds: int, calls: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            asking: dict[str, Asking] = {}
            for number, (name, (config, _)) in enumerate(ROWS.items()):
                place = Path(folder, str(number))
                place.mkdir()
                asking[name] = await opened(stack, place, config)
            took: dict[str, list[float]] = {name: [] for name in ROWS}
            chance = random.Random(1)
            for number in range(rounds + 1):
                order = list(ROWS)
                chance.shuffle(order)
                for name in order:
                    found = await asking[name].block(calls)
                    if number:  # the first is for warming up
                        took[name].append(found)
            return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=1000, help="in one block")
    parser.add_argument("--limit", type=float, default=LIMIT)
    args = parser.parse_args()
    took = uvloop.run(measured(args.rounds, args.calls))
    assert threading.active_count() == 1
    print("| rule | CPU µs a call, median | quartiles | least less least | against |\n|---|---|---|---|---|")
    total = 0.0
    for name, (_, base) in ROWS.items():
        if not base:
            print(f"| {name} | {statistics.median(took[name]):.1f} | | {min(took[name]):.1f} | (the whole call) |")
            continue
        more = [ours - theirs for ours, theirs in zip(took[name], took[base], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        least = min(took[name]) - min(took[base])
        print(f"| {name} | {middle:.1f} | {low:.1f} to {high:.1f} | {least:.1f} | {base} |")
        total = middle if name == "all four" else total
    print(f"\nall four together: {total:.1f} µs; the limit is {args.limit:.0f} µs")
    return int(total > args.limit)


if __name__ == "__main__":
    raise SystemExit(main())
