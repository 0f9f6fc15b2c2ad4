"""`toolgate hook PROGRAM`: what a coding agent's program runs at each event of a session, with what it tells on stdin.

    python -I -c "from toolgate.frontends.hook import main; main()" claude

The payload goes into the folder of hooks, and a gateway of that state folder is told to read it (`workspace.hooks`):
nothing is lost while none runs, or hangs. What a gateway answers in time is printed, else `{}`.

The rules this file keeps: its program waits for it at each event, so it imports next to nothing, waits for a gateway no
longer than it is to, and ends with 0, whatever happens. Where the folder is full, what came first is kept. What it
prints is `{}`, or context for a session that starts: programs take decisions from hooks, too, and no gateway makes any.
"""

from __future__ import annotations

import _socket as sockets  # what `socket` imports beside it takes as long as all else here
import os
import select
import sys
import time

TYPE_CHECKING = False  # `typing` takes long to import
if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE = 0.05  # seconds for a gateway to answer, unless said otherwise
LISTENING = 1.0  # seconds for a program to say all
LONGEST_PAYLOAD = 1024 * 1024  # bytes
LONGEST_ANSWER = 64 * 1024  # bytes
MOST_FILES = 1000
MOST_BYTES = 16 * 1024 * 1024
MOST_GATEWAYS = 16  # that are asked
NOTHING = b"{}"
# What `workspace.hooks` answers to the start of a session, around a text.
BEFORE, BEHIND = b'{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"', b'"}}'


def main(arguments: list[str] | None = None) -> None:
    """`[PROGRAM, --state FOLDER, --wait SECONDS]`, in any order; without a folder it is the user's own."""
    answer = NOTHING
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        state = option(given, "--state") or state_folder(os.environ)
        patience = option(given, "--wait")
        seconds = float(patience) if patience.replace(".", "", 1).isdecimal() else PATIENCE
        program = next((each for each in given if not each.startswith("-")), "")
        answer = handed_over(state, program, heard(), seconds)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  the rescue: no hook may fail its program
        pass
    try:
        os.write(1, answer + b"\n")
    except OSError:
        pass
    os._exit(0)  # there is nothing to tidy up, and that takes time


def option(given: list[str], name: str) -> str:
    """What stands behind its name, which is taken out; empty where nothing does."""
    return given.pop(given.index(name) + 1) if name in given[:-1] else ""


def state_folder(environ: Mapping[str, str]) -> str:
    """As `config.secrets.folder` has it where a configuration does not say."""
    if os.path.isabs(environ.get("XDG_STATE_HOME", "")):
        return os.path.join(environ["XDG_STATE_HOME"], "toolgate")
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state", "toolgate")


def heard() -> bytes:
    """The payload; empty where it is too long, or does not end in time."""
    until, length = time.monotonic() + LISTENING, 0
    parts: list[bytes] = []
    while select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(0, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
        length += len(part)
        if length > LONGEST_PAYLOAD:
            break
    return b""


def handed_over(state: str, program: str, payload: bytes, seconds: float = PATIENCE) -> bytes:
    """What to print. Raises `OSError`."""
    until = time.monotonic() + seconds
    folder = os.path.join(state, "hooks")
    os.makedirs(state, mode=0o700, exist_ok=True)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        check(folder)
    name = "".join(each if each.isascii() and each.isalnum() else "-" for each in program.lower())[:32].strip("-")
    file = f"{time.time_ns():020d}-{os.getpid()}-{name or 'mcp'}.json"
    if not payload or is_full(folder, len(payload)) or not written(folder, file, payload):
        return NOTHING
    for path in gateways(state):
        if time.monotonic() < until and (answer := asked(path, file, until)):
            return answer
    return NOTHING


def check(folder: str) -> None:
    """Raises `OSError` where it is not this user's alone."""
    found = os.lstat(folder)
    if found.st_mode & 0o170077 != 0o040000 or found.st_uid != os.geteuid():
        raise PermissionError(folder)


def is_full(folder: str, more: int) -> bool:
    count = size = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            count += 1
            size += entry.stat(follow_symlinks=False).st_size
    return count >= MOST_FILES or size + more > MOST_BYTES


def written(folder: str, name: str, payload: bytes) -> bool:
    """Whole, or not at all, under its name."""
    unfinished = os.path.join(folder, f".{name}")
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(payload)
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.unlink(unfinished)
        return False
    finally:
        os.close(file)
    os.rename(unfinished, os.path.join(folder, name))
    return True


def gateways(state: str) -> list[str]:
    """Of the gateways of this folder, the youngest first; some of others may be among those in /tmp, where a long path
    has sent them (`frontends.operator.place`)."""
    found: list[tuple[float, str]] = []
    for folder in (os.path.join(state, "run"), f"/tmp/toolgate-{os.geteuid()}"):
        try:
            check(folder)
            with os.scandir(folder) as entries:
                found += [(entry.stat().st_mtime, entry.path) for entry in entries if entry.name.endswith(".sock")]
        except OSError:
            continue
    return [path for _, path in sorted(found, reverse=True)[:MOST_GATEWAYS]]


def asked(path: str, file: str, until: float) -> bytes | None:
    """The answer of one gateway; None where there is none in time, or it does not know the file."""
    body = b'{"file": "%s"}' % file.encode()
    head = b"POST /admin/hook HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        connection.settimeout(max(0.001, until - time.monotonic()))
        connection.connect(path)
        connection.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = b""
        while len(answer) <= LONGEST_ANSWER:
            connection.settimeout(max(0.001, until - time.monotonic()))
            part = connection.recv(65536)
            if not part:
                break
            answer += part
    except OSError:
        return None
    finally:
        connection.close()
    said, _, whole = answer.partition(b"\r\n\r\n")
    return whole if said.split(b" ", 2)[1:2] == [b"200"] and is_allowed(whole) else None


def is_allowed(answer: bytes) -> bool:
    """Whether this is nothing, or context and nothing else, and JSON; the module `json` takes long to import."""
    text = answer[len(BEFORE) : -len(BEHIND)]
    if answer != BEFORE + text + BEHIND or len(answer) > LONGEST_ANSWER:
        return answer == NOTHING
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    plain, *escapes = text.replace(b"\\\\", b"--").split(b"\\")
    return (
        min(text, default=32) >= 32
        and b'"' not in plain
        and all(
            each[:1] in (b'"', b"/", b"b", b"f", b"n", b"r", b"t", b"u")
            and b'"' not in each[1:]
            and (each[:1] != b"u" or (len(each) > 4 and not each[1:5].strip(b"0123456789abcdefABCDEF")))
            for each in escapes
        )
    )


if __name__ == "__main__":
    main()
