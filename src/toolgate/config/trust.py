"""Which configuration files the user has trusted, of those that were found and that nobody has named.

A file in the folder that a command happens to be run in may be anybody's: it came with a repository, or an archive. It
says which programs are started, and where secrets are looked for. The rules this file keeps: such a file is used only
as it was when the user trusted it, by its path and all of its bytes; and where that is noted, no configuration says.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from toolgate.config import edits, ownership
from toolgate.config.formats import LONGEST, Malformed, parse
from toolgate.config.problems import ConfigError, Problem
from toolgate.config.secrets import folder

FILE = "trusted.json"  # path → SHA-256, in the user's state folder


class NotTrusted(ConfigError):
    """A file that was found, and is not trusted as it is now."""


def place(environ: Mapping[str, str]) -> Path:
    return folder("", "", environ) / FILE


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check(path: Path, data: bytes, environ: Mapping[str, str]) -> None:
    """Raises `NotTrusted`, and says what to do."""
    trusted = _read(place(environ)).get(os.path.abspath(path))
    if trusted == digest(data):
        return
    why = "has changed since it was trusted" if trusted else "was found in this folder and is not trusted yet"
    raise NotTrusted((Problem(str(path), "", why, _LOOK),))


def is_known(path: Path, environ: Mapping[str, str]) -> bool:
    """Whether it was trusted once, as it was then."""
    return os.path.abspath(path) in _read(place(environ))


def keep(path: Path, data: bytes, environ: Mapping[str, str]) -> None:
    """Trust this file as it is. Raises `OSError`."""
    where = place(environ)
    edits.edit_table(where, lambda: {**_read(where), os.path.abspath(path): digest(data)})


def forget(path: Path, environ: Mapping[str, str]) -> bool:
    """Trust it no longer; whether it was trusted. Raises `OSError`."""
    where, name = place(environ), os.path.abspath(path)
    was_there = name in _read(where)
    if was_there:
        edits.edit_table(where, lambda: {key: value for key, value in _read(where).items() if key != name})
    return was_there


def _read(path: Path) -> Mapping[str, str]:
    """What cannot be read trusts nothing."""
    try:
        with ownership.opened(path) as file:
            tree: Any = parse(file.read(4 * LONGEST).decode(), "json")
    except (OSError, UnicodeDecodeError, Malformed):
        return {}
    return cast("Mapping[str, str]", tree) if isinstance(tree, dict) else {}


_LOOK = "review and trust it with `toolgate trust`, or give it with --config"
