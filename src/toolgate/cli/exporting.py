"""`toolgate export`: the servers of the configuration in the words of another program, to print or to put into a file.

The rules this file keeps: what the program cannot be told is said; a value that stands in a variable or a secret is
written only where it is asked for, and then only to a file; of a file that is there all else stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.cli import agents, common, printing
from toolgate.config import Config, fields, foreign_writers, spans
from toolgate.config.foreign_writers import Writer
from toolgate.config.formats import SUFFIXES, Malformed
from toolgate.state import edited_files

app = typer.Typer(add_completion=False)

HELP = """Write the servers of your configuration as another program's file.

Variables are written as the program writes them, and secrets as variables TOOLGATE_SECRET_NAME. What the program cannot
be told is reported."""


@app.command(help=HELP)
def export(
    to: Annotated[
        str, typer.Option("--to", metavar="PROGRAM", help=f"One of {', '.join(agents.AGENTS)}, or a dialect.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Put the servers into this file, and keep all else in it.")
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="Only this server; may be repeated.")] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Write the values of variables and secrets. Needs --output.")
    ] = False,
    config: common.ConfigPath = None,
) -> None:
    writer = _writer(to)
    if values and not output:
        printing.fail("--values would print secrets: give --output as well", 2)
    found = common.require_servers(common.load_whole(config) if values else common.load_written(config))
    tables = _chosen(found, server)
    words = foreign_writers.with_values(writer) if values else writer
    text = before = edited_files.read(output) if output else None
    names, is_whole = list[str](), True
    for name, table in tables.items():
        told = foreign_writers.written(words, name, table)
        is_whole = is_whole and told.table is not None
        for each in told.left_out:
            printing.say(f"{name}: {'left out' if told.table is None else 'written without this'}: {each}", err=True)
        if told.table is not None:
            text = _put(text or "", output, writer.format, (*writer.root, name), told.table)
            names.append(name)
    if output and text is not None and names:
        edited_files.write(output, before, text, command="export", root=writer.root, names=names)
        printing.say(f"Wrote {len(names)} {'server' if len(names) == 1 else 'servers'} into {output}", err=True)
    elif text and not output:
        printing.say(text.rstrip("\n"))
    raise typer.Exit(0 if is_whole else 1)


def _writer(to: str) -> Writer:
    known = foreign_writers.WRITERS
    name = agents.AGENTS[to].dialect if to in agents.AGENTS else {"toolgate": "native"}.get(to, to)
    if name not in known:
        printing.fail(f"unknown program {to}. Available: {', '.join(sorted({*agents.AGENTS, *known}))}", 2)
    return known[name]


def _chosen(config: Config, only: list[str] | None) -> Mapping[str, Mapping[str, Any]]:
    wanted = {common.find_server(config, each).id for each in only or ()}
    servers = [server for server in config.servers if not wanted or server.id in wanted]
    for server in servers:
        if server.problem:
            printing.fail(f"{server.name}: {server.problem}")
    return {server.name: fields.written(server, masked=False, brief=True) for server in servers}


def _put(text: str, output: Path | None, format: Any, path: tuple[str, ...], table: Any) -> str:
    if output:
        format = SUFFIXES.get(output.suffix.lower(), format)
    try:
        return spans.put(text, format, path, table)
    except Malformed as error:
        printing.fail(f"{output} {error.message}")
