"""The guard: it starts every program of the gateway, and ends whatever is left of them, however the gateway dies.

Run as `python guard.py`, standard library only, with a socket for stdin. Each byte that comes there brings four
descriptors: one for talking about a program (`control`), and its stdin, stdout and stderr. The guard forks a keeper for
each, which reads the order on `control`, starts the program and says what becomes of it: `started PID KEEPER` (the
keeper's own id), `failed ERRNO` or `refused ERRNO WHY` (its box cannot be put on), then `exited STATUS`.

The rules this file keeps: whatever a program starts stays below its keeper, in whatever session and with whatever
environment, since an orphan goes to the nearest subreaper above it (Linux; elsewhere its process group alone is
known). A keeper ends all below it when its program has ended or `control` is closed. The guard ends what a killed
keeper leaves, and everything when its stdin is closed; so each does it where the other cannot.
"""

import ctypes
import errno
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterable
    from typing import Any
else:  # the first server waits until the guard runs: what wraps these two costs as much as all of Python's start
    import _signal as signal
    import _socket as socket

# What a keeper says.
STARTED, FAILED, REFUSED, EXITED = b"started", b"failed", b"refused", b"exited"
OVER = b"over"  # its box allows fewer processes or threads: so many of each

# What the gateway's byte says: whether the order has a box, so that what puts it on is loaded once, and not by each.
BARE, BOXED = b"+", b"#"

# Variables without which some Pythons do not find their own library; no secret goes by these names.
OF_THE_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

LENGTH = 8  # bytes that say how long an order is
LONGEST_END = 10.0  # seconds for which processes are killed that do not end: of another user, or in the kernel's hands
POLL = 0.002
LOOK = 0.2  # seconds between two looks at how many processes a box has
LONGEST_WHY = 500  # bytes of why a box cannot be put on
THREADS = 64  # that a box may have for each of the processes that it may have
LOOKS = 3  # at processes, each of which may miss one that has just come
_SIZE_OF_FD = 4
SHARE = 0.75  # of the processes that the user may have; so some are left for whoever ends the others

_LIBC = ctypes.CDLL(None)
PR_SET_DUMPABLE = 4
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def pack(
    argv: "list[bytes]",
    environment: "dict[bytes, bytes]",
    folder: "bytes | None",
    may_gain_privileges: bool,
    box: "dict[str, Any] | None" = None,
) -> bytes:
    """An order, with its length. `argv` begins with the path of the program; a box is packed for `locks`."""
    order = marshal.dumps((argv, environment, folder, may_gain_privileges, box))  # nothing to import for the guard
    return len(order).to_bytes(LENGTH, "big") + order


def prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        rest = (ctypes.c_ulong(0),) * 3
        _LIBC.prctl(option, ctypes.c_ulong(value), *rest)


# The guard.


