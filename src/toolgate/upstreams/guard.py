"""A process that outlives the gateway by a moment: it ends every child that is left, however the gateway died.

Run as `python guard.py TOKEN`, standard library only. It reads lines on stdin: `+ PGID` and `- PGID` keep its list of
process groups, `sweep MARK` ends what carries that mark. When stdin ends, the gateway is gone, and everything goes.

Every child carries the mark `TOOLGATE_CHILD=TOKEN.NUMBER` in its environment and hands it down, so grandchildren are
found even where they left their process group (Linux: /proc; elsewhere the groups alone are ended).
"""

import os
import signal
import sys

MARK = "TOOLGATE_CHILD"


def carriers(mark: bytes) -> "list[int]":
    """The processes whose environment holds the mark."""
    found: list[int] = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if any(line.startswith(mark) for line in environment.split(b"\0")):
            found.append(int(entry))
    return found


def sweep(mark: bytes) -> None:
    """Kill until nobody is left: a process may start another while it is looked for."""
    for _ in range(5):
        left = carriers(mark)
        if not left:
            return
        for pid in left:
            kill(os.kill, pid)


def kill(how: "object", target: int) -> None:
    try:
        how(target, signal.SIGKILL)  # type: ignore[operator]
    except (ProcessLookupError, PermissionError):
        pass


def main(token: str) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        word, _, rest = line.strip().partition(b" ")
        if word == b"+":
            groups.add(int(rest))
        elif word == b"-":
            groups.discard(int(rest))
        elif word == b"sweep":
            sweep(f"{MARK}={token}.".encode() + rest + b".")
    for group in groups:
        kill(os.killpg, group)
    sweep(f"{MARK}={token}.".encode())


if __name__ == "__main__":
    main(sys.argv[1])
