"""`toolgate servers`: add servers to the gateway that runs, and remove those that were added."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing
from toolgate.config import Config
from toolgate.core import jsonrpc, names

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Add and remove servers while the gateway runs.")

Name = Annotated[str, typer.Argument(help="The name of the server.")]
Table = Annotated[
    str, typer.Argument(metavar="JSON", help='Its configuration, such as {"command": "uvx", "args": ["mcp-server-x"]}')
]


@app.command(help="Add a server. It is stored in the state folder; the configuration file is not changed.")
def add(name: Name, table: Table, config: common.ConfigPath = None) -> None:
    try:
        keys = msgspec.json.decode(table, type=dict[str, Any])
    except jsonrpc.UNREADABLE as error:
        printing.fail(f"The keys of the server must be a JSON object: {error}", 2)
    common.run(_ask(common.load_config(config), "POST", "/servers", {**keys, "name": name}, f"added {visible(name)}"))


@app.command(help="Remove a server that was added at run time.")
def remove(name: Name, config: common.ConfigPath = None) -> None:
    path = f"/servers/{names.slug(name)}"
    common.run(_ask(common.load_config(config), "DELETE", path, None, f"removed {visible(name)}"))


async def _ask(config: Config, method: str, path: str, body: Any, done: str) -> None:
    async with gateways.reached(config) as gateway:
        await gateways.value(gateway, method, path, body)
    typer.echo(done)
