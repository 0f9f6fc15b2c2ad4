"""Puts a box on the process that calls: limits, fewer capabilities, landlock, seccomp. None of it can be taken off.

Standard library only, and little of that: the guard and the zygote load it by its path, without toolgate. A packed box
(`confinement.Box.packed`) is a plain dictionary, which `marshal` can write. The rule this file keeps: what cannot be
put on raises `Unlocked`, and says what it was; only a box that says `lenient` goes on without.
"""

import ctypes
import errno
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_CAPABILITIES_V3 = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_BENEATH, _PORT = 1, 2  # kinds of rule
_VERSION = 1  # asks for the version instead of a ruleset

# Landlock's rights to files, by bit.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_ALL = (1 << 16) - 1
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # all that a rule for a file may say
READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
WRITE = _ALL & ~EXECUTE & ~_MAKE_DEVICES & ~IOCTL_DEV  # who makes a device, as root, reads the disk

_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}  # and all from then on
_BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
_LAST = 19  # the lowest priority: it has the processor alone where nobody else wants it
_SCOPES = 1 << 0 | 1 << 1  # abstract unix sockets, signals


class Unlocked(Exception):
    """A part of a box cannot be put on. `str()` says which, and why."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def landlock_abi() -> int:
    """The version that this kernel has; 0 where there is none, or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION)))


def has_seccomp() -> bool:
    """Whether this kernel takes filters: it looks where the filter is, which is nowhere."""
    if not sys.platform.startswith("linux"):
        return False
    _prctl(_PR_SET_SECCOMP, _MODE_FILTER, 0)
    return ctypes.get_errno() == errno.EFAULT


def put_on(box: "dict[str, Any]") -> None:
    """Raises `Unlocked`."""
    lenient = box["lenient"]
    for part, put in (
        ("limits", _limit),
        ("capabilities", _drop_capabilities),
        ("no_new_privs", _gain_nothing),
        ("landlock", _restrict),
        ("seccomp", _filter),
    ):
        try:
            put(box)
        except (OSError, ValueError, AttributeError) as error:  # AttributeError: a function that only Linux has
            if not lenient:
                raise Unlocked(f"{part}: {error}") from None


def keep_private() -> None:
    """Let no other process of this user look into this one. Exec undoes it, so it is for the program itself to do."""
    _prctl(PR_SET_DUMPABLE, 0)


def _limit(box: "dict[str, Any]") -> None:
    """What is unlimited stays so; a limit that is lower already stays, too."""
    if box["gives_way"]:
        os.nice(_LAST)
    for number, most in box["limits"].items():
        soft, hard = resource.getrlimit(number)
        lowest = [most, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
        most = min(lowest)
        later = most + 1 if number == resource.RLIMIT_CPU else most  # a signal first, which says what it is, then KILL
        resource.setrlimit(number, (most, later if hard == resource.RLIM_INFINITY else min(later, hard)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _drop_capabilities(box: "dict[str, Any]") -> None:
    """But those of the box's mask. It is root's alone to have any; with no_new_privs, no program gets them back."""
    kept = box["capabilities"]
    header = _words(_CAPABILITIES_V3, 0)
    now = ctypes.create_string_buffer(24)
    _check(_LIBC.capget(header, now))
    if not any(now.raw):
        return
    held = [int.from_bytes(now.raw[at : at + 4], "little") for at in range(0, 24, 4)]
    mask = [kept & 0xFFFFFFFF] * 3 + [kept >> 32] * 3
    _check(_LIBC.capset(header, _words(*(have & may for have, may in zip(held, mask, strict=True)))))


def _gain_nothing(_: "dict[str, Any]") -> None:
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1))


def _restrict(box: "dict[str, Any]") -> None:
    """Files, TCP and scopes, each as far as this kernel knows them: what it does not is looked for beforehand
    (`confinement.missing`)."""
    abi = landlock_abi()
    if not abi:
        raise OSError(errno.ENOSYS, "the kernel has no landlock")
    handled = _BY_ABI.get(abi, _ALL)
    ports: Iterable[int] | None = box["ports"]
    network = _BIND_TCP | CONNECT_TCP if ports is not None and abi >= 4 else 0
    scopes = _SCOPES if abi >= 6 else 0
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = b"".join(each.to_bytes(8, "little") for each in (handled, network, scopes))[:size]
    ruleset = _check(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0)))
    try:
        for rights, path in box["files"]:
            _allow(ruleset, path, rights & handled)
        for port in ports or () if network else ():
            rule = CONNECT_TCP.to_bytes(8, "little") + port.to_bytes(8, "little")
            _check(_LIBC.syscall(_ADD_RULE, ruleset, _PORT, rule, 0))
        _check(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: bytes, rights: int) -> None:
    """What is not there needs no rule: it cannot be opened when it comes, either."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if os.stat(place).st_mode & 0o170000 != 0o040000:  # no folder
            rights &= _OF_FILES
        rule = rights.to_bytes(8, "little") + place.to_bytes(4, "little")
        _check(_LIBC.syscall(_ADD_RULE, ruleset, _BENEATH, rule, 0))
    finally:
        os.close(place)


def _filter(box: "dict[str, Any]") -> None:
    code: bytes = box["filter"]
    if not code:
        raise OSError(errno.ENOSYS, f"no filter for {os.uname().machine}")
    instructions = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(instructions))
    _check(_prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program)))


def _words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def _prctl(option: int, *values: int) -> int:
    ctypes.set_errno(0)
    return _LIBC.prctl(option, *(ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
