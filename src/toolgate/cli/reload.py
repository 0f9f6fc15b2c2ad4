"""`toolgate reload`: the gateway that runs reads its configuration again, and says what is wrong with it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing
from toolgate.config import Config

app = typer.Typer(add_completion=False)


class _Refused(msgspec.Struct):
    """`unconfirmed`: what the edit takes away."""

    unconfirmed: tuple[str, ...] = ()


@app.command(
    help="Make the running gateway reload its configuration. Exits with 1 if it is invalid. Asks first if the edit "
    "would open the gateway or end the audit, or if the file looks cut off."
)
def reload(
    config: common.ConfigPath = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    common.run(_reload(common.load_config(config), yes))


async def _reload(config: Config, is_agreed: bool) -> None:
    async with gateways.reached(config) as gateway:
        status, said = await gateway.ask("POST", "/reload")
        losses = msgspec.json.decode(said, type=_Refused).unconfirmed if status == 409 else ()
        if losses:
            for each in losses:
                typer.echo(f"This edit takes a guard away: {visible(each)}", err=True)
            if not is_agreed:
                typer.confirm("Serve it?", abort=True, err=True)
            status, said = await gateway.ask("POST", "/reload", {"confirmed": losses})
        if status >= 400:
            printing.fail(gateways.explained(said))
        served = msgspec.json.decode(said)
    typer.echo(f"servers: {', '.join(map(visible, served['servers'])) or 'none'}")
