"""`toolgate trust`: the user looks at a configuration file that lies in a folder, and trusts it as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from toolgate import config as configs
from toolgate.cli import printing, trusting
from toolgate.config import ConfigError
from toolgate.config import trust as trusted

app = typer.Typer(add_completion=False)

HELP = """Show what a configuration file would run, read and contact, then trust its current content.

A file that toolgate finds in the current folder is used only after it is trusted, and after each change only when it is
trusted again. Files given by --config or TOOLGATE_CONFIG, and files in your configuration folder, need no trust.
"""


@app.command(help=HELP)
def trust(
    path: Annotated[str | None, typer.Argument(help="The file. Default: the one found in this folder.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show the file and do not ask.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Stop trusting the file.")] = False,
) -> None:
    found = configs.find(path, Path.cwd(), {} if path else os.environ)
    if not found:
        printing.fail("No configuration found here or in the user's folder: give a file.", 2)
    try:
        if forget:
            was_there = trusted.forget(found, os.environ)
            typer.echo(f"{found} {'is no longer trusted' if was_there else 'was not trusted'}", err=True)
        else:
            trusting.ask(found, yes)
            typer.echo(f"{found} is now trusted", err=True)
    except ConfigError as error:
        printing.fail(f"Not trusted, because it is invalid: {error}")
    except OSError as error:
        printing.fail(f"{trusted.place(os.environ)} cannot be written ({error.strerror or 'unknown'})")
