"""Files of packages that were compared with a hash, and start in place of what a registry has by then.

The rules this file keeps: what a runner starts is the file that was compared, at each start, whatever its cache has and
whatever its registry says; and where that file is gone or is another one, nothing is fetched in its place.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path

from toolgate.config.profiles import RUNNERS, bare
from toolgate.core.fault import Fault

FOLDER = "kept"
LONGEST = 64 * 1024 * 1024  # bytes of a file

_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")


def hash_of(data: bytes, like: str) -> str:
    """The hash of a file, written as `like` is: `sha512-…` (npm) or `sha256:…` (PyPI)."""
    if like.startswith("sha512-"):
        return f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def place_of(hash: str) -> str:
    """Where it is, below the folder of packages: by the hash, so that a runner's cache, which goes by paths, has no
    other file by this one's."""
    return f"{FOLDER}/{hashlib.sha256(hash.encode()).hexdigest()[:32]}"


def keep(folder: Path, hash: str, name: str, data: bytes) -> None:
    """A file that has this hash; `name` is what it is called. Raises `Fault`."""
    if not _name.fullmatch(name) or hash_of(data, hash) != hash:
        raise Fault("SERVER_FAILED", f"the file {name[:100]!r} cannot be kept", reach="not_sent")
    place = folder / place_of(hash)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in place.iterdir():
            if other.name != name:
                other.unlink()
        written = place / f"{name}.part"
        with open(written, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(place / name)
    except OSError as error:
        why = error.strerror or "it cannot be written"
        raise Fault("SERVER_FAILED", f"the file {name} cannot be kept: {why}", reach="not_sent") from None


def args_of(server: str, command: str, args: tuple[str, ...], hash: str, folder: Path) -> tuple[str, ...]:
    """The arguments with which a runner starts the file that has this hash in place of the package that they name.
    Reads all of the file, which counts as used. Raises `Fault`."""
    runner = os.path.basename(command)
    split = RUNNERS[runner].split(args) if runner in RUNNERS else None
    if not split or not split.package or "[" in split.package:
        raise _failed(server, "package_hash is for npx and uvx with one package, and options that are known here")
    place = folder / place_of(hash)
    try:
        (file,) = (each for each in place.iterdir() if not each.name.endswith(".part"))
        with open(file, "rb") as opened:
            data = opened.read(LONGEST + 1)
        os.utime(place)
    except (OSError, ValueError):
        raise _failed(server, f"the file of {split.package}, which was compared with its hash, is gone") from None
    if hash_of(data, hash) != hash:
        raise _failed(server, f"the file of {split.package} is not the one that was compared with its hash: {file}")
    if runner == "uvx":
        return (*split.options, "--from", str(file), split.program or bare(split.package), *split.args)
    spec = f"file:{file}"  # a bare path npx would take for the program itself
    if split.program:
        return (*split.options, "--package", spec, "--", split.program, *split.args)
    return (*split.options, spec, *split.args)


def _failed(server: str, why: str) -> Fault:
    hint = "remove the server and have it provisioned again, or take `package_hash` away from it"
    return Fault("SERVER_FAILED", f"{server} was not started: {why}", reach="not_sent", hint=hint)