def main() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)  # orders have secrets in them
    prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)  # one that a program has stopped hears of the gateway's end all the same
    gateway = socket.socket(fileno=0)
    woken = wakeups()
    keepers: set[int] = set()
    # A keeper that was stopped goes on when the guard does: any program of the user can stop either.
    signal.signal(signal.SIGCONT, lambda _number, _frame: [signal_one(os.kill, pid, signal.SIGCONT) for pid in keepers])
    while True:
        ready, _, _ = select.select([gateway, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            ended = reap()
            while ended:
                keepers -= ended.keys()
                ended = end_all(keepers) if any(ended.values()) else {}
        if gateway in ready:
            data, ancillary, _, _ = gateway.recvmsg(1, socket.CMSG_LEN(4 * _SIZE_OF_FD))
            if not data:
                break
            fds = [fd for _, _, told in ancillary for fd in memoryview(told).cast("i")]
            if data == BOXED:
                locks()
            if len(fds) == 4:
                keepers.add(fork_keeper(fds))
            for fd in fds:
                os.close(fd)
    end_all()


def fork_keeper(fds: "list[int]") -> int:
    for fd in fds:
        os.set_inheritable(fd, False)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = keep(fds)
        finally:
            os._exit(status)
    return pid


# A keeper.


def keep(fds: "list[int]") -> int:
    """Whether something is left, as an exit status."""
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # which a fork does not hand down
    os.dup2(1, 0)  # both are /dev/null now: the guard's stdin must close when the guard is gone
    woken = wakeups()
    control = socket.socket(fileno=os.dup(fds[0]))
    order = read_order(control)
    if order is None:
        return 0
    box = order[-1]
    try:
        pid = launch(fds[1:], *order)
    except Refused as error:
        say(control, REFUSED, *error.args)
        return 0
    except (OSError, ValueError) as error:  # ValueError: of a null byte in an argument
        say(control, FAILED, getattr(error, "errno", None) or errno.EINVAL)
        return 0
    for fd in fds:
        os.close(fd)
    say(control, STARTED, pid, b"%d" % os.getpid())
    status = None
    most: int | None = box["processes"] if box else None
    while status is None:
        ready, _, _ = select.select([control, woken], [], [], LOOK if most else None)
        if most and is_over(most):
            say(control, OVER, most, b"%d" % (most * THREADS))
            break
        if woken in ready:
            os.read(woken, 4096)
            status = reap().get(pid)
        if control in ready:
            break
    if status is not None:
        say(control, EXITED, status)
    signal_one(os.killpg, pid, signal.SIGKILL)
    ended = end_all()
    if status is None and pid in ended:
        say(control, EXITED, ended[pid])
    return 1 if has_children() else 0


def read_order(
    control: socket.socket,
) -> "tuple[list[bytes], dict[bytes, bytes], bytes | None, bool, dict[str, Any] | None] | None":
    length = read(control, LENGTH)
    order = read(control, int.from_bytes(length, "big"))
    return marshal.loads(order) if order else None


def read(control: socket.socket, size: int) -> bytes:
    """So many bytes, or none where it is closed before."""
    chunks: list[bytes] = []
    while size:
        chunk = control.recv(min(size, 65536))
        if not chunk:
            return b""
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def launch(
    pipes: "list[int]",
    argv: "list[bytes]",
    environment: "dict[bytes, bytes]",
    folder: "bytes | None",
    may_gain_privileges: bool,
    box: "dict[str, Any] | None",
) -> int:
    """What is set for the keeper itself, the program inherits. Raises `OSError`, `ValueError`, `Refused`."""
    confine(may_gain_privileges)
    if folder is not None:
        os.chdir(folder)
    if box:
        return launch_boxed(pipes, argv, environment, box)

    def spawn(argv: "list[bytes]") -> int:
        return os.posix_spawn(
            argv[0],
            argv,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, pipe, fd) for fd, pipe in enumerate(pipes)],
            setsid=True,
            setsigdef=[*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ],
        )

    try:
        return spawn(argv)
    except OSError as error:
        if error.errno != errno.ENOEXEC:  # a script that does not name its interpreter is the shell's
            raise
        return spawn([b"/bin/sh", *argv])


class Refused(Exception):
    """A program does not run since its box cannot be put on: the number of the error, and why in words."""


def launch_boxed(
    pipes: "list[int]", argv: "list[bytes]", environment: "dict[bytes, bytes]", box: "dict[str, Any]"
) -> int:
    """The same of a program with a box, which is put on between fork and exec. Raises `OSError`, `Refused`."""
    reading, saying = os.pipe()  # exec closes it; so what is said there is why it did not come to that
    pid = os.fork()
    if not pid:
        try:
            os._exit(become(pipes, argv, environment, box, saying))
        finally:
            os._exit(1)
    os.close(saying)
    number, _, why = read_all(reading).partition(b" ")
    os.close(reading)
    if not number:
        return pid
    os.waitpid(pid, 0)
    if why:
        raise Refused(int(number), why)
    raise OSError(int(number), os.strerror(int(number)))


