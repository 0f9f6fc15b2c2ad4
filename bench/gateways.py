"""What gateways and proxies there are to measure: by which package name each comes, and how it is started.

Whoever knows better settings of one changes them here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import ROOT, TOOLGATE
from paired import KEY, POLICIES

CACHE = ROOT / ".bench"
ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}

FASTMCP = """
import asyncio, json, sys
from fastmcp import Client
from fastmcp.server import create_proxy
async def main():
    async with Client(json.loads(sys.argv[1])) as connected:  # one session for all, the fastest way that it offers
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
    servers: int = 1  # so many entries, all of the same upstream

    def named(self, first: str) -> list[str]:
        """What the servers are called: the first alone is called."""
        return [first, *(f"{first}-{at}" for at in range(1, self.servers))]


class Running(NamedTuple):
    """How to start a peer, and where it listens then."""

    command: Sequence[str | Path]
    path: str = "/mcp"
    tool: str = "echo"
    key: str = ""
    reload: Callable[[subprocess.Popen[Any]], None] | None = None  # gives it another configuration while it runs


class Peer(NamedTuple):
    name: str
    behind: str  # how it reaches its server: HTTP or stdio
    eras: tuple[str, ...]  # of client and server alike
    needs: str  # the program, under .bench or where an option says
    start: Callable[[Path, Place, str], Running]
    comes_by: str = ""
    joins_lists: bool = False  # of many servers, in one list
    starts_slowly: bool = False  # for half a minute and more
    no_sessions: str = ""  # why it is not asked to keep thousands of sessions


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
        + f"events {{ worker_connections 40000; }} http {{ access_log off; {temporary} keepalive_requests 100000000;"
        f"upstream to {{ server {to}; keepalive 256; keepalive_requests 100000000; }}"
        f"server {{ listen 127.0.0.1:{place.port}; location / {{ proxy_pass http://to; proxy_http_version 1.1;"
        'proxy_set_header Connection ""; proxy_set_header Host $host:$server_port; client_max_body_size 64m; } } }'
    )
    command = [program, "-p", str(place.folder), "-c", str(file)]
    return Running(command, reload=hang_up)


def hang_up(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGHUP)


def toolgate(full: bool, stdio: bool, workers: int = 1) -> Callable[[Path, Place, str], Running]:
    def start(_: Path, place: Place, era: str) -> Running:
        server = {"command": place.stdio[0], "args": place.stdio[1:]} if stdio else {"url": place.urls[era]}
        servers = dict.fromkeys(place.named(era), server)
        file = place.folder / "servers.json"
        changed = False

        def write(_: object = None) -> None:
            """Each time another one: a server more, or one less."""
            nonlocal changed
            changed = not changed
            all_of_them = {**servers, **({} if changed else {"beside": {"url": place.urls["modern"]}})}
            more: dict[str, Any] = {"sessions": {"max": 20_000}, **(POLICIES if full else {})}
            fresh = file.with_suffix(".new")
            fresh.touch(0o600)
            fresh.write_text(json.dumps({"mcpServers": all_of_them, **more}))
            fresh.replace(file)

        write()
        command = [*TOOLGATE, "serve", "--config", str(file), "--port", str(place.port)]
        command += ["--workers", str(workers)] if workers > 1 else []
        return Running(command, tool=f"{era}__echo", key=KEY if full else "", reload=write)

    return start


def fastmcp(program: Path, place: Place, era: str) -> Running:
    url = place.urls[era]
    servers = {"mcpServers": {name: {"url": url} for name in place.named("bench")}}
    return Running([program, "-c", FASTMCP, json.dumps(servers if place.servers > 1 else url), str(place.port)])


def mcp_proxy(program: Path, place: Place, _: str) -> Running:
    return Running([program, "--port", str(place.port), "--log-level", "ERROR", "--", *place.stdio])


