"""The folder that a call of Codex names, as it was when a person was asked about the call."""

from __future__ import annotations

import os
import stat

import msgspec

from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.model import Call

NO_FOLDER = "`cwd` must be a folder that exists"
FOLDER = "folder"  # of a call's `extra`: a `Folder`


class Folder(msgspec.Struct, frozen=True):
    """What is at the resolved `cwd` of a call: shown with it to the person who decides, and to be the same when it is
    made, since the caller that named the folder may be able to put another one there."""

    cwd: str
    device: int
    inode: int


def looked_at(cwd: str) -> Folder:
    """What is at a resolved path now. Raises `Fault` where that is no folder, or the path leads elsewhere by now."""
    try:
        found = os.lstat(cwd)
    except FileNotFoundError:
        raise invalid(NO_FOLDER) from None
    except OSError:
        raise _replaced(cwd) from None
    if not stat.S_ISDIR(found.st_mode) or os.path.realpath(cwd) != cwd:
        raise _replaced(cwd)
    return Folder(cwd, found.st_dev, found.st_ino)


def found(named: str) -> Folder:
    """The folder that an absolute path leads to. Raises `Fault`."""
    try:
        folder = os.path.realpath(named)
    except OSError as error:  # a link that we may not read
        raise invalid(f"`cwd` cannot be read: {error.strerror}") from None
    if not os.path.isdir(folder):
        raise invalid(NO_FOLDER)
    return looked_at(folder)


def asked_about(call: Call, cwd: str) -> Folder:
    """The folder that the person who decided was shown, or has named instead. Raises `Fault`."""
    shown = jsonrpc.read(call.extra[FOLDER], type=Folder)
    return shown if shown.cwd == cwd else looked_at(cwd)


def check_same(asked: Folder) -> None:
    """Raises `Fault` where another folder is there by now."""
    if looked_at(asked.cwd) != asked:
        raise _replaced(asked.cwd)


def invalid(why: str) -> Fault:
    return Fault("INVALID_ARGS", f"Invalid arguments: {why}", reach="not_sent")


def _replaced(cwd: str) -> Fault:
    message = (
        f"Access denied: {cwd} is not the folder that was asked about: it, or one above it, was replaced meanwhile"
    )
    return Fault("ACCESS_DENIED", message, reach="not_sent", hint="make the same call again")
