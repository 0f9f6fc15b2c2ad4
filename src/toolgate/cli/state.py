"""`toolgate state`: back up what gateways keep, put a backup in its place, and check it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from toolgate.cli import common, printing, progress
from toolgate.config import Config, state_folder
from toolgate.core.clock import SystemClock
from toolgate.state import audit, backups
from toolgate.state.opening import Unusable
from toolgate.state.sqlite import FILE, SqliteStore

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Back up, restore and check what gateways keep.")


@app.command(help="Copy the store to a file. Gateways may keep running.")
def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    config: common.ConfigPath = None,
) -> None:
    try:
        with progress.waiting("copying the store, and looking at the copy"):
            size = backups.back_up(_store(config), file, force)
    except backups.Refused as why:
        printing.fail(str(why))
    typer.echo(f"wrote {file} ({size:,} bytes)")


@app.command(
    help="Replace the store with a backup. The old store is kept under another name. "
    "Stop all gateways that use the store first."
)
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `toolgate state backup` has written.")],
    config: common.ConfigPath = None,
) -> None:
    loaded = common.load_config(config)
    store = state_folder(loaded, os.environ) / FILE
    try:
        with progress.waiting("looking at the backup, and putting it in place"):
            restored = backups.restore(store, file)
    except backups.Refused as why:
        printing.fail(str(why))
    common.run(_note(loaded, store, file))
    typer.echo(f"restored {store} from {file}")
    for aside in restored.aside:
        typer.echo(f"the old store: {aside}")


@app.command(help="Check the store: whether it is whole, its version and sizes, and who can read it.")
def check(
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    try:
        with progress.waiting("looking at the store"):
            checked = backups.check(_store(config))
    except backups.Refused as why:
        printing.fail(str(why))
    if as_json:
        printing.say(msgspec.json.format(msgspec.json.encode(checked)).decode())
    else:
        typer.echo(f"{checked.file}: version {checked.version} of {checked.supported}")
        for name, size in checked.sizes.items():
            typer.echo(f"  {name}: {size:,} bytes")
        for name, count in checked.counts.items():
            typer.echo(f"  {name}: {count:,} rows")
        for problem in checked.problems or ["no problems"]:
            printing.say(problem)
    raise typer.Exit(1 if checked.problems else 0)


async def _note(config: Config, file: Path, backup: Path) -> None:
    """In the audit: keys that were revoked may be valid again. Where that cannot be written, it is said."""
    problem = ""
    try:
        store = SqliteStore(file.parent, SystemClock())
        try:
            async with audit.opened(config, os.environ, SystemClock(), store) as trail:
                trail.note_change("state.restore", audit.operator(), file=str(backup.absolute()))
            problem = trail.problem
        finally:
            await store.close()
    except Unusable as error:
        problem = str(error)
    if problem:
        printing.say(f"warning: {problem}", err=True)


def _store(config: str | None) -> Path:
    return state_folder(common.load_config(config), os.environ) / FILE
