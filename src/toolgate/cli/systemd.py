"""`toolgate systemd`: a unit that serves a configuration, with as few rights as servers can do with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated

import typer

from toolgate.cli import common, printing
from toolgate.config import Config, state_folder
from toolgate.state import audit

app = typer.Typer(add_completion=False)

PATIENCE = 30  # seconds until a gateway that says nothing is taken for dead
LAST = 20  # seconds beside `drain` for servers to stop
STATE = "/var/lib/toolgate"
SERVICE = {"HOME": STATE, "XDG_STATE_HOME": os.path.dirname(STATE)}  # the environment of the service

HELP = """Print a systemd unit that runs `toolgate serve`.

The unit is for the system and a user of its own, without access to homes, devices or the rest of the system. With
--user it is for your own service manager, as you."""

# Node, Deno and others make code at run time, and servers ask for sockets of all usual kinds: so there is no
# MemoryDenyWriteExecute=. The calls after @system-service are those of toolgate's own boxes.
_CALLS = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp
SystemCallErrorNumber=EPERM"""

# No ProtectProc=: it would hide the processes of commands, which cannot be looked at by others of their user, from the
# gateway, so that it would take who asks over its socket for a server in a box.
_SYSTEM = """\
CapabilityBoundingSet=
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RemoveIPC=yes
RestrictNamespaces=yes"""


@app.command(help=HELP)
def systemd(
    config: common.ConfigPath = None,
    user: Annotated[bool, typer.Option("--user", help="A unit for `systemctl --user`.")] = False,
    run_as: Annotated[str, typer.Option(help="The user that the service runs as; not with --user.")] = "toolgate",
) -> None:
    loaded = common.load_config(config)
    if not loaded.source:
        printing.fail("No configuration found: give --config", 2)
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", run_as):
        printing.fail(f"{run_as} is not a name of a user", 2)
    option, source = naming = common.naming(loaded, config)
    if option != "--config" and not user:
        printing.fail(f"{run_as} has trusted no file: name the one that it may use, with --config {source}", 2)
    typer.echo("\n".join(lines(loaded, common.own_command(), "" if user else run_as, naming)))


def lines(config: Config, command: tuple[str, ...], run_as: str, naming: tuple[str, str]) -> Iterator[str]:
    """Of the unit. `run_as` is empty in one for the user's own service manager; `naming` is how it names the file."""
    if run_as:
        yield "# Save as /etc/systemd/system/toolgate.service; then, once:"
        yield f"#   useradd --system --home-dir {STATE} --shell /usr/sbin/nologin {run_as}"
        yield "#   systemctl daemon-reload && systemctl enable --now toolgate"
    else:
        yield "# Save as ~/.config/systemd/user/toolgate.service; then, once:"
        yield "#   systemctl --user daemon-reload && systemctl --user enable --now toolgate"
    yield "[Unit]"
    yield "Description=toolgate, a gateway for MCP servers"
    if run_as:
        yield "Wants=network-online.target"
        yield "After=network-online.target"
    yield "\n[Service]"
    yield "Type=notify"
    yield "NotifyAccess=main"
    words = (*command, "serve", *naming)
    yield f"ExecStart={' '.join(quoted(word).replace('$', '$$') for word in words)}"
    yield "ExecReload=/bin/kill -HUP $MAINPID"
    yield "Restart=on-failure"
    yield "RestartSec=2"
    yield f"WatchdogSec={PATIENCE}"
    yield "TimeoutStartSec=60"
    yield f"TimeoutStopSec={round(config.drain) + LAST}"
    yield "KillMode=mixed"
    yield "LimitNOFILE=65536"
    yield "UMask=0077"
    yield from _of_the_system(config, command, run_as) if run_as else [_path()]
    yield "\n# What it may do, and all servers that it starts"
    yield _CALLS
    if run_as:
        yield _SYSTEM
    yield "\n[Install]"
    yield f"WantedBy={'multi-user' if run_as else 'default'}.target"


def _of_the_system(config: Config, command: tuple[str, ...], run_as: str) -> Iterator[str]:
    """Who it is, and which folders it has."""
    yield f"User={run_as}"
    yield from (f"Environment={name}={value}" for name, value in SERVICE.items())
    yield f"StateDirectory={os.path.basename(STATE)}"
    yield "StateDirectoryMode=0700"
    kept = {state_folder(config, SERVICE), audit.place(config, SERVICE).parent}
    elsewhere = sorted(str(folder) for folder in kept if not folder.is_relative_to(STATE))
    if elsewhere:
        yield f"ReadWritePaths={' '.join(map(quoted, elsewhere))}"
    read = (os.path.abspath(config.source), *command[:1])
    is_in_a_home = any(path.startswith(("/home/", "/root/", "/run/user/")) for path in read)
    yield f"ProtectHome={'read-only' if is_in_a_home else 'yes'}"


def _path() -> str:
    """Where the user's own service finds what servers are started with, such as `npx`."""
    return f"Environment={quoted('PATH=' + os.environ.get('PATH', os.defpath))}"


def quoted(word: str) -> str:
    """A word of a list in a unit."""
    word = plain(word)
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return word if re.fullmatch(r"[\w/.:=@%+,-]+", word) else f'"{word}"'


def plain(path: str) -> str:
    """What stands in a unit, where a line of it would be a line of the unit. Ends the command where there are any."""
    if any(ord(each) < 0x20 or each == "\x7f" for each in path):
        printing.fail(f"a unit cannot name {path!r}, which has a line break or another control character", 2)
    return path
