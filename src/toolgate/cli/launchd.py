"""`toolgate launchd`: an agent of macOS that serves a configuration."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

import typer

from toolgate.cli import common, printing, systemd
from toolgate.config import Config

app = typer.Typer(add_completion=False)

LABEL = "toolgate"

HELP = """Print a property list for launchd (macOS) that runs `toolgate serve`.

Save it as ~/Library/LaunchAgents/toolgate.plist, then run
launchctl bootstrap gui/$UID ~/Library/LaunchAgents/toolgate.plist"""


@app.command(help=HELP)
def launchd(config: common.ConfigPath = None) -> None:
    loaded = common.load_config(config)
    if not loaded.source:
        printing.fail("No configuration found: give --config", 2)
    typer.echo(agent(loaded, common.own_command(), common.naming(loaded, config)).decode(), nl=False)


def agent(config: Config, command: tuple[str, ...], naming: tuple[str, str]) -> bytes:
    """The property list. `naming` is how it names the file."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": [*command, "serve", *map(systemd.plain, naming)],
            "EnvironmentVariables": {"PATH": os.environ.get("PATH", os.defpath)},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Interactive",  # people wait for each call; all others, and their servers, are throttled
            "ExitTimeOut": round(config.drain) + systemd.LAST,
            "SoftResourceLimits": {"NumberOfFiles": 65536},
            "Umask": 0o077,
            "StandardErrorPath": str(Path.home() / "Library" / "Logs" / "toolgate.log"),
        },
        sort_keys=False,
    )