def become(
    pipes: "list[int]",
    argv: "list[bytes]",
    environment: "dict[bytes, bytes]",
    box: "dict[str, Any]",
    saying: int,
) -> int:
    """Only where it fails does this return."""
    why = b""
    try:
        os.setsid()
        for number in (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        saying = os.dup(saying) if saying < 3 else saying
        for fd, pipe in enumerate(pipes):
            os.dup2(pipe, fd)
        os.set_inheritable(saying, False)
        os.closerange(3, saying)
        os.closerange(saying + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            locks().put_on(box)
        except locks().Unlocked as error:
            why = str(error).encode()[:LONGEST_WHY] or b"?"
            raise OSError(errno.EPERM, "") from None
        os.execve(argv[0], argv, environment)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
    os.write(saying, b"%d %b" % (number, why) if why else b"%d" % number)
    return 1


def locks() -> "Any":
    """What puts boxes on, which lies beside this file."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if folder not in sys.path:
        sys.path.append(folder)
    return __import__("locks")


def read_all(fd: int) -> bytes:
    chunks: list[bytes] = []
    while chunk := os.read(fd, 4096):
        chunks.append(chunk)
    return b"".join(chunks)


def confine(may_gain_privileges: bool) -> None:
    """What is cheap and harms no usual server; a process of the same user can still do much."""
    if not may_gain_privileges:
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NPROC, (int(most * SHARE), int(most * SHARE)))


def say(control: socket.socket, word: bytes, number: int, why: bytes = b"") -> None:
    try:
        control.sendall(b"%b %d%b\n" % (word, number, b" " + why.replace(b"\n", b" ") if why else b""))
    except OSError:
        pass  # the gateway is gone


# Both.


def wakeups() -> int:
    """A descriptor that can be read when a child has ended."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


REAPED: "dict[int, int]" = {}  # by a look that could not be without it: what `reap` is still to tell


def reap() -> "dict[int, int]":
    """The children that have ended, with their exit codes."""
    ended = dict(REAPED)
    REAPED.clear()
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        pass
    return ended


def end_all(spared: "frozenset[int] | set[int]" = frozenset()) -> "dict[int, int]":
    """Kill all below this process but those `spared` and what is below them; the children that have ended. They are
    stopped first, so that none starts another while it is looked for. Groups are signalled besides: of a process that
    forks and ends all the time each look is too late, and the next one has its group. What ended between two looks is
    seen all the same, as nobody else reaps it."""
    until = time.monotonic() + LONGEST_END
    ended: dict[int, int] = {}
    while is_left(spared) and time.monotonic() < until:
        stopped: set[int] = set()
        while (fresh := (left := below(spared)).keys() - stopped) and time.monotonic() < until:
            signal_all(left, fresh, signal.SIGSTOP)
            stopped |= fresh
        signal_all(left, left.keys(), signal.SIGKILL)
        ended |= reap()
        time.sleep(POLL)
        ended |= reap()
    return ended | reap()


def is_left(spared: "frozenset[int] | set[int]") -> bool:
    """The kernel alone knows it for certain: a process can be missed by each look. Beside those spared, looks count."""
    return has_children() and (not spared or any(below(spared) for _ in range(LOOKS)))


def below(spared: "frozenset[int] | set[int]", top: int = 0) -> "dict[int, int]":
    """Every process below this one, or below `top`, with its group."""
    found: dict[int, int] = {}
    ahead = [top] if top else [os.getpid()] if has_children() else []
    scanned = None if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children") else all_children()
    while ahead:
        parent = ahead.pop()
        for pid in children(parent) if scanned is None else scanned.get(parent, []):
            if pid not in spared and pid not in found:
                found[pid] = parent_and_group(pid)[1]
                ahead.append(pid)
    return found


def is_over(most: int) -> bool:
    """Whether a box has more processes than it may have, or more threads than so many processes have."""
    found = below(frozenset())
    return len(found) > most or sum(map(threads, found)) > most * THREADS


def threads(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # a folder for each, beside `.` and `..`
    except OSError:
        return 0  # it has ended meanwhile


def children(parent: int) -> "list[int]":
    """As the kernel lists them: in less time than it takes to fork, where all of /proc takes far more."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # it has ended meanwhile: they are somebody else's now
    return found


def all_children() -> "dict[int, list[int]]":
    """The same of a kernel that keeps no such lists."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if entry.isdigit():
            found.setdefault(parent_and_group(int(entry))[0], []).append(int(entry))
    return found


def parent_and_group(pid: int) -> "tuple[int, int]":
    """Those of one that has ended, too, until it is reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parent, group = file.read().rpartition(b")")[2].split()[1:3]
    except (OSError, ValueError):
        return 0, 0
    return int(parent), int(group)


def has_children() -> bool:
    """Also such as have ended, until it is told of them."""
    try:
        if hasattr(os, "waitid"):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        else:  # Python before 3.13 on macOS
            pid, status = os.waitpid(-1, os.WNOHANG)
            REAPED.update({pid: os.waitstatus_to_exitcode(status)} if pid else {})
    except ChildProcessError:
        return bool(REAPED)
    return True


def signal_all(left: "dict[int, int]", pids: "Iterable[int]", number: int) -> None:
    """Processes and their groups, which are all begun below a keeper, in sessions of their own; but ours."""
    for group in {left[pid] for pid in pids} - {0, os.getpgrp()}:
        signal_one(os.killpg, group, number)
    for pid in pids:
        signal_one(os.kill, pid, number)


def signal_one(send: "Callable[[int, int], None]", target: int, number: int) -> None:
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    main()
