"""`toolgate hooks`: has a coding agent's program tell the gateway of its sessions, by its own settings.

The rules this file keeps: what others wrote in those settings stays as it is, and what cannot be read is not written;
the file is whole at every moment; and what was there before is kept beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from toolgate.cli import printing
from toolgate.config import ownership
from toolgate.frontends.hook import state_folder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Have a coding agent's program report its sessions to the gateway: install, remove, status.",
)

LONGEST = 4 * 1024 * 1024  # bytes of settings
ENTRY = "from toolgate.frontends.hook import main; main()"  # `-m` takes longer; by this a hook of ours is known
BACKUP = ".before-toolgate"


class Program(msgspec.Struct, frozen=True):
    """`home` is the folder of its settings, which `variable` names elsewhere; `timeout` is what its settings have for
    ten seconds; `note` is what its user has to do beside."""

    name: str
    variable: str
    home: str
    file: str
    events: tuple[str, ...]
    timeout: int = 10
    note: str = ""


PROGRAMS: Mapping[str, Program] = {
    "claude": Program(
        "Claude Code",
        "CLAUDE_CONFIG_DIR",
        ".claude",
        "settings.json",
        ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"),
    ),
    "codex": Program(
        "Codex",
        "CODEX_HOME",
        ".codex",
        "hooks.json",
        ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"),
        note="Codex runs no new or changed hook until you have trusted it: start codex and enter /hooks",
    ),
    "gemini": Program(
        "Gemini CLI",
        "",
        ".gemini",
        "settings.json",
        ("SessionStart", "BeforeAgent", "AfterAgent", "PreCompress", "SessionEnd"),
        timeout=10_000,
    ),
}

ClientName = Annotated[
    Literal["claude", "codex", "gemini"], typer.Option("--client", help="The program: claude, codex or gemini.")
]
Tree = dict[str, Any]


@app.command(help="Add the hooks to the program's own settings. All else in them stays.")
def install(
    client: ClientName,
    state: Annotated[str, typer.Option(metavar="FOLDER", help="The gateway's state folder, if it sets `state`.")] = "",
    wait: Annotated[
        float | None,
        typer.Option(min=0, max=10, help="Seconds that a hook waits for a gateway to answer. Default: 0.05."),
    ] = None,
) -> None:
    program, file = PROGRAMS[client], _file(client)
    folder = os.path.abspath(state) if state else state_folder(os.environ)
    # By its whole path, since programs run hooks with a PATH of their own; and so that it finds the same folder there.
    more = [] if wait is None else ["--wait", str(wait)]
    command = shlex.join([sys.executable, "-I", "-c", ENTRY, client, "--state", folder, *more])
    tree = _read(file)
    before = json.dumps(tree)
    hooks = _without_ours(tree, file)
    for event in program.events:
        entry = {"type": "command", "command": command, "timeout": program.timeout}
        hooks.setdefault(event, []).append({"hooks": [entry]})
    tree["hooks"] = hooks
    if json.dumps(tree) == before:
        printing.say(f"{program.name} has the hooks already: {file}")
        return
    _write(file, tree)
    printing.say(f"Added to {file}, for {', '.join(program.events)}:\n  {command}")
    if program.note:
        printing.say(program.note)


@app.command(help="Remove the hooks from the program's settings. All else in them stays.")
def remove(client: ClientName) -> None:
    file = _file(client)
    tree = _read(file)
    if not _ours(tree, file):
        printing.say(f"{PROGRAMS[client].name} has no hooks of toolgate: {file}")
        return
    hooks = _without_ours(tree, file)
    tree["hooks"] = hooks
    if not hooks:
        del tree["hooks"]
    _write(file, tree)
    printing.say(f"Removed the hooks of toolgate from {file}")


@app.command(help="Show which hooks are installed. Exits with 1 if one is missing.")
def status(client: ClientName) -> None:
    program, file = PROGRAMS[client], _file(client)
    ours = _ours(_read(file), file)
    for event, command in ours.items():
        printing.say(f"{event}: {command}")
    missing = [event for event in program.events if event not in ours]
    if missing:
        printing.fail(f"Not in {file}: {', '.join(missing)}. Add: toolgate hooks install --client {client}")


def _file(client: str) -> Path:
    program = PROGRAMS[client]
    home = os.environ.get(program.variable, "") if program.variable else ""
    return (Path(home) if home else Path.home() / program.home) / program.file


def _read(file: Path) -> Tree:
    """An empty one where there is no file. Ends the command where it cannot be read as plain JSON."""
    try:
        with ownership.open_anyones(file) as opened:
            written = opened.read(LONGEST + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        printing.fail(f"{file} cannot be read: {error.strerror}")
    try:
        tree: Any = json.loads(written) if len(written) <= LONGEST else None
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        printing.fail(
            f"{file} is not a plain JSON object, and was left as it is; if it has comments, remove them first"
        )
    return tree  # pyright: ignore[reportUnknownVariableType]


def _groups(tree: Tree, file: Path) -> dict[str, list[Tree]]:
    """The groups of hooks by event. Ends the command where they are of another shape."""
    try:
        return msgspec.convert(tree.get("hooks", {}), dict[str, list[dict[str, Any]]])
    except msgspec.ValidationError as error:
        printing.fail(f"{file} has `hooks` in a format that toolgate does not know, and was left as it is: {error}")


def _entries(group: Tree) -> list[Any]:
    entries = group.get("hooks")
    return entries if isinstance(entries, list) else []  # pyright: ignore[reportUnknownVariableType]


def _is_ours(entry: Any) -> bool:
    return isinstance(entry, dict) and f" -c '{ENTRY}' " in str(entry.get("command", ""))  # pyright: ignore


def _ours(tree: Tree, file: Path) -> dict[str, str]:
    """The commands of our hooks by event."""
    return {
        event: entry["command"]
        for event, groups in _groups(tree, file).items()
        for group in groups
        for entry in _entries(group)
        if _is_ours(entry)
    }


def _without_ours(tree: Tree, file: Path) -> dict[str, list[Tree]]:
    """The groups of hooks that are left, in their order. A group or an event that had only ours is gone."""
    left: dict[str, list[Tree]] = {}
    for event, groups in _groups(tree, file).items():
        kept: list[Tree] = []
        for group in groups:
            others = [entry for entry in _entries(group) if not _is_ours(entry)]
            if len(others) == len(_entries(group)):
                kept.append(group)
            elif others:
                kept.append({**group, "hooks": others})
        if kept or not groups:
            left[event] = kept
    return left


def _write(file: Path, tree: Tree) -> None:
    """In place of what was there, which is kept beside it the first time. A link is followed: some keep their settings
    elsewhere."""
    where = Path(os.path.realpath(file))
    unfinished = where.with_name(f".{where.name}.{secrets.token_hex(4)}")
    try:
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = 0o600
        with contextlib.suppress(FileNotFoundError):
            mode = where.stat().st_mode & 0o777
            backup = where.with_name(where.name + BACKUP)
            if not backup.exists():
                _make(backup, where.read_bytes(), mode)
        _make(unfinished, (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode(), mode)
        os.replace(unfinished, where)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        printing.fail(f"{file} cannot be written: {error.strerror}")


def _make(file: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(descriptor)
