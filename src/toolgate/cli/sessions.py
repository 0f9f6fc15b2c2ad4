"""`toolgate sessions`: the sessions of this user's coding agents, as their hooks told of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from toolgate import state as stores
from toolgate.cli import common, printing
from toolgate.config import Config, state_folder
from toolgate.core.fault import Fault
from toolgate.state.base import Connection, NotKept
from toolgate.workspace import sessions
from toolgate.workspace.sessions import Record

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show the sessions of coding agents and what they handed over: list, show.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list", help="List the sessions, the most recently active first.")
def listing(
    limit: Annotated[int, typer.Option(min=1, max=sessions.MOST_RECORDS, help="The maximum number of sessions.")] = 20,
    project: Annotated[str | None, typer.Option(metavar="ID", help="Only sessions of this project.")] = None,
    as_json: AsJson = False,
    config: common.ConfigPath = None,
) -> None:
    found = common.run(_of(common.load_config(config), lambda tables: sessions.newest(tables, "", limit, project)))
    if as_json:
        typer.echo(json.dumps([_told(record) for record in found], indent=2))
        return
    if not found:
        typer.echo("No sessions yet. To have them recorded: toolgate hooks install --client claude")
        return
    head = ("LAST ACTIVE", "STATUS", "PROGRAM", "TITLE", "FOLDER", "ID")
    rows = (head, *(_row(record) for record in found))
    printing.say("\n".join(printing.aligned(rows)))


@app.command(help="Show one session, with what it hands over or has handed over.")
def show(
    session: Annotated[str, typer.Argument(help="The id of the session.")],
    as_json: AsJson = False,
    config: common.ConfigPath = None,
) -> None:
    def work(tables: Connection) -> tuple[Record, str]:
        record = sessions.found(tables, "", session)
        return record, record.summary or sessions.summary_of(tables, record)

    try:
        record, summary = common.run(_of(common.load_config(config), work))
    except Fault as fault:
        printing.fail(fault.message)
    if as_json:
        typer.echo(json.dumps(_told(record), indent=2))
        return
    parent = f", after {record.parent_id}" if record.parent_id else ""
    printing.say(f"{record.id}: {sessions.shown_status(record, _now())}{parent}\n\n{summary}")


async def _of(config: Config, work: Callable[[Connection], Any]) -> Any:
    async with stores.opened(state_folder(config, os.environ)) as store:
        try:
            return await store.query(work)
        except NotKept as error:
            printing.fail(f"Sessions cannot be read: {error}")


def _row(record: Record) -> tuple[str, ...]:
    when = f"{record.updated_at[:10]} {record.updated_at[11:16]}Z"
    return (when, sessions.shown_status(record, _now()), record.source, record.title or "-", record.cwd, record.id)


def _told(record: Record) -> dict[str, Any]:
    return {**msgspec.structs.asdict(record), "status": sessions.shown_status(record, _now())}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
