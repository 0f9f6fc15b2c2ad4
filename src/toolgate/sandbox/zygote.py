"""The zygote: it has imported what code is likely to use, and forks a process for each run, locked before code runs.

`main` runs in a box of its own, standard library only, with a socket for stdin; `script` and `locks` are to be found
without toolgate (`python.COMMAND`). Each byte that comes on the socket brings three descriptors: one to speak about the
run (`control`), its stdin and its stdout. On `control` the zygote says `started PID`, or `failed ERRNO` where it cannot
fork, and then `exited STATUS`; a run whose `control` is closed at the other end is killed.

The rules this file keeps: no code of others runs in the zygote itself; a run has its stdin and stdout and no other
descriptor; and one that cannot be locked ends before it has read anything.
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import select
import signal
import socket
import sys
import time
import zoneinfo
from typing import Any

# What code is likely to import. A run reads no files, so what is not here is not there.
MODULES = """
_colorize _pydatetime _pydecimal _pylong _strptime abc annotationlib argparse array ast asyncio atexit base64 bdb
binascii bisect bz2 calendar cmath cmd code codecs colorsys configparser contextlib contextvars copy copyreg csv
ctypes dataclasses datetime decimal difflib dis doctest enum errno filecmp fileinput fnmatch fractions functools gc
genericpath getopt gettext glob graphlib gzip hashlib heapq hmac http imaplib inspect io ipaddress itertools keyword
linecache locale logging lzma marshal math mimetypes numbers opcode operator optparse pathlib pickle pickletools
pkgutil platform plistlib posixpath pprint profile pyclbr queue quopri random re reprlib rlcompleter sched secrets
select selectors shelve shlex shutil signal sqlite3 stat statistics string stringprep struct symtable sys sysconfig
tabnanny tarfile tempfile textwrap this threading time timeit token tokenize tomllib trace traceback tracemalloc types
typing unicodedata uuid warnings weakref zipfile zlib zoneinfo collections.abc concurrent.futures.thread email.message
email.mime.multipart email.mime.text email.utils encodings.ascii encodings.base64_codec encodings.cp1252
encodings.hex_codec encodings.idna encodings.iso8859_15 encodings.latin_1 encodings.punycode
encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape encodings.utf_16 encodings.utf_16_be
encodings.utf_16_le encodings.utf_32 encodings.utf_8_sig html.entities html.parser json.decoder json.encoder os.path
unittest.mock urllib.error urllib.parse xml.dom.minidom xml.etree.ElementTree xml.sax.saxutils
"""
UNWANTED = ("this",)  # it speaks when it is imported

MOST_RUNS = 256
_SIZE_OF_FD = 4


def load() -> None:
    """Import all that there is: not each Python has each module."""
    sys.dont_write_bytecode = True
    for name in MODULES.split():
        if name not in UNWANTED:
            try:
                importlib.import_module(name)
            except ImportError:
                pass
    keep_time_zones()


def keep_time_zones() -> None:
    """In memory, since a run reads no files."""
    kept: dict[str, bytes] = {}
    for folder in zoneinfo.TZPATH:
        for name in zoneinfo.available_timezones():
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    kept.setdefault(name, file.read())
            except OSError:
                pass
    io = importlib.import_module("io")
    common: Any = importlib.import_module("zoneinfo._common")

    def load_tzdata(key: str) -> Any:
        if key not in kept:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(kept[key])

    common.load_tzdata = load_tzdata
    names = frozenset(kept)
    zoneinfo.available_timezones = lambda: set(names)  # pyright: ignore


class Run:
    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.is_killed = False

    def say(self, word: bytes, number: int) -> None:
        try:
            self.control.sendall(b"%b %d\n" % (word, number))
        except OSError:
            pass  # nobody listens any more


def serve(gateway: socket.socket, box: dict[str, Any], locks: Any, script: Any) -> None:
    """Until the gateway's end of the socket is closed."""
    nothing = os.open("/dev/null", os.O_RDWR)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    runs: dict[socket.socket, Run] = {}
    gc.collect()
    gc.disable()
    gc.freeze()  # so that no run copies what it only looks at
    while True:
        ready, _, _ = select.select(
            [gateway, reading, *(run.control for run in runs.values() if not run.is_killed)], [], []
        )
        if reading in ready:
            os.read(reading, 4096)
            for pid, status in reap().items():
                for run in [each for each in runs.values() if each.pid == pid]:
                    del runs[run.control]
                    run.say(b"exited", status)
                    run.control.close()
        for control in ready:
            if control in runs:  # it is closed, as nothing else is ever said there
                os.kill(runs[control].pid, signal.SIGKILL)
                runs[control].is_killed = True
        if gateway in ready:
            data, told, _, _ = gateway.recvmsg(1, socket.CMSG_LEN(3 * _SIZE_OF_FD))
            if not data:
                return
            fds = [fd for _, _, each in told for fd in memoryview(each).cast("i")]
            if len(fds) == 3:
                begin(fds, runs, nothing, box, locks, script)
            for fd in fds[1:]:
                os.close(fd)


def begin(
    fds: list[int], runs: dict[socket.socket, Run], nothing: int, box: dict[str, Any], locks: Any, script: Any
) -> None:
    control = socket.socket(fileno=fds[0])
    try:
        if len(runs) >= MOST_RUNS:
            raise OSError(11, "too many runs")
        pid = os.fork()
    except OSError as error:
        Run(0, control).say(b"failed", error.errno or 0)
        control.close()
        return
    if pid:
        runs[control] = Run(pid, control)
        runs[control].say(b"started", pid)
        return
    try:
        os._exit(be(fds[1], fds[2], nothing, box, locks, script))
    finally:
        os._exit(1)


def be(stdin: int, stdout: int, nothing: int, box: dict[str, Any], locks: Any, script: Any) -> int:
    """The process of a run. Its exit status."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for fd, which in ((0, stdin), (1, stdout), (2, nothing)):
        os.dup2(which, fd)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    locks.put_on(box)
    gc.enable()
    script.main(0, 1)
    return 0


def reap() -> dict[int, int]:
    ended: dict[int, int] = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        pass
    return ended


def main(box: str) -> None:
    """`box` is that of a run, packed for `locks`, marshalled, in hexadecimal."""
    locks, script = importlib.import_module("locks"), importlib.import_module("script")
    locks.keep_private()
    time.tzset()
    sys.argv, sys.orig_argv = [""], [""]  # which say where toolgate is
    load()
    script.prepare_asyncio()
    serve(socket.socket(fileno=0), marshal.loads(bytes.fromhex(box)), locks, script)
