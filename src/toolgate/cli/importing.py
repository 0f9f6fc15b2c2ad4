"""`toolgate import`: the servers of other programs' files, merged into the user's own configuration.

The rules this file keeps: nothing is started, no variable is put in; what would be run is shown as it is written; what
looks like a secret goes into the file of secrets and is never printed; a server that is there already stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import agents, common, own_config, printing, trusting
from toolgate.cli.own_config import OwnConfig
from toolgate.config import Config, ConfigError, dialects
from toolgate.config.secret_references import Extraction
from toolgate.core.names import slug

app = typer.Typer(add_completion=False)

MOST = 1000  # servers in all

HELP = """Copy the servers of other programs' files into your configuration.

Nothing is started. Values that look like secrets go into the file of secrets, and a reference takes their place.
Several files are merged; a server that your configuration has already is left as it is."""


class Source(msgspec.Struct, frozen=True):
    """One file, and what it says; `label` tells its servers apart from others of the same name."""

    path: Path
    label: str
    config: Config

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        return own_config.tables(self.config)


class Merged(msgspec.Struct, frozen=True):
    """What is to be added: native tables by name, with the secrets that they name; and what is said of it. `called` are
    the names of each source's servers, those that were there already too, by its label."""

    servers: dict[str, dict[str, Any]]
    secrets: Mapping[str, str]
    origins: Mapping[str, str]  # name → the file that it comes from
    notes: tuple[str, ...]
    called: Mapping[str, list[str]]


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be added, and write nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last import.")] = False,
    config: common.ConfigPath = None,
) -> None:
    if undo:
        own_config.undo("import")
        return
    found = [*(_of_file(Path(each), dialect) for each in files or ()), *(of_agent(each) for each in source or ())]
    if not found:
        printing.fail(f"Give files, or --from with one of {', '.join(agents.AGENTS)}", 2)
    own = own_config.opened(config)
    merged = merge(own, found, only=server or (), keeps_secrets=keep_secrets)
    for line in shown(own, merged):
        printing.say(visible(line))
    if merged.servers and not dry_run:
        text = own_config.edited(own, merged.servers)
        own_config.written(own, text, "import", tuple(merged.servers), merged.secrets)
        printing.say(f"Wrote {own.path}")


def _of_file(path: Path, dialect: str = "") -> Source:
    known = sorted({each.name for each in dialects.DIALECTS})
    if dialect and dialect not in known:
        printing.fail(f"unknown dialect {dialect}. Available: {', '.join(known)}", 2)
    return read(path, path.stem.strip(".") or "imported", dialect)


def of_agent(name: str) -> Source:
    agent = agents.AGENTS.get(name)
    if not agent:
        printing.fail(f"unknown program {name}. Available: {', '.join(agents.AGENTS)}", 2)
    path = agent.file(os.environ)
    if not path.is_file():
        printing.fail(f"{agent.title} has no file {path}")
    return read(path, name, agent.dialect)


def read(path: Path, label: str, dialect: str = "") -> Source:
    """Its servers with variables as references; or the end of the command with what is wrong."""
    try:
        config = own_config.read_foreign(path, dialect)
    except ConfigError as error:
        printing.fail(str(error))
    return Source(path, label, config)


def merge(own: OwnConfig, sources: Sequence[Source], only: Sequence[str] = (), keeps_secrets: bool = False) -> Merged:
    """What is not there yet. Of two that have one name and differ, the later one gets its program's name as well."""
    merging = _Merging(own, keeps_secrets)
    for source in sources:
        merging.add(source, only)
    missing = set(only) - {name for source in sources for name in source.servers}
    if missing:
        printing.fail(f"No such server: {', '.join(sorted(missing))}")
    if len(merging.servers) > MOST:
        printing.fail(f"These are {len(merging.servers)} servers, and no more than {MOST} can be imported at once")
    return merging.merged()


class _Merging:
    """What is to be added so far."""

    def __init__(self, own: OwnConfig, keeps_secrets: bool) -> None:
        self._known, self._secrets = own.servers, own_config.known_secrets(own)
        self._keeps_secrets = keeps_secrets
        self._extraction = Extraction(self._secrets)
        self.servers: dict[str, dict[str, Any]] = {}
        self._origins: dict[str, str] = {}
        self._called: dict[str, list[str]] = {}
        self._notes: list[str] = []

    def add(self, source: Source, only: Sequence[str]) -> None:
        self._notes += [f"{source.path}: {warning}" for warning in source.config.warnings]
        broken = {server.name: server.problem for server in source.config.servers if server.problem}
        for name, table in source.servers.items():
            if name in broken:
                self._notes.append(f"{name} of {source.path} was left out: {broken[name]}")
            elif not only or name in only:
                called = self._add(name, table, source)
                self._called.setdefault(source.label, []).append(called)

    def _add(self, name: str, table: dict[str, Any], source: Source) -> str:
        """The name that it has here."""
        fresh = table if self._keeps_secrets else self._extraction.of(name, table)
        there = {**self._known, **self.servers}
        if same := next((each for each, server in there.items() if server == fresh), ""):
            self._notes.append(f"{name} of {source.path} is there already{'' if same == name else f', as {same}'}")
            return same
        called = _free(name, source.label, {slug(each) for each in there})
        if called != name:
            self._notes.append(f"{name} of {source.path} is called {called}, since another {name} is there")
        self.servers[called], self._origins[called] = fresh, str(source.path)
        return called

    def merged(self) -> Merged:
        found = {name: value for name, value in self._extraction.found.items() if name not in self._secrets}
        return Merged(self.servers, found, self._origins, tuple(self._notes), self._called)


def _free(name: str, label: str, taken: Collection[str]) -> str:
    names = (name, f"{name}-{slug(label) or 'imported'}", *(f"{name}-{number}" for number in range(2, 10 * MOST)))
    return next(each for each in names if slug(each) not in taken)


def shown(own: OwnConfig, merged: Merged) -> Iterator[str]:
    for name, table in merged.servers.items():
        yield f"+ {name}, of {merged.origins[name]}"
        yield from (f"    {line}" for line in trusting.of_table(table))
    if merged.secrets:
        yield f"secrets, into {own.secrets_file}: {', '.join(merged.secrets)}"
    yield from merged.notes
    if not merged.servers:
        yield "Nothing to add"
