"""`toolgate open`: a link that opens the operator's pages of the running gateway once."""

from __future__ import annotations

import typer

from toolgate.cli import common, gateways
from toolgate.config import Config

app = typer.Typer(add_completion=False)


@app.command(
    help="Print a link that opens the pages of the running gateway, in a browser on this machine. It works once, for "
    "five minutes, and lets its user do all that the operator may."
)
def open(config: common.ConfigPath = None) -> None:
    common.run(_open(common.load_config(config)))


async def _open(config: Config) -> None:
    async with gateways.reached(config) as gateway:
        made = await gateways.value(gateway, "POST", "/links")
    typer.echo(made["url"])
