"""Filters do what their tables say, on both machines: they are run here as the kernel would run them."""

from __future__ import annotations

import errno
import struct

import pytest

from toolgate.upstreams.process import seccomp

ALLOW = 0x7FFF0000
REFUSED, ABSENT, DENIED, LACKING = (
    0x50000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.ENOTSUP)
)
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARM, I386 = 0x40000028, 0x40000003


def outcome(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the filter answers to one call."""
    padded = [each & (1 << 64) - 1 for each in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    value, at = 0, 0
    while True:
        code, if_so, if_not, constant = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                value &= constant
            case 0x06:
                return constant
            case 0x15 | 0x25 | 0x45:
                holds = {0x15: value == constant, 0x25: value > constant, 0x45: bool(value & constant)}[code]
                at += if_so if holds else if_not
            case _:
                raise AssertionError(code)


def number_of(call: str, machine: str) -> int | None:
    rows = {words[0]: words[1:] for words in map(str.split, seccomp._NUMBERS.replace("\n", " ").split("·"))}
    number = rows[call][list(MACHINES).index(machine)]
    return None if number == "-" else int(number)


def answers(machine: str, profile: seccomp.Profile, call: str, *arguments: int, grants: set[str] = frozenset()) -> int:  # type: ignore[assignment]
    program = seccomp.program(profile, frozenset(grants), machine)  # type: ignore[arg-type]
    number = number_of(call, machine)
    assert number is not None
    return outcome(program, MACHINES[machine], number, *arguments)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", ["script", "jit", "zygote", "server"])
def test_another_machines_calls_are_unknown_and_end_no_process(machine: str, profile: seccomp.Profile) -> None:
    program = seccomp.program(profile, frozenset(), machine)
    for arch in (ARM, I386, *(MACHINES[each] for each in MACHINES if each != machine)):
        assert outcome(program, arch, 1) == ABSENT
    assert outcome(program, MACHINES[machine], 0x40000000 | 39) == ABSENT
    assert outcome(program, MACHINES[machine], 453) == ABSENT
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4096


# Profile, call, arguments, grants, answer.
CASES: list[tuple[seccomp.Profile, str, tuple[int, ...], set[str], int]] = [
    ("script", "read", (), set(), ALLOW),
    ("script", "openat", (), set(), REFUSED),
    ("script", "execve", (), set(), REFUSED),
    ("script", "socket", (2, 1), set(), REFUSED),
    ("script", "socketpair", (1, 1), set(), ALLOW),
    ("script", "socketpair", (1, 1 | 0o2000000 | 0o4000), set(), ALLOW),
    ("script", "socketpair", (1, 2), set(), REFUSED),
    ("script", "socketpair", (2, 1), set(), REFUSED),
    ("script", "sendto", (3, 0, 0, 0, 0), set(), ALLOW),
    ("script", "sendto", (3, 0, 0, 0, 8), set(), REFUSED),
    ("script", "sendto", (3, 0, 0, 0, 8 << 32), set(), REFUSED),
    ("script", "mmap", (0, 0, 3), set(), ALLOW),
    ("script", "mmap", (0, 0, 7), set(), REFUSED),
    ("script", "mprotect", (0, 0, 4), set(), REFUSED),
    ("script", "fcntl", (0, 3), set(), ALLOW),
    ("script", "fcntl", (0, 8), set(), REFUSED),
    ("script", "prlimit64", (0, 7, 0), set(), ALLOW),
    ("script", "prlimit64", (0, 7, 99), set(), REFUSED),
    ("script", "prlimit64", (1, 7, 0), set(), REFUSED),
    ("script", "clone", (0x3D0F00,), set(), REFUSED),
    ("script", "clone3", (), set(), ABSENT),
    ("script", "kill", (), set(), REFUSED),
    ("jit", "clone", (0x3D0F00,), set(), ALLOW),
    ("jit", "clone", (17,), set(), REFUSED),
    ("jit", "clone", (0x3D0F00 | 0x10000000,), set(), REFUSED),
    ("jit", "mprotect", (0, 0, 7), set(), ALLOW),
    ("jit", "socket", (2, 1), set(), REFUSED),
    ("jit", "kill", (), set(), REFUSED),
    ("jit", "prctl", (15,), set(), ALLOW),
    ("jit", "prctl", (4,), set(), REFUSED),
    ("zygote", "clone", (17,), set(), ALLOW),
    ("zygote", "clone", (17 | 0x40000000,), set(), REFUSED),
    ("zygote", "socket", (2, 1), set(), REFUSED),
    ("zygote", "ptrace", (), set(), REFUSED),
    ("server", "openat", (), set(), ALLOW),
    ("server", "clone", (17,), set(), ALLOW),
    ("server", "clone", (0x10000011,), set(), REFUSED),
    ("server", "ptrace", (), set(), REFUSED),
    ("server", "io_uring_setup", (), set(), ABSENT),
    ("server", "fcntl", (0, 6), set(), ALLOW),  # locks of processes, which servers need
    ("server", "fcntl", (0, 7), set(), ALLOW),
    ("server", "fcntl", (0, 37), set(), seccomp._ERRNO | errno.EINVAL),
    ("server", "fcntl", (0, 38), set(), seccomp._ERRNO | errno.EINVAL),
    ("server", "ioctl", (0, 0x5412), set(), REFUSED),
    ("server", "ioctl", (0, 0x5401), set(), ALLOW),
    ("server", "ioctl", (0, 0x80086601), set(), ALLOW),  # which flags, extents, reflinks
    ("server", "ioctl", (0, 0xC020660B), set(), ALLOW),
    ("server", "ioctl", (0, 0x40049409), set(), ALLOW),
    ("server", "ioctl", (0, 0x40086602), {"modes"}, REFUSED),  # FS_IOC_SETFLAGS
    ("server", "ioctl", (0, 0x140086602), set(), REFUSED),  # the kernel looks at the lower half only
    ("server", "ioctl", (0, 0x401C5820), set(), REFUSED),  # FS_IOC_FSSETXATTR
    ("server", "ioctl", (0, 0x40087602), set(), REFUSED),  # FS_IOC_SETVERSION
    ("server", "ioctl", (0, 0x40806685), set(), REFUSED),  # FS_IOC_ENABLE_VERITY
    ("server", "ioctl", (0, 0x5000940E), set(), REFUSED),  # a subvolume of btrfs
    ("server", "personality", (0xFFFFFFFF,), set(), ALLOW),
    ("server", "personality", (0x0400000,), set(), REFUSED),
    ("server", "prlimit64", (0,), set(), ALLOW),
    ("server", "prlimit64", (77,), set(), REFUSED),
    ("server", "mknodat", (0, 0, 0o010600), set(), ALLOW),
    ("server", "mknodat", (0, 0, 0o060600), set(), REFUSED),
    ("server", "setpriority", (0, 0), set(), ALLOW),
    ("server", "setpriority", (0, 77), set(), REFUSED),
    ("server", "socket", (2, 1), set(), DENIED),
    ("server", "socket", (2, 1, 6), {"tcp"}, ALLOW),
    ("server", "socket", (10, 1 | 0o2000000, 0), {"tcp"}, ALLOW),
    ("server", "socket", (2, 2, 0), {"tcp"}, DENIED),
    ("server", "socket", (2, 1, 262), {"tcp"}, DENIED),
    ("server", "socket", (1, 1, 0), {"tcp"}, DENIED),
    ("server", "socket", (2, 2, 17), {"inet"}, ALLOW),
    ("server", "socket", (16, 3, 0), {"inet"}, ALLOW),
    ("server", "socket", (16, 3, 9), {"inet"}, DENIED),
    ("server", "socket", (17, 3, 0), {"inet"}, DENIED),
    ("server", "socket", (1, 1, 0), {"inet"}, DENIED),
    ("server", "socket", (1, 1, 0), {"unix"}, ALLOW),
    ("server", "sendto", (0, 0, 0, 0x20000000), {"tcp"}, REFUSED),
    ("server", "sendmsg", (0, 0, 0x20000000), {"tcp"}, REFUSED),
    ("server", "sendmsg", (0, 0, 0x4000), {"tcp"}, ALLOW),
    ("server", "sendto", (0, 0, 0, 0x20000000), {"inet"}, ALLOW),
    ("server", "fchmod", (), set(), REFUSED),
    ("server", "fchmod", (), {"modes"}, ALLOW),
    ("server", "truncate", (), set(), REFUSED),
    ("server", "truncate", (), {"truncate"}, ALLOW),
    ("server", "inotify_init1", (), set(), REFUSED),
    ("server", "inotify_init1", (), {"watch"}, ALLOW),
    ("server", "inotify_add_watch", (), set(), REFUSED),
    ("server", "inotify_add_watch", (), {"watch"}, ALLOW),
    *(("server", call, (), {"no modes"}, LACKING) for call in ("getxattr", "lgetxattr", "listxattr", "llistxattr")),
    ("server", "getxattr", (), {"watch"}, ALLOW),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_each_profile_allows_what_its_table_says(machine: str) -> None:
    wrong = [case for case in CASES if answers(machine, case[0], case[1], *case[2], grants=case[3]) != case[4]]
    assert not wrong


def test_a_machine_of_which_nothing_is_known_has_no_filter() -> None:
    assert seccomp.program("script", frozenset(), "riscv64") == b""


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_has_the_number_of_another(machine: str) -> None:
    names = [row.split()[0] for row in seccomp._NUMBERS.replace("\n", " ").split("·")]
    numbers = [number for name in names if (number := number_of(name, machine)) is not None]
    assert len(numbers) == len(set(numbers))
