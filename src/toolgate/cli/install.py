"""`toolgate install`: puts the gateway into the configurations of agent programs, and checks that they see it.

The rules this file keeps: of a program's file nothing changes but the entry of the gateway, and where that is asked for
the entries of servers that the gateway has exactly so; what was there before is kept, and can be put back.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import agents, common, own_file, printing, progress
from toolgate.cli.agents import Agent
from toolgate.config import Config, ConfigError, foreign_writers, replacing, spans, state_folder
from toolgate.config.formats import Malformed
from toolgate.config.secret_references import Extraction
from toolgate.core.names import slug
from toolgate.state import edited_files, own_config
from toolgate.upstreams.process import folders

app = typer.Typer(add_completion=False)

SERVER = "toolgate"  # the entry of the gateway
KEY = "TOOLGATE_KEY"  # the variable with the key of a program
CHECKING = 90.0  # seconds that a program may take to list its servers
FAILED = re.compile(r"✗|[Ff]ailed|[Dd]isconnected|[Ee]rror")  # what programs say of a server that does not work
IDLE = re.compile(r"[Dd]isabled")
ACTIVE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

HELP = """Put the gateway into the configuration of agent programs, and check that they see it.

By default a program starts a gateway of its own (`toolgate stdio`), so nothing has to run before. With --http it
connects to a running one."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How programs are to reach the gateway: by HTTP at `url`, or by a program that they start."""

    url: str = ""
    command: tuple[str, ...] = ()
    needs_key: bool = False

    def server(self) -> dict[str, Any]:
        """A native table."""
        if not self.url:
            return {"type": "stdio", "command": self.command[0], "args": list(self.command[1:])}
        headers = {"headers": {"Authorization": f"Bearer ${{{KEY}}}"}} if self.needs_key else {}
        return {"type": "http", "url": self.url, **headers}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a program."""

    name: str
    agent: Agent
    path: Path
    dialect: str


@app.command(help=HELP)
def install(
    programs: Annotated[list[str], typer.Argument(metavar="PROGRAMS...", help=f"Any of {', '.join(agents.AGENTS)}.")],
    http: Annotated[bool, typer.Option("--http", help="Connect to a running gateway over HTTP.")] = False,
    url: Annotated[str, typer.Option(help="Its URL. Default: http.host and http.port of the configuration.")] = "",
    surface: Annotated[str, typer.Option(help="What the program is shown, such as meta. Default: `surface`.")] = "",
    client: Annotated[str, typer.Option(metavar="ID", help="Over stdio: act as this configured client.")] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Take out the program's own servers that the gateway has as well.")
    ] = False,
    project: Annotated[
        bool, typer.Option("--project", help="Edit the file of the project in this folder, not the user's.")
    ] = False,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Ask the program which servers it sees.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last install into these programs.")] = False,
    config: common.ConfigPath = None,
) -> None:
    targets = [_target(name, project) for name in dict.fromkeys(programs)]
    if undo:
        for target in targets:
            _undo(target)
        return
    found = common.require_servers(common.load_written(config), may_be_empty=True)
    way = _way(found, http or bool(url), url, surface, client, config)
    edits = [_edit(target, way, found, config, replace) for target in targets]  # all, before any is written
    for target, edit in zip(targets, edits, strict=True):
        _write(target, edit, dry_run)
    if dry_run or not check:
        return
    with folders.empty(state_folder(found, os.environ) / "asked") as folder:
        seen = [_check(target, "" if project else folder) for target in targets]
    raise typer.Exit(0 if all(seen) else 1)


def _target(name: str, is_project: bool) -> Target:
    agent = agents.AGENTS.get(name)
    if not agent:
        printing.fail(f"unknown program {name}. Available: {', '.join(agents.AGENTS)}", 2)
    if is_project and not agent.project:
        printing.fail(f"{agent.title} has no file in a project's folder", 2)
    path = Path.cwd() / agent.project if is_project else agent.file(os.environ)
    if is_project:
        _refuse_to_leave(Path.cwd(), path)
    return Target(name=name, agent=agent, path=path, dialect=agent.read_as(is_project))


def _refuse_to_leave(project: Path, path: Path) -> None:
    """A repository may bring links to files and folders of its user, which git makes as that user."""
    try:
        leads = replacing.followed(path)
    except OSError as error:
        printing.fail(f"{path} cannot be written: {getattr(error, 'why', '') or error.strerror or 'unknown'}", 2)
    if not leads.is_relative_to(project.resolve()):
        printing.fail(f"{path} leads out of this folder, to {leads}: remove the link, or edit that file yourself", 2)


def _way(config: Config, is_http: bool, url: str, surface: str, client: str, named: str | None) -> Way:
    if surface and surface not in common.SURFACES:
        printing.fail(f"unknown surface {surface}: choose one of {', '.join(common.SURFACES)}", 2)
    if is_http:
        if client:
            printing.fail(f"--client is for programs that start the gateway. Over HTTP they show a key: set {KEY}", 2)
        address = url.rstrip("/") or f"{config.http.url_here(_listening(config), config.http.port)}/mcp"
        needs_key = not config.is_open and not config.auth.issuer
        return Way(url=f"{address}/{surface}" if surface else address, needs_key=needs_key)
    if client and client not in {each.id for each in config.clients}:
        printing.fail(f"no client {client} in {config.source}", 2)
    options = [*(("--surface", surface) if surface else ()), *(("--client", client) if client else ())]
    return Way(command=(*common.own_command(), "stdio", *common.naming(config, named), *options))


def _listening(config: Config) -> str:
    """The address. By the name `localhost` some programs try ::1 first, where another user may listen and get the key;
    a certificate shows who it is."""
    return "127.0.0.1" if config.http.host.lower() == "localhost" and not config.http.tls else config.http.host


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    before: str | None
    after: str
    root: tuple[str, ...]
    taken_out: tuple[str, ...]
    twice: tuple[str, ...]  # servers that the program will see twice


def _edit(target: Target, way: Way, config: Config, named: str | None, replaces: bool) -> _Edit:
    """The program's file with the entry of the gateway; or the end of the command."""
    agent, writer = target.agent, foreign_writers.WRITERS[target.dialect]
    if ("http" if way.url else "stdio") not in agent.by:
        printing.fail(f"{agent.title} reaches servers by {' or '.join(agent.by)} only", 2)
    told = foreign_writers.written(writer, SERVER, way.server())
    if told.table is None:
        printing.fail(f"{agent.title}: {'; '.join(told.left_out)}: see docs/agents.md for what to write by hand", 2)
    before = edited_files.read(target.path)
    format = edited_files.format_of(target.path)
    same = _same(target, before, named)
    try:
        text = spans.put(before or "", format, (*writer.root, SERVER), {**told.table, **agent.patience})
        for name in same if replaces else ():
            text = spans.drop(text, format, (*writer.root, name))
    except Malformed as error:
        printing.fail(f"{target.path} {error.message}")
    out, twice = (same, ()) if replaces else ((), same)
    return _Edit(before=before, after=text, root=writer.root, taken_out=out, twice=twice)


