"""`toolgate import`: the servers of other programs' files, merged into the user's own configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import agents, common, own_file, printing
from toolgate.config import ConfigError, dialects
from toolgate.state import merging, own_config
from toolgate.state.merging import Source

app = typer.Typer(add_completion=False)

HELP = """Copy the servers of other programs' files into your configuration.

Nothing is started here; a gateway that runs has the servers at once. Values that look like secrets go into the file of
secrets, and a reference takes their place.
Several files are merged; a server that your configuration has already is left as it is.

You are asked before a file gives a server one of your secrets or variables, unless it is the file of one of your
programs. Where nobody can be asked, such a server is left out, and the command ends with 1."""


@app.command(help=HELP)
def import_(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILES...]", help="Files of other programs.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="PROGRAM", help=f"The user's file of {', '.join(agents.AGENTS)}; repeatable."),
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="Only this server; may be repeated.")] = None,
    dialect: Annotated[str, typer.Option(help="Read the files as this dialect instead of detecting it.")] = "",
    keep_secrets: Annotated[bool, typer.Option("--keep-secrets", help="Leave secrets in the configuration.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Give servers what the files name, and do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be added, and write nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last import.")] = False,
    config: common.ConfigPath = None,
) -> None:
    if undo:
        printing.say("\n".join(own_config.undo("import")))
        return
    found = [*(_of_file(Path(each), dialect) for each in files or ()), *(of_agent(each) for each in source or ())]
    if not found:
        printing.fail(f"Give files, or --from with one of {', '.join(agents.AGENTS)}", 2)
    own = own_file.opened(config)
    merged = merging.merge(own, found, only=server or (), keeps_secrets=keep_secrets)
    for line in merging.shown(own, merged):
        printing.say(visible(line))
    if dry_run:
        return
    refused = [] if yes else [name for name, given in merged.gives.items() if not _agrees(given)]
    before, merged = merged, merged.without(refused)
    for line in merged.notes[len(before.notes) :]:
        printing.say(visible(line))
    if merged.servers:
        text = own_config.edited(own, merged.servers)
        own_config.written(own, text, "import", tuple(merged.servers), merged.secrets)
        printing.say(f"Wrote {own.path}")
    if refused and not printing.can_ask():
        printing.fail("Some servers were left out, since there was nobody to ask: --yes agrees to what is shown above")


def _agrees(given: str) -> bool:
    return printing.can_ask() and typer.confirm(visible(f"Give {given}?"), err=True)


def _of_file(path: Path, dialect: str = "") -> Source:
    known = sorted({each.name for each in dialects.DIALECTS})
    if dialect and dialect not in known:
        printing.fail(f"unknown dialect {dialect}. Available: {', '.join(known)}", 2)
    own = {agent.file(os.environ).resolve() for agent in agents.AGENTS.values()}
    return read(path, path.stem.strip(".") or "imported", dialect, is_users=path.resolve() in own)


def of_agent(name: str) -> Source:
    agent = agents.AGENTS.get(name)
    if not agent:
        printing.fail(f"unknown program {name}. Available: {', '.join(agents.AGENTS)}", 2)
    path = agent.file(os.environ)
    if not path.is_file():
        printing.fail(f"{agent.title} has no file {path}")
    return read(path, name, agent.dialect, is_users=True)


def read(path: Path, label: str, dialect: str, is_users: bool) -> Source:
    """Its servers with variables as references; or the end of the command with what is wrong."""
    try:
        config = own_file.read_foreign(path, dialect)
    except ConfigError as error:
        printing.fail(str(error))
    return Source(str(path), label, config, is_users)