def supergateway(program: Path, place: Place, _: str) -> Running:
    command = ["node", program, "--stdio", " ".join(place.stdio), "--outputTransport", "streamableHttp", "--stateful"]
    return Running([*command, "--port", str(place.port), "--logLevel", "none"])


def litellm(program: Path, place: Place, era: str) -> Running:
    file = place.folder / "litellm.json"  # JSON is YAML
    server = {"url": place.urls[era], "transport": "http", "allow_all_keys": True}
    servers = {name.replace("-", "_"): server for name in place.named("bench")}
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
    targets = [{"name": name, "mcp": {"host": place.urls[era]}} for name in place.named("bench")]
    backend = {"mcp": {"targets": targets}}
    listener = {"routes": [{"backends": [backend]}]}
    file.write_text(json.dumps({"binds": [{"port": place.port, "listeners": [listener]}]}))
    return Running([program, "-f", file])


BOTH, LEGACY = ("legacy", "modern"), ("legacy",)
NONE = "it keeps none in this form"
A_PROCESS_EACH = "it starts a process for each"
PEERS = (
    Peer("nginx, reverse proxy", "HTTP", BOTH, "nginx/usr/sbin/nginx", nginx, "Debian: nginx"),
    Peer("toolgate, open", "HTTP", BOTH, "", toolgate(full=False, stdio=False), joins_lists=True),
    Peer("toolgate, full policy", "HTTP", BOTH, "", toolgate(full=True, stdio=False)),
    Peer("toolgate, open, 2 workers", "HTTP", ("modern",), "", toolgate(full=False, stdio=False, workers=2)),
    Peer("toolgate, full policy, 2 workers", "HTTP", ("modern",), "", toolgate(full=True, stdio=False, workers=2)),
    Peer("toolgate, open", "stdio", LEGACY, "", toolgate(full=False, stdio=True)),
    Peer("toolgate, full policy", "stdio", LEGACY, "", toolgate(full=True, stdio=True)),
    Peer("FastMCP, tuned", "HTTP", LEGACY, "fastmcp/bin/python", fastmcp, "PyPI: fastmcp uvloop httptools",
         joins_lists=True, no_sessions=NONE),
    Peer("mcp-proxy (Python)", "stdio", LEGACY, "mcp-proxy/bin/mcp-proxy", mcp_proxy, "PyPI: mcp-proxy mcp<2"),
    Peer("supergateway", "stdio", LEGACY, "supergateway/node_modules/supergateway/dist/index.js", supergateway,
         "npm: supergateway", no_sessions=A_PROCESS_EACH),
    Peer("LiteLLM", "HTTP", LEGACY, "litellm/bin/litellm", litellm, "PyPI: litellm[proxy]", joins_lists=True,
         starts_slowly=True, no_sessions=NONE),
    Peer("mcp-proxy (Go)", "HTTP", LEGACY, "go/mcp-proxy", go_proxy(stdio=False),
         "Go: github.com/TBXark/mcp-proxy@latest"),
    Peer("mcp-proxy (Go)", "stdio", LEGACY, "go/mcp-proxy", go_proxy(stdio=True)),
    Peer("agentgateway", "HTTP", BOTH, "agentgateway", agentgateway, joins_lists=True),
)  # fmt: skip


SAMPLER = "py-spy/bin/py-spy"


def install() -> None:
    """Each peer that has a package name, and the sampler, into a folder of its own; a failure is kept beside it and
    said again later."""
    CACHE.mkdir(exist_ok=True)
    wanted = [(peer.name, peer.needs, peer.comes_by) for peer in PEERS if peer.comes_by]
    for name, needs, comes_by in [*wanted, ("sampler", SAMPLER, "PyPI: py-spy")]:
        if (CACHE / needs).exists():
            continue
        source, _, names = comes_by.partition(": ")
        folder = CACHE / needs.partition("/")[0]
        folder.mkdir(exist_ok=True)
        print(f"{name}: {source} {names}", flush=True)
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