def _same(target: Target, before: str | None, named: str | None) -> tuple[str, ...]:
    """The program's own servers that the gateway has exactly so."""
    if not before or not before.strip():
        return ()
    own = own_file.opened(named)
    known = list(own.servers.values())
    extraction = Extraction(own_config.known_secrets(own))
    try:
        theirs = own_file.read_foreign(target.path, target.dialect)
    except ConfigError as error:
        printing.fail(str(error))
    writer = foreign_writers.WRITERS[target.dialect]
    tree: Any = spans.tree(before, edited_files.format_of(target.path))
    there = [name for name in own_config.tables(theirs) if spans.holds(tree, (*writer.root, name))]
    tables = own_config.tables(theirs)
    return tuple(name for name in there if slug(name) != SERVER and extraction.of(name, tables[name]) in known)


def _write(target: Target, edit: _Edit, is_dry: bool) -> None:
    title = target.agent.title
    if edit.after == edit.before:
        printing.say(f"{title} has the gateway already: {target.path}")
        return
    if not is_dry:
        kept = edited_files.write(
            target.path, edit.before, edit.after, command="install", subject=target.name, root=edit.root,
            names=(SERVER, *edit.taken_out),
        )  # fmt: skip
        was = f"; backup: {kept}" if kept else ""
        printing.say(f"{title}: {target.path}{was}")
    else:
        printing.say(f"{title}: would write {target.path}")
    printing.say(f"  + {SERVER}")
    for name in edit.taken_out:
        printing.say(f"  - {name}, which the gateway has")
    if edit.twice:
        printing.say(f"  it sees these twice now, unless you give --replace: {', '.join(edit.twice)}")
    if target.agent.note:
        printing.say(f"  {target.agent.note}")


def _undo(target: Target) -> None:
    edit = next((each for each in edited_files.last("install", target.name)), None)
    if not edit:
        printing.fail(f"Nothing of `toolgate install {target.name}` is left to undo")
    printing.say(f"{target.agent.title}: {edited_files.undo(edit)}")


# Whether they see it.


def _check(target: Target, folder: str) -> bool:
    """Ask the program itself, where it can be asked: in an empty folder, since some start whatever a file of the folder
    that they are in names. Of a project's file none is asked."""
    title, program = target.agent.title, shutil.which(target.agent.program) if target.agent.program else None
    if not target.agent.listing:
        printing.say(f"{title}: cannot be asked from here; its page in docs/agents.md says where it shows its servers")
        return True
    if not program:
        printing.say(f"{title}: not checked, since there is no program {target.agent.program} in PATH")
        return True
    command = " ".join((target.agent.program, *target.agent.listing))
    if not folder:
        printing.say(
            f"{title}: not checked, since it may start what else is named here; `{command}` shows what it sees"
        )
        return True
    with progress.waiting(f"asking {title} which servers it sees"):
        said = _listing([program, *target.agent.listing], folder)
    lines = [line.strip() for line in said.splitlines() if SERVER in line]
    is_seen = bool(lines) and not any(FAILED.search(line) for line in lines)
    shown = visible(lines[0] if lines else said.strip().splitlines()[-1] if said.strip() else "it said nothing")
    printing.say(f"{title}: {'sees it' if is_seen else 'does not see it'}: `{command}`: {shown[:300]}")
    if any(IDLE.search(line) for line in lines) and target.agent.idle:
        printing.say(f"  {target.agent.idle}")
    return is_seen


def _listing(command: Sequence[str], folder: str) -> str:
    """What it prints in this folder, without colours; or why it did not."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECKING,
            check=False,
            env={**_environ(), "PWD": folder},
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {CHECKING:g} s"
    except OSError as error:
        return f"it cannot be started: {error.strerror}"
    return ACTIVE.sub("", (done.stdout + b"\n" + done.stderr).decode(errors="replace"))


def _environ() -> Mapping[str, str]:
    return {**os.environ, "NO_COLOR": "1"}
