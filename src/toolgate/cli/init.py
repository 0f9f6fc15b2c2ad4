"""`toolgate init`: the servers of all agent programs of this machine in one configuration, the user's own.

The rules this file keeps: the programs' files are only read; nothing is started and nothing written before the user has
seen what it is and agreed; files of the folder that this is run in may be anybody's, and are only named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from toolgate import config as configs
from toolgate.catalog.poisoning import visible
from toolgate.cli import agents, common, gateways, importing, measuring, own_file, printing
from toolgate.cli.measuring import Lists, Size
from toolgate.config import Config, ConfigError
from toolgate.config.variables import variable_of_secret
from toolgate.state import merging, own_config
from toolgate.state.merging import Merged, Source
from toolgate.state.own_config import OwnConfig

app = typer.Typer(add_completion=False)

HELP = """Find the agent programs of this machine, and merge their servers into your own configuration.

Shows what would be added and how many tokens the lists of tools take, and asks before it starts or writes anything. The
programs' files are not changed: `toolgate install` puts the gateway into them."""


@app.command(help=HELP)
def init(
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="PROGRAM", help="Only this program; may be repeated. Default: all that are found."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Start the servers once, to count their tools.")
    ] = True,
    keep_secrets: Annotated[bool, typer.Option("--keep-secrets", help="Leave secrets in the configuration.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last init.")] = False,
    config: common.ConfigPath = None,
) -> None:
    if undo:
        printing.say("\n".join(own_config.undo("init")))
        return
    own = own_file.opened(config, is_users=True)
    sources = [importing.of_agent(each) for each in source] if source else list(_found())
    for each in sources:
        printing.say(
            visible(f"{agents.AGENTS[each.label].title}: {each.path}: {', '.join(each.servers) or 'no servers'}")
        )
    for path in _of_projects():
        printing.say(f"not used, since it may be from anyone: {path}; to use it: toolgate import {path}")
    merged = merging.merge(own, sources, keeps_secrets=keep_secrets)
    for line in merging.shown(own, merged):
        printing.say(visible(line))
    if not merged.servers and not own.servers:
        printing.say("No servers were found. Add one: toolgate add time -- uvx mcp-server-time")
        return
    text = own_config.edited(own, merged.servers)
    _agree(yes, f"Start these servers once, to count their tools? ({len(merged.servers) + len(own.servers)})", start)
    if start:
        _measure(own, text, merged, sources)
    if merged.servers:
        _agree(yes, f"Write {own.path}?")
        own_config.written(own, text, "init", tuple(merged.servers), merged.secrets)
        printing.say(f"Wrote {own.path}. Undo: toolgate init --undo")
    here = [name for name, _ in agents.here(os.environ)]
    printing.say(f"Next: toolgate install {' '.join(here) or 'PROGRAM'} --replace")


def _found() -> Iterator[Source]:
    """Of each program that has a file here. One that cannot be read is said, and does not keep the others."""
    for name, agent in agents.AGENTS.items():
        path = agent.file(os.environ)
        if not path.is_file():
            continue
        try:
            yield Source(str(path), name, own_file.read_foreign(path, agent.dialect), is_users=True)
        except ConfigError as error:
            printing.say(visible(f"{agent.title} was left out: {error}"), err=True)


def _of_projects() -> list[str]:
    known = dict.fromkeys(agent.project for agent in agents.AGENTS.values() if agent.project)
    home = agents.home(os.environ)
    return [path for path in known if Path(path).is_file() and Path.cwd() != home]


def _agree(is_agreed: bool, question: str, is_asked: bool = True) -> None:
    if is_agreed or not is_asked:
        return
    if not printing.can_ask():
        printing.fail("Nothing was written: there is nobody to ask. Give --yes to agree", 2)
    typer.confirm(question, abort=True, err=True)


# Tokens.


def _measure(own: OwnConfig, text: str, merged: Merged, sources: Sequence[Source]) -> None:
    environ = {**os.environ, **{variable_of_secret(name): value for name, value in merged.secrets.items()}}
    try:
        format = own.format
        config = configs.read(text, file=str(own.path), environ=environ, format=format, dialect=own.dialect.name)
    except ConfigError as error:
        printing.fail(str(error), 2)
    lists, meta = common.run(_listed(config))
    for name, why in lists.faults.items():
        printing.say(visible(f"{name} could not be listed: {why}"))
    for line in _table(lists, meta, merged, sources):
        printing.say(visible(line))


async def _listed(config: Config) -> tuple[Lists, Size]:
    async with gateways.opened(config) as app:
        gateway = gateways.Own(app)
        return await measuring.servers(gateway, anew=True), await measuring.surface(gateway, "meta")


def _table(lists: Lists, meta: Size, merged: Merged, sources: Sequence[Source]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for source in sources:
        own = sum((lists.servers.get(name, Size()) for name in merged.called.get(source.label, ())), Size())
        if own.tools:
            rows.append((f"{agents.AGENTS[source.label].title} loads now", *_counted(own)))
    whole = sum(lists.servers.values(), Size())
    rows.append(("through toolgate, each program", *_counted(whole)))
    rows.append(("  with --surface meta", *_counted(meta), _less(whole, meta)))
    width = max(map(len, rows))
    yield "Lists of tools, in estimated tokens of a model:"
    yield from (f"  {line}" for line in printing.aligned(tuple(row + ("",) * (width - len(row)) for row in rows)))


def _counted(size: Size) -> tuple[str, str]:
    return f"{size.tools} tools", f"{size.tokens:,} tokens"


def _less(whole: Size, now: Size) -> str:
    return f"{100 - round(100 * now.tokens / whole.tokens)} % less" if whole.tokens > now.tokens else ""
