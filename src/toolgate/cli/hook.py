"""`toolgate hook`, for its help: `toolgate.__main__` runs `frontends.hook` without the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.frontends.hook import PATIENCE, main

app = typer.Typer(add_completion=False)

HELP = """Read the payload of a coding agent's hook from standard input, and pass it to a gateway.

The agent's program runs this; `toolgate hooks install` sets it up. It always exits with 0."""


@app.command(help=HELP)
def hook(
    program: Annotated[str, typer.Argument(help="Which program it is: claude, codex, gemini, or another.")],
    state: Annotated[str, typer.Option(metavar="FOLDER", help="The gateway's state folder, if it sets `state`.")] = "",
    wait: Annotated[
        float, typer.Option(min=0, max=10, help="How many seconds to wait for a gateway to answer.")
    ] = PATIENCE,
) -> None:
    main([program, *(["--state", state] if state else []), "--wait", str(wait)])
