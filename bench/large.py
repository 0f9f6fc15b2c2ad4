"""What large results, slow readers and long lists cost the gateway: memory, and the wait of others. See README.md."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import TOOLGATE, Gateway, Load, build, cpu_microseconds, upstream
from listing import META, MODERN, Lister

SECRET = "a-secret-of-this-server-0123456789"
TOOLS = 50  # of each server of the long list


def megabytes(pid: int, what: str) -> float:
    """`VmHWM` is the most so far, `VmRSS` what is resident now."""
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(what)]
    return int(line.split()[1]) * 1024 / 1e6


def forget_peak(pid: int) -> float:
    """The most that was resident counts from now on; what is resident."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return megabytes(pid, "VmRSS")


def whole_list(url: str, expected: int) -> tuple[float, int]:
    """Milliseconds for all pages, and how many there were."""
    lister = Lister(url)
    try:
        begun = time.perf_counter()
        listed = lister.tools()
        took = (time.perf_counter() - begun) * 1e3
    finally:
        lister.close()
    if len(listed.names) < expected:
        sys.exit(f"the list has {len(listed.names)} tools, and should have {expected}")
    return took, listed.pages


def ask_slowly(url: str, tool: str) -> socket.socket:
    """A client that asks for a large result, and has not read anything of it yet."""
    parts = urlsplit(url)
    params: dict[str, Any] = {"name": tool, "arguments": {"text": "slow"}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    heads = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    heads |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    heads |= {"Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    client = socket.create_connection((str(parts.hostname), int(parts.port or 0)), 60)
    client.sendall(f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{lines}\r\n".encode() + body)
    return client


def large(folder: Path, program: Path, server: Path) -> list[tuple[str, float, float, str]]:
    rows: list[tuple[str, float, float, str]] = []
    with upstream(server, "--shapes") as (url, _):
        config = folder / "large.json"
        config.touch(0o600)
        # the header's value is a secret, so each result is searched for it
        config.write_text(json.dumps({"mcpServers": {"modern": {"url": url, "headers": {"X-Key": SECRET}}}}))
        with Gateway([*TOOLGATE, "serve"], config, folder) as gateway:
            here, pid = gateway.url(), gateway.pid
            with Load(program, here, "modern", "modern__echo", 1, 10) as others:
                others.run(2000)
                alone = others.run(1000)["p99_us"] / 1e3
                before = forget_peak(pid)
                with Load(program, here, "modern", "modern__size_10m", 8, 60, "", False, 9_000_000) as eight:
                    eight.begin(8)
                    beside = others.run(1000)["p99_us"] / 1e3
                    eight.finish()
                rows.append(("8 results of 10 MB at once: memory grows", megabytes(pid, "VmHWM") - before, 20, "MB"))
                rows.append(("the same: p99 of another client, more than alone", beside - alone, 50, "ms"))
                time.sleep(1)
                before = forget_peak(pid)
                readers = [ask_slowly(here, "modern__size_10m") for _ in range(10)]
                slow = others.run(10_000)["p99_us"] / 1e3
                time.sleep(5)
                grown = megabytes(pid, "VmHWM") - before
                for reader in readers:
                    reader.close()
                rows.append(("10 clients that do not read their 10 MB: memory grows", grown, 20, "MB"))
                rows.append(("the same: p99 of another client, more than alone", slow - alone, 50, "ms"))
    return rows


def lists(folder: Path, server: Path, servers: int) -> list[tuple[str, float, float, str]]:
    with upstream(server, "--tools", str(TOOLS)) as (url, _):
        config = folder / f"lists-{servers}.json"
        config.write_text(json.dumps({"mcpServers": {f"server-{at}": {"url": url} for at in range(servers)}}))
        with Gateway([*TOOLGATE, "serve"], config, folder) as gateway:
            here = gateway.url()
            before = cpu_microseconds(gateway.pid)
            cold, pages = whole_list(here, servers * TOOLS)
            taken = (cpu_microseconds(gateway.pid) - before) / 1e3
            time.sleep(1)  # tools are compared with their pins meanwhile
            later = (cpu_microseconds(gateway.pid) - before) / 1e3
            whole_list(here, servers * TOOLS)
            before = cpu_microseconds(gateway.pid)
            for _ in range(5):
                whole_list(here, servers * TOOLS)
            each = (cpu_microseconds(gateway.pid) - before) / 5e3 / pages
    name = f"list of {servers} servers with {TOOLS} tools each"
    most = 1.5 * servers
    rows = [(f"{name}, cold", cold, most, "ms"), (f"{name}, cold: CPU", taken, most, "ms")]
    rows += [(f"{name}, cold: CPU with what follows in a second", later, 2 * most, "ms")]
    return [*rows, (f"{name}, a cached page of {pages}: CPU", each, 1, "ms")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, nargs="+", default=[10, 100, 1000], help="of the lists")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-bench-")))
        program, server = build(folder, "load"), build(folder, "upstream")
        rows = large(folder, program, server)
        for servers in args.servers:
            rows += lists(folder, server, servers)
    print("| | measured | goal |\n|---|---:|---:|")
    for name, value, goal, unit in rows:
        print(f"| {name} | {value:.1f} {unit} | {goal:g} {unit} |")
    over = [name for name, value, goal, _ in rows if value > goal]
    print("\nnot reached: " + "; ".join(over) if over else "\nok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
