"""What a hook costs the program that waits for it, beside a bare `python -I -c pass` in turns. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

BARE = [sys.executable, "-I", "-c", "pass"]
HOOK = [sys.executable, "-I", "-c", "from toolgate.frontends.hook import main; main()", "claude"]
PAYLOAD = {"session_id": "bench", "cwd": "/tmp", "hook_event_name": "SessionStart", "source": "startup"}


def taken(command: Sequence[str], environ: dict[str, str], payload: bytes = b"") -> tuple[float, bytes]:
    """Milliseconds until it has ended, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(command, input=payload, env=environ, stdout=subprocess.PIPE, check=True, timeout=30)
    return (time.perf_counter() - began) * 1000, done.stdout


def measure(name: str, environ: dict[str, str], runs: int) -> float:
    """The worst that a hook added to the bare run before it."""
    bare: list[float] = []
    hook: list[float] = []
    answered = 0
    for number in range(runs):
        bare.append(taken(BARE, environ)[0])
        payload = json.dumps({**PAYLOAD, "session_id": f"{name} {number}"}).encode()
        milliseconds, said = taken(HOOK, environ, payload)
        hook.append(milliseconds)
        answered += b"additionalContext" in said
    added = sorted(one - other for one, other in zip(hook, bare, strict=True))
    print(
        f"| {name} | {median(bare):.0f} | {max(bare):.0f} | {median(hook):.0f} | {max(hook):.0f} "
        f"| {median(added):.0f} | {added[-1]:.0f} | {answered} of {runs} |",
        flush=True,
    )
    return added[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--limit", type=float, default=100, help="milliseconds that a hook may add")
    options = parser.parse_args()
    print("| gateway | bare ms | worst | hook ms | worst | added ms | worst | answered |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        environ = {"HOME": folder, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        worst = [measure("down", environ, options.runs)]
        config = Path(folder, "toolgate.json")
        config.write_text('{"mcpServers": {"never": {"command": "started"}}}')
        command = [sys.executable, "-m", "toolgate", "serve", "--port", "0", "--config", str(config)]
        gateway = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 30
            while not list(Path(folder).glob(".local/state/toolgate/run/*.sock")):
                if gateway.poll() is not None or time.monotonic() > until:
                    sys.exit("the gateway does not start")
                time.sleep(0.05)
            worst.append(measure("up", environ, options.runs))
            gateway.send_signal(signal.SIGSTOP)
            worst.append(measure("stopped", environ, options.runs))
        finally:
            gateway.send_signal(signal.SIGCONT)
            gateway.terminate()
            gateway.communicate(timeout=30)
    return 1 if max(worst) > options.limit else 0


if __name__ == "__main__":
    raise SystemExit(main())
