"""Files of users that were edited for them, by commands and by pages, each as it was before, so that it can be undone.

The rules this file keeps: nothing is edited before what was there is kept; what is undone is ours alone: where somebody
has written the file since, only the entries that we put in are taken out, and those that we took out are put back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from toolgate.config import edits, ownership, replacing, secrets, spans
from toolgate.config.formats import SUFFIXES, Format, Malformed
from toolgate.core.not_edited import NotEdited

INDEX = "edited.json"  # number → `Edit`, in the folder of what was there before
FOLDER = "undo"
MOST = 200  # that are kept


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was edited: `kept` is the name of what was there before, empty where there was no file; `after` the
    digest of what we wrote. `root` is the table whose members `names` were put in, changed or taken out; `secrets` are
    names that were added to the file of secrets at `secrets_file`."""

    number: int
    at: float
    command: str
    subject: str
    path: str
    kept: str
    after: str
    root: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    secrets_file: str = ""


def folder() -> Path:
    return secrets.folder("", "", os.environ) / FOLDER


def format_of(path: Path) -> Format:
    return SUFFIXES.get(path.suffix.lower(), "json")


def read(path: Path) -> str | None:
    """The text of a file, None where there is none. Raises `NotEdited`."""
    try:
        data = replacing.read(path)
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        raise NotEdited(f"{path} is not UTF-8, and was left as it is") from None
    except OSError as error:
        raise NotEdited(f"{path} cannot be read: {_why(error)}") from None


def write(
    path: Path,
    before: str | None,
    after: str,
    *,
    command: str,
    subject: str = "",
    root: tuple[str, ...] = (),
    names: Sequence[str] = (),
    secrets: tuple[tuple[str, ...], str] = ((), ""),
) -> Path | None:
    """Replace the text of a file; where what was there before is kept, if there was a file. Raises `NotEdited`, and
    then all is as it was."""
    data = None if before is None else before.encode()
    try:
        kept = _keep(path, data)
        edit = Edit(
            number=time.time_ns(), at=time.time(), command=command, subject=subject, path=os.path.abspath(path),
            kept=kept.name if kept else "", after=_digest(after.encode()), root=root, names=tuple(names),
            secrets=secrets[0], secrets_file=secrets[1],
        )  # fmt: skip
        _change(lambda known: {**known, str(edit.number): msgspec.to_builtins(edit)})
        try:
            replacing.replace(path, data, after.encode())
        except BaseException:
            with contextlib.suppress(OSError):
                _forget(edit)
            raise
    except OSError as error:
        raise NotEdited(f"{path} cannot be written: {_why(error)}") from None
    return kept


def last(command: str, subject: str = "") -> list[Edit]:
    """What a command has edited and was not undone, the newest first."""
    edits = [msgspec.convert(each, Edit) for each in _known().values()]
    found = [each for each in edits if each.command == command and each.subject == subject]
    return sorted(found, key=lambda edit: edit.number, reverse=True)


def undo(edit: Edit) -> str:
    """What was done about it, in a line. Raises `NotEdited`."""
    path = Path(edit.path)
    now = read(path)
    before = read(folder() / edit.kept) if edit.kept else None
    if edit.kept and before is None:
        raise NotEdited(f"{folder() / edit.kept} is gone: edit {path} by hand")
    try:
        if now is not None and _digest(now.encode()) == edit.after:
            replacing.replace(path, now.encode(), None if before is None else before.encode())
            done = f"{path} was restored" if before is not None else f"{path} was removed"
        elif now is None:
            done = f"{path} is not there any more"
        else:
            replacing.replace(path, now.encode(), _without(edit, now, before).encode())
            done = f"{path} has changed since, so only these entries were undone: {', '.join(edit.names)}"
        _forget(edit)
    except OSError as error:
        raise NotEdited(f"{path} cannot be written: {_why(error)}") from None
    except Malformed as error:
        raise NotEdited(f"{path} {error.message}. Its entries: {', '.join(edit.names)}") from None
    return done


def _forget(edit: Edit) -> None:
    _change(lambda known: {key: each for key, each in known.items() if key != str(edit.number)})
    if edit.kept:
        (folder() / edit.kept).unlink(missing_ok=True)


def _without(edit: Edit, now: str, before: str | None) -> str:
    """The text as it is now, with the members that were edited as they were before."""
    format = format_of(Path(edit.path))
    then: Any = spans.tree(before or "", format)
    for name in edit.names:
        path = (*edit.root, name)
        if spans.holds(then, path):
            value: Any = then
            for key in path:
                value = value[key]
            now = spans.put(now, format, path, value)
        else:
            now = spans.drop(now, format, path)
    return now


def _keep(path: Path, data: bytes | None) -> Path | None:
    if data is None:
        return None
    edits.make_folder(folder())
    kept = folder() / f"{time.time_ns()}-{path.name}"
    with open(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return kept


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _known() -> Mapping[str, Any]:
    try:
        with ownership.opened(folder() / INDEX) as file:
            tree = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return cast("Mapping[str, Any]", tree) if isinstance(tree, dict) else {}


def _change(change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    def changed() -> Mapping[str, Any]:
        after = dict(change(_known()))
        for key in sorted(after)[:-MOST]:
            with contextlib.suppress(OSError):
                (folder() / str(after[key].get("kept") or "-")).unlink(missing_ok=True)
            del after[key]
        return after

    edits.edit_table(folder() / INDEX, changed)


def _why(error: OSError) -> str:
    return getattr(error, "why", "") or error.strerror or "unknown"
