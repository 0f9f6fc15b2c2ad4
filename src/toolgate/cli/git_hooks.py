"""The hooks of git by which a repository and the tasks of its project stay the same: written, and removed.

The rules this file keeps: a hook that is not ours is neither changed nor run by another way; ours never make git fail;
and where git looks for hooks, git itself says (`core.hooksPath`, worktrees).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from toolgate.catalog.poisoning import visible
from toolgate.config import ownership
from toolgate.workspace.projects import FILE, project_of

# The hook → what is done with the file then.
HOOKS = {"pre-commit": "export", "post-merge": "import", "post-checkout": "import", "post-rewrite": "import"}
MARK = "# Written by `toolgate tasks hooks install`; `toolgate tasks hooks remove` removes it."
LONGEST = 64 * 1024  # bytes of a hook that are looked at
GIT_TIME = 10.0  # seconds


class NotPossible(Exception):
    """There is nothing to put hooks into. `str()` says why."""


class Done(NamedTuple):
    """What was done, in lines; and whether that is all that was wanted."""

    said: Sequence[str]
    is_whole: bool


def install(config: str | None, agrees: Callable[[Path], bool]) -> Done:
    """For the repository of this folder. `agrees` is asked where git looks for its hooks elsewhere, by settings or by a
    link, which may be those of whoever packed the folder. Raises `NotPossible`."""
    folder, within = _places()
    if not _is_of_repository(folder) and not agrees(leads := folder.resolve()):
        raise NotPossible(
            f"git looks for the hooks of this repository in {visible(str(leads))}, which is not in it: nothing was "
            "written. --yes "
            "installs them there; git config --show-origin core.hooksPath says who has set that"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ownership.check(folder)
    except OSError as error:
        raise NotPossible(f"{visible(str(folder))} cannot be used: {getattr(error, 'why', error.strerror)}") from None
    said: list[str] = []
    is_whole = True
    for name in HOOKS:
        path, text = folder / name, _text(name, within, config)
        if _is_ours(path) is False:
            is_whole = False
            said.append(
                f"{visible(str(path))} was not written by toolgate, and was left as it is. Add this line to it:\n"
                f"  {_line(name, within, config)}"
            )
            continue
        _write(path, text)
        said.append(f"installed {visible(str(path))}")
    return Done(said, is_whole)


def remove() -> Done:
    """Ours, from the repository of this folder. Raises `NotPossible`."""
    folder, _ = _places()
    said = [
        f"removed {visible(str(folder / name))}"
        for name in HOOKS
        if _is_ours(folder / name) and not (folder / name).unlink()
    ]
    return Done(said or ["no hooks of toolgate are installed here"], True)


def add_if_tracked(file: str, top: str) -> None:
    """To the commit that is being made, where git knows the file. `top` is where git runs its hooks: what it tells them
    by variables is relative to that."""
    if _git("ls-files", "--error-unmatch", "--", file, cwd=top).returncode == 0:
        _git("add", "--", file, cwd=top)


def _places() -> tuple[Path, str]:
    """The folder of hooks, and that of the project within the checkout."""
    project = project_of(Path.cwd())
    if not project:
        raise NotPossible(
            f"There is no project here: no {FILE} in this folder or above it; create one with an `id` and a `name`"
        )
    top = _git("rev-parse", "--show-toplevel")
    hooks = _git("rev-parse", "--git-path", "hooks")
    if top.returncode or hooks.returncode:
        raise NotPossible(f"This folder is not in a git checkout: {(top.stderr or hooks.stderr).strip()}")
    folder = Path(hooks.stdout.rstrip("\n")).absolute()
    within = os.path.relpath(project.folder.resolve(), Path(top.stdout.rstrip("\n")).resolve())
    if visible(within) != within:
        raise NotPossible(f"The folder {visible(within)} has characters in its name that a hook cannot show")
    if within.startswith(".."):
        raise NotPossible(f"The project {project.folder} is not inside the checkout {top.stdout.strip()}")
    return folder, within


def _is_of_repository(folder: Path) -> bool:
    """It lies in the folder that `.git` lies in, wherever that says that its files are (`core.worktree`); of a worktree
    in its repository, where that knows of the worktree."""
    here = next((each for each in (Path.cwd(), *Path.cwd().parents) if (each / ".git").exists()), None)
    if not here:
        return False
    if folder.resolve().is_relative_to(here.resolve()):
        return True
    own, common = (
        Path(_git("rev-parse", each).stdout.rstrip("\n")).resolve() for each in ("--git-dir", "--git-common-dir")
    )
    try:
        known_as = Path((own / "gitdir").read_text().rstrip("\n")).resolve()
    except (OSError, UnicodeDecodeError):
        return False
    is_known = known_as == (here / ".git").resolve() and own.is_relative_to(common)
    return is_known and folder.resolve().is_relative_to(common)


def _git(*arguments: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    try:
        return subprocess.run(command, capture_output=True, cwd=cwd, text=True, timeout=GIT_TIME, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotPossible(f"git cannot be run: {error}") from None


def _is_ours(path: Path) -> bool | None:
    """None where there is none. A link is another's."""
    if not os.path.lexists(path):
        return None
    if path.is_symlink():
        return False
    try:
        with ownership.open_anyones(path) as file:
            return MARK.encode() in file.read(LONGEST)
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755), "w") as file:
            file.write(text)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _command() -> str:
    """This very program, wherever git is run from."""
    own = Path(sys.argv[0])
    found = own if own.name == "toolgate" and own.is_file() else shutil.which("toolgate")
    return str(Path(found).absolute()) if found else "toolgate"


def _line(name: str, within: str, config: str | None, command: str = "toolgate") -> str:
    place = f" --in {shlex.quote(within)}" if within != "." else ""
    named = f" --config {shlex.quote(os.path.abspath(config))}" if config else ""
    return f"{command} tasks sync --hook {name}{place}{named} </dev/null || :"


def _text(name: str, within: str, config: str | None) -> str:
    return f"""#!/bin/sh
{MARK}
toolgate={shlex.quote(_command())}
[ -x "$toolgate" ] || toolgate=$(command -v toolgate) || exit 0
{_line(name, within, config, '"$toolgate"')}
exit 0
"""
