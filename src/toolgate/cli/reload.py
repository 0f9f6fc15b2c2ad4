"""`toolgate reload`: the gateway that runs reads its configuration again, and says what is wrong with it."""

from __future__ import annotations

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways
from toolgate.config import Config

app = typer.Typer(add_completion=False)


@app.command(help="Make the running gateway reload its configuration. Exits with 1 if it is invalid.")
def reload(config: common.ConfigPath = None) -> None:
    common.run(_reload(common.load_config(config)))


async def _reload(config: Config) -> None:
    async with gateways.reached(config) as gateway:
        served = await gateways.value(gateway, "POST", "/reload")
    typer.echo(f"servers: {', '.join(map(visible, served['servers'])) or 'none'}")
