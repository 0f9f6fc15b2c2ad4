"""`toolgate remove`: a server taken out of the user's configuration file."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, own_file, printing
from toolgate.state import own_config

app = typer.Typer(add_completion=False)


@app.command(help="Remove a server from your configuration file; all else in it stays. Its secrets stay as well.")
def remove(
    name: Annotated[str, typer.Argument(help="The name of the server.")],
    config: common.ConfigPath = None,
) -> None:
    own = own_file.opened(config)
    if not own.servers:
        printing.fail(f"{own.path} has no servers")
    found = common.find_server(own.config, name).name
    own_config.written(own, own_config.edited(own, {}, [found]), "remove", (found,))
    printing.say(f"- {visible(found)}, from {own.path}")
