"""`make image-check`: the image of `packaging/Dockerfile`, built, and run as `packaging/compose.yaml` says.

It is run by Docker, or by Podman where no engine of Docker answers: first call by a client with a key, a server in a
box, what its user may write, whether an edit of its configuration is heard of, its health check, its end, and whether
its state outlives it. Nothing of it is left but the layers that the engine keeps. BUILD is more options for the build,
as a registry, a proxy or a certificate may need them. It needs a wheel in `dist`; where there is no engine it says so,
and nothing is wrong.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
COMPOSE: Any = yaml.safe_load((ROOT / "packaging" / "compose.yaml").read_text())["services"]["toolgate"]
NAME = f"toolgate-check-{os.getpid()}"
MOST = 60.0  # seconds until the first call is answered
SOON = 10.0  # seconds in which a gateway has heard of an edit, on a busy machine
PATIENCE = 1200  # seconds for one step

CONFIG = """\
[[clients]]
id = "ann"
mcp_server_access = "all"

[mcpServers.notes]
command = "python"
args = ["-m", "toolgate.demo.notes"]

[mcpServers.clock]
command = "python"
args = ["-m", "toolgate.demo.clock"]
box = "strict"
"""

LATE = """
[mcpServers.late]
command = "python"
args = ["-m", "toolgate.demo.clock"]
"""

# In the container: what it says, and what it must say.
INSIDE = {
    "user": ("id -u; id -g", "65532\n65532"),
    "capabilities": ("grep CapBnd /proc/self/status | cut -f2", "0000000000000000"),
    "new privileges": ("grep NoNewPrivs /proc/self/status | cut -f2", "1"),
    "root is written": ("touch /x 2>/dev/null || echo no", "no"),
    "program is written": ("touch /opt/toolgate/x 2>/dev/null || echo no", "no"),
    "configuration is written": ("echo >> /etc/toolgate/toolgate.toml 2>/dev/null || echo no", "no"),
    "state is written": ("touch /var/lib/toolgate/x && rm /var/lib/toolgate/x && echo yes", "yes"),
    "/tmp is written": ("touch /tmp/x && rm /tmp/x && echo yes", "yes"),
}


def main() -> None:
    engine = next((each for each in ("docker", "podman") if _answers(each)), None)
    if not engine:
        print("not run: neither docker nor podman has an engine here that answers")
        return
    if not os.path.exists("/run/systemd/system"):
        os.environ["DISABLE_HC_SYSTEMD"] = "true"  # else Podman starts nothing that has a health check
    print(f"engine: {_asked(engine, '--version')}")
    with tempfile.TemporaryDirectory() as place:
        config = Path(place, "toolgate.toml")
        config.write_text(CONFIG)
        Path(place).chmod(0o755)  # its user is another
        try:
            wrong = [*_built(engine), *_ran(engine, config)]
        finally:
            for kind in ("rm", "volume rm", "rmi"):
                subprocess.run([engine, *kind.split(), "--force", NAME], capture_output=True, timeout=PATIENCE)
    if wrong:
        sys.exit(f"wrong: {', '.join(wrong)}")


def _answers(engine: str) -> bool:
    return bool(shutil.which(engine)) and not subprocess.run([engine, "info"], capture_output=True).returncode


def _built(engine: str) -> Iterator[str]:
    began = time.monotonic()
    form = ["--format", "docker"] if engine == "podman" else []  # its own form has no health check
    _asked(
        engine, "build", "-f", "packaging/Dockerfile", "-t", NAME, *form, *shlex.split(os.environ.get("BUILD", "")), "."
    )
    print(f"build: {time.monotonic() - began:.1f} s")
    found = json.loads(_asked(engine, "image", "inspect", NAME))[0]
    print(f"size: {found['Size'] / 1e6:.0f} MB")
    yield from _told("image's user", found["Config"]["User"], "65532:65532")


def _ran(engine: str, config: Path) -> Iterator[str]:
    limits = [f"--pids-limit={COMPOSE['pids_limit']}", f"--memory={COMPOSE['mem_limit']}", "--read-only", "--init"]
    rights = [f"--cap-drop={each}" for each in COMPOSE["cap_drop"]]
    rights += [f"--security-opt={each.removesuffix(':true')}" for each in COMPOSE["security_opt"]]
    places = [f"--tmpfs={each}" for each in COMPOSE["tmpfs"]]
    places += [f"--volume={_mounted(each, config)}" for each in COMPOSE["volumes"]]
    began = time.monotonic()
    port = "--publish=127.0.0.1::8765"
    _asked(engine, "run", "-d", "--name", NAME, *limits, *rights, *places, port, NAME)
    try:
        _waited(engine)
        key = _asked(engine, "exec", NAME, "toolgate", "keys", "create", "ann").split()[-1]
        url = _url(engine)
        yield from _told("call", _called(url, "notes__list_notes", key), "200")
        seconds = time.monotonic() - began
        print(f"first call answered after {seconds:.1f} s (limit: {MOST:g} s)")
        if seconds > MOST:
            yield "late"
        yield from _told("call of a server in a box", _called(url, "clock__now", key), "200")
        yield from _told("call without a key", _called(url, "notes__list_notes", ""), "401")
        for step, (command, wanted) in INSIDE.items():
            yield from _told(step, _asked(engine, "exec", NAME, "sh", "-c", command), wanted)
        _edited(config)
        yield from _told("call of a server that an edit has brought", _called_soon(url, "late__now", key), "200")
        yield from _told("health", _health(engine), "healthy")
        began = time.monotonic()
        _asked(engine, "stop", "-t", COMPOSE["stop_grace_period"].removesuffix("s"), NAME)
        print(f"stop: {time.monotonic() - began:.1f} s")
        yield from _told("its status", _asked(engine, "inspect", "--format", "{{.State.ExitCode}}", NAME), "0")
        _asked(engine, "start", NAME)
        _waited(engine)
        yield from _told("call with the same key", _called(_url(engine), "notes__list_notes", key), "200")
    except Exception:
        print(subprocess.run([engine, "logs", NAME], capture_output=True, text=True).stderr)
        raise


def _mounted(volume: str, config: Path) -> str:
    """A volume of the compose file, with what is ours in place of what stands beside that file."""
    source, _, rest = volume.partition(":")
    return f"{config.parent if source.startswith('.') else NAME}:{rest}"


def _edited(config: Path) -> None:
    """As most editors save: another file takes its name."""
    fresh = config.with_suffix(".new")
    fresh.write_text(CONFIG + LATE)
    fresh.rename(config)


def _told(step: str, found: str, wanted: str) -> Iterator[str]:
    is_wrong = found != wanted
    print(f"{step}: {' '.join(found.split())}{f'  <- wrong, not {wanted!r}' if is_wrong else ''}")
    if is_wrong:
        yield step


def _waited(engine: str) -> None:
    """Until it answers the command by which its health is checked."""
    end = time.monotonic() + MOST
    while subprocess.run([engine, "exec", NAME, "toolgate", "status"], capture_output=True).returncode:
        if time.monotonic() > end:
            raise TimeoutError(f"no gateway answered within {MOST:g} s")
        time.sleep(0.2)


def _health(engine: str) -> str:
    if engine == "podman":  # without systemd nothing of it looks from time to time
        done = subprocess.run([engine, "healthcheck", "run", NAME], capture_output=True, text=True)
        return "healthy" if not done.returncode else done.stdout + done.stderr
    found = ""
    for _ in range(60):
        found = _asked(engine, "inspect", "--format", "{{.State.Health.Status}}", NAME)
        if found != "starting":
            break
        time.sleep(1)
    return found


def _url(engine: str) -> str:
    port = _asked(engine, "port", NAME, "8765/tcp").splitlines()[0].rpartition(":")[2]
    return f"http://127.0.0.1:{port}/mcp"


def _called_soon(url: str, tool: str, key: str) -> str:
    """What a call says once the gateway has heard of an edit, which may take it a second."""
    end = time.monotonic() + SOON
    while (said := _called(url, tool, key)) != "200" and time.monotonic() < end:
        time.sleep(0.1)
    return said


def _called(url: str, tool: str, key: str) -> str:
    """The status of the answer, or what the tool says is wrong."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        **({"Authorization": f"Bearer {key}"} if key else {}),
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=MOST) as answer:
            said = answer.read().decode()
            return str(answer.status) if '"content"' in said and '"isError":true' not in said else said
    except urllib.error.HTTPError as error:
        return str(error.code)


def _asked(engine: str, *arguments: str) -> str:
    command = [engine, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:])
    return done.stdout.strip()


if __name__ == "__main__":
    main()
