"""`toolgate scripts`: a person reads a script and approves it; then clients may call it as a tool.

The rules this file keeps: what is stored is what was shown, to the byte; another text is shown and approved anew, with
what has changed; nothing of a text acts on the terminal, or is hidden from who decides."""

from __future__ import annotations

import difflib
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from toolgate import state as stores
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, printing
from toolgate.config import Config, state_folder
from toolgate.core import names
from toolgate.core.clock import SystemClock
from toolgate.policy import schemas
from toolgate.sandbox import stored
from toolgate.sandbox.limits import DEFAULTS
from toolgate.sandbox.stored import Approved, Script, StoredScripts, Unfit
from toolgate.state import audit, changes

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Approve scripts that clients may call as tools: add, list, show, remove.",
)

Name = Annotated[str, typer.Argument(help="The script's name, as `toolgate scripts list` shows it.")]


@app.command(help="Show a script, ask, and make it a tool. A running gateway offers it at once.")
def add(
    file: Annotated[Path, typer.Argument(help="The script. Its first lines say its name and parameters.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show the script and do not ask.")] = False,
    sha256: Annotated[
        str, typer.Option(metavar="HEX", help="Approve without asking, if the file has exactly this SHA-256.")
    ] = "",
    config: common.ConfigPath = None,
) -> None:
    found, script = common.load_config(config), _read(file)
    if sha256 and sha256.lower() != script.digest:
        printing.fail(f"Not added: the SHA-256 of the file is {script.digest}")
    common.run(_add(found, script, is_sure=yes or bool(sha256)))


@app.command("list", help="List the approved scripts.")
def listing(config: common.ConfigPath = None) -> None:
    common.run(_list(common.load_config(config)))


@app.command(help="Print the text of an approved script.")
def show(name: Name, config: common.ConfigPath = None) -> None:
    common.run(_show(common.load_config(config), name))


@app.command(help="Remove a script. A running gateway refuses the next call; runs under way may end.")
def remove(name: Name, config: common.ConfigPath = None) -> None:
    common.run(_remove(common.load_config(config), name))


def _read(file: Path) -> Script:
    """Once: what is shown and what is stored is this. Or the end of the command."""
    try:
        with file.open("rb") as opened:
            script = stored.read(opened.read(DEFAULTS.code + 1).decode())
    except OSError as error:
        printing.fail(f"Not added: {file} cannot be read ({error.strerror or 'unknown'})", 2)
    except UnicodeDecodeError:
        printing.fail(f"Not added: {file} is not UTF-8", 2)
    except Unfit as error:
        printing.fail(f"Not added: {file}: {error}", 2)
    if problem := schemas.compiled(script.schema, names.SCRIPTS).problem:
        printing.fail(f"Not added: {file}: `parameters` is not a usable JSON Schema: {problem}", 2)
    return script


async def _add(config: Config, script: Script, is_sure: bool) -> None:
    async with _opened(config) as scripts:
        before = scripts.kept(script.name)
        kept = stored.approved(before) if before else None
        if kept and kept.digest == script.digest and scripts.get(script.name):
            typer.echo(f"{script.name} is approved as it is")
            return
        if len(scripts.all()) >= stored.MOST and not kept:
            printing.fail(f"Not added: there are {stored.MOST} scripts already; remove one")
        if not is_sure:
            _ask(script, kept)
        if not await scripts.approve(script, before, time.time(), audit.operator()):
            printing.fail(f"Not added: {script.name} has changed since you looked. Try again")
        await _note(config, scripts, "scripts.add", script.name, script.digest)
    typer.echo(f"added {names.join_name(names.SCRIPTS, script.name)} ({script.digest})")


def _ask(script: Script, kept: Approved | None) -> None:
    """Ends the command where that is refused."""
    for line in _lines(script, kept.text if kept else ""):
        typer.echo(visible(line), err=True)
    what = "Replace the approved script by this" if kept else "Make this script a tool"
    typer.confirm(f"{what}? Clients may then call it, with their own rights.", abort=True, err=True)


def _lines(script: Script, before: str) -> Iterator[str]:
    """All of it; with what has changed, where there was one."""
    after = script.text.splitlines()
    if before:
        whole = max(len(after), before.count("\n") + 1)
        yield from list(difflib.unified_diff(before.splitlines(), after, "approved", "now", lineterm="", n=whole))[2:]
    else:
        yield from after


async def _list(config: Config) -> None:
    async with _opened(config) as scripts:
        for name, script in scripts.all().items():
            typer.echo(
                visible(f"{name}  {script.language}  {script.digest[:12]}  {script.description.splitlines()[0]}")
            )


async def _show(config: Config, name: str) -> None:
    async with _opened(config) as scripts:
        script = scripts.get(name)
        if not script:
            printing.fail(f"Script not found: {name}. `toolgate scripts list` shows all")
        if sys.stdout.isatty():
            printing.say(script.text)
        else:
            sys.stdout.buffer.write(script.text.encode())


async def _remove(config: Config, name: str) -> None:
    async with _opened(config) as scripts:
        if scripts.kept(name) is None:
            printing.fail(f"Script not found: {name}. `toolgate scripts list` shows all")
        await scripts.remove(name)
        await _note(config, scripts, "scripts.remove", name, "")
    typer.echo(f"removed {visible(name)}")


@asynccontextmanager
async def _opened(config: Config) -> AsyncGenerator[StoredScripts]:
    async with stores.opened(state_folder(config, os.environ)) as store:
        if store.problem:
            printing.fail(store.problem)
        yield StoredScripts(store, config.source)


async def _note(config: Config, scripts: StoredScripts, event: str, name: str, digest: str) -> None:
    """In the audit; and a running gateway looks."""
    await changes.tell(scripts.store, "scripts")
    async with audit.opened(config, os.environ, SystemClock(), scripts.store) as trail:
        trail.note_change(event, audit.operator(), target=name, sha256=digest)
    if trail.problem:
        typer.echo(f"warning: {trail.problem}", err=True)
