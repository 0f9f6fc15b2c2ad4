"""Servers that are added at run time: a file of their own, `servers.json` in the state folder, in the native form.

The rules this file keeps: a file that people write is never written to; a file is whole at every moment, whoever
reads it and whatever ends us; of two processes that edit at once, neither loses what the other wrote; and what was
written as `${VAR}` stays so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from toolgate.config import ownership
from toolgate.config.formats import LONGEST, Malformed, parse
from toolgate.config.problems import ConfigError, Problem
from toolgate.config.secrets import folder
from toolgate.config.server_types import FOREIGN_TYPES
from toolgate.config.settings import Config
from toolgate.core.names import slug, spellings

Tree: TypeAlias = Mapping[str, Mapping[str, Any]]  # name → a server as a native file has it


def own_file(config: Config, environ: Mapping[str, str]) -> Path:
    """Each configuration has its own, so that a server that is added in one project is in no other."""
    which = f"-{hashlib.sha256(os.path.abspath(config.source).encode()).hexdigest()[:12]}" if config.source else ""
    return folder(config.state, config.source, environ) / f"servers{which}.json"


def make_folder(folder: Path) -> None:
    """For us alone, where it is not there yet; so are the folders above it (XDG Base Directory). Raises `OSError`, also
    where another user could write to it."""
    ownership.check(folder)
    for missing in reversed([each for each in (folder, *folder.parents) if not each.is_dir()]):
        missing.mkdir(mode=0o700, exist_ok=True)


# Reading and changing.


def read_own(path: Path) -> Tree:
    """What was added; nothing where there is no file. Raises `ConfigError`."""
    try:
        with ownership.opened(path) as file:
            tree = parse(file.read(4 * LONGEST).decode(), "json")
    except ownership.NotOurs as error:
        raise ConfigError((Problem(str(error.filename), "", error.why),)) from None
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except Malformed as error:
        raise _refused(path, error.message) from None
    except (OSError, UnicodeDecodeError):
        raise _refused(path, "cannot be read") from None
    servers = cast("dict[str, Any]", tree).get("mcpServers", {}) if isinstance(tree, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(each, dict) for each in cast(Tree, servers).values()):
        raise _refused(path, "must contain a table `mcpServers` of servers")
    return cast(Tree, servers)


def added(tree: Tree, name: str, table: Mapping[str, Any]) -> Tree:
    """With one more server. Raises `ConfigError` for a name that there is."""
    if owner := next((each for each in tree if slug(each) == slug(name)), None):
        taken = "already exists" if owner == name else f"has the same id as {json.dumps(owner)}"
        raise _wrong(name, taken, "remove it first, or choose another name")
    return {**tree, name: dict(table)}


def table_of(transport: str, **given: Any) -> dict[str, Any]:
    """A native table of what a caller names in seed 004's words: a transport, and the keys that it has."""
    written = {key: value for key, value in given.items() if value is not None}
    return {"type": FOREIGN_TYPES.get(transport, transport), **written}


def removed(tree: Tree, name: str, config: Config) -> Tree:
    """Without a server, by any spelling of its name. Raises `ConfigError` for one that people wrote in a file, and for
    one that there is not."""
    found = _find(tree, name)
    if found is None:
        theirs = _find({server.name: {} for server in config.servers}, name)
        if theirs is None:
            raise _wrong(name, "no such server")
        raise _wrong(theirs, f"is defined in {config.source or 'the configuration'}", "remove it there")
    return {each: table for each, table in tree.items() if each != found}


def _find(tree: Tree, name: str) -> str | None:
    return next((each for each in tree if name in spellings(each)), None)


# Writing.


def edit(path: Path, change: Callable[[Tree], Tree]) -> Tree:
    """Read, change and write with nobody else between; what is there then. What `change` raises leaves all as it
    was. This waits for other processes' edits, which take milliseconds: call it in a thread."""
    make_folder(path.parent)
    with _locked(path):
        tree = change(read_own(path))
        write(path, tree)
    return tree


def write(path: Path, tree: Tree) -> None:
    """Atomically, and for us alone."""
    make_folder(path.parent)
    _write(path, {"mcpServers": tree})


def edit_table(path: Path, change: Callable[[], Mapping[str, Any]]) -> None:
    """The same care for another file: `change` reads it, and says what is to stand there."""
    make_folder(path.parent)
    with _locked(path):
        _write(path, change())


def _write(path: Path, table: Mapping[str, Any]) -> None:
    text = json.dumps(table, indent=2, ensure_ascii=False) + "\n"
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sweep(path: Path) -> None:
    """Remove what processes have left that were ended while they wrote. Theirs is the number in its name."""
    for left in path.parent.glob(f".{path.name}.*.*"):
        writer = left.name.removeprefix(f".{path.name}.").partition(".")[0]
        if writer.isdecimal() and not _is_alive(int(writer)):
            left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _sync_folder(folder: Path) -> None:
    """That the name is there, too, after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """The lock has a file of its own, since the other one is replaced. It stays: who removed it would free two."""
    descriptor = os.open(
        path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _sweep(path)
        yield
    finally:
        os.close(descriptor)


def _wrong(name: str, message: str, fix: str = "") -> ConfigError:
    return ConfigError((Problem("", name, message, fix),))


def _refused(path: Path, message: str) -> ConfigError:
    return ConfigError((Problem(str(path), "", message, "toolgate wrote this file: repair or remove it"),))
