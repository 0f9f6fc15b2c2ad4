"""Start to first answer, `--help`, and the idle gateway's memory. See README.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from harness import ROOT, TOOLGATE, Gateway, environment, family, resident_mb
from listing import Lister, Refused


def list_tools(url: str) -> list[str]:
    lister = Lister(url)
    try:
        return lister.tools().names
    except Refused as refused:
        sys.exit(str(refused))
    finally:
        lister.close()


def servers(config: Path) -> list[str]:
    """The servers that a config names, so that an answer without their tools does not count."""
    text = config.read_text()
    if config.suffix == ".toml":
        return list(tomllib.loads(text)["mcpServers"])
    return list(json.loads(text)["mcpServers"]) if config.suffix == ".json" else []


def check(config: Path, tools: list[str]) -> None:
    missing = [s for s in servers(config) if not any(t.startswith(f"{s}__") for t in tools)]
    if missing or not tools:
        sys.exit(f"the first tools/list has no tool of {missing or 'any server'}")


def demo_config(folder: Path, count: int | None) -> Path:
    """A config of the bundled demo servers as stdio children, each once or `count` in all."""
    scripts = [p for p in sorted((ROOT / "src/toolgate/demo").glob("*.py")) if p.stem[0] != "_"]
    if not scripts:
        sys.exit("there are no bundled demo servers; name a config with --config")
    entries = {
        f"{scripts[i % len(scripts)].stem}{i}": {
            "command": sys.executable,
            "args": [str(scripts[i % len(scripts)])],
        }
        for i in range(count or len(scripts))
    }
    config = folder / f"{count or 'demo'}.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    return config


def first_answer(config: Path, folder: Path) -> tuple[float, float]:
    """Milliseconds from process start to listening, and to the whole first tools/list answer."""
    start = time.perf_counter()
    with Gateway([*TOOLGATE, "serve"], config, folder) as gateway:
        url = gateway.url()
        listening = time.perf_counter()
        tools = list_tools(url)
        answered = time.perf_counter()
        check(config, tools)
    return (listening - start) * 1e3, (answered - start) * 1e3


def help_time(folder: Path) -> float:
    start = time.perf_counter()
    subprocess.run([*TOOLGATE, "--help"], env=environment(folder), check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


def memory(config: Path, folder: Path, idle: float) -> tuple[float, float, list[float]]:
    """Megabytes before the first request, after it and idle again, and of each descendant."""
    with Gateway([*TOOLGATE, "serve"], config, folder) as gateway:
        url = gateway.url()
        time.sleep(idle)
        before = resident_mb(gateway.pid)
        check(config, list_tools(url))
        time.sleep(idle)
        rest = [resident_mb(pid) for pid in family(gateway.pid)[1:]]
        return before, resident_mb(gateway.pid), rest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--config", type=Path, help="for the first answer (default: each bundled demo server)")
    add("--memory-config", type=Path, help="for the memory (default: five bundled demo servers)")
    add("--runs", type=int, default=10, help="the least counts (%(default)s)")
    add("--idle", type=float, default=3.0, help="seconds before memory is read (%(default)s)")
    add("--first-limit", type=float, default=600, help="ms (%(default)s)")
    add("--help-limit", type=float, default=250, help="ms (%(default)s)")
    add("--memory-limit", type=float, default=60, help="MB (%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolgate-bench-") as temporary:
        folder = Path(temporary)
        helps = [help_time(folder) for _ in range(args.runs)]
        config = args.config or demo_config(folder, None)
        starts = [first_answer(config, folder) for _ in range(args.runs)]
        config = args.memory_config or demo_config(folder, 5)
        before, after, rest = memory(config, folder, args.idle)

    first = min(answered for _, answered in starts)
    rows = [
        ("toolgate --help", min(helps), args.help_limit, "ms"),
        ("start to listening", min(listening for listening, _ in starts), None, "ms"),
        ("start to first tools/list", first, args.first_limit, "ms"),
        ("idle, before any request", before, args.memory_limit, "MB"),
        ("idle, all servers running", after, args.memory_limit, "MB"),
    ]
    print(f"the least of {args.runs}\n\n| | measured | limit |\n|---|---:|---:|")
    for name, value, limit, unit in rows:
        print(f"| {name} | {value:.1f} {unit} | {f'{limit:g} {unit}' if limit else ''} |")
    print(f"\nbeside the gateway: {len(rest)} processes, {sum(rest):.1f} MB together")
    over = [name for name, value, limit, _ in rows if limit and value > limit]
    print("OVER THE LIMIT: " + ", ".join(over) if over else "ok")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
