"""Python without what macOS lacks: `elsewhere.py PYTHON [-I -S -B -X …] (-c CODE | FILE) ARGUMENT…`.

`PYTHON` is a program that runs this file, so that what is started by `sys.executable` lacks it, too.
"""

import builtins
import ctypes
import os
import platform
import resource
import runpy
import signal
import socket
import sys
import sysconfig
import types

OF_LINUX = {
    os: (
        "sched_getaffinity sched_setaffinity pidfd_open P_PIDFD memfd_create eventfd pipe2 splice waitid "
        "O_PATH O_TMPFILE O_DIRECT O_NOATIME getrandom setns unshare posix_fadvise posix_fallocate listxattr getxattr "
        "prlimit close_range login_tty fdatasync getresuid setresuid"
    ),
    resource: "RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_OFILE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING prlimit",
    signal: "pidfd_send_signal SIGPWR SIGSTKFLT SIGPOLL SIGRTMIN SIGRTMAX sigtimedwait sigwaitinfo",
    socket: "SO_PEERCRED SO_DOMAIN SOCK_CLOEXEC SOCK_NONBLOCK MSG_CMSG_CLOEXEC AF_NETLINK AF_VSOCK TCP_KEEPIDLE "
    "TCP_USER_TIMEOUT TCP_DEFER_ACCEPT TCP_QUICKACK SO_BINDTODEVICE SCM_CREDENTIALS",
}
OF_LIBC = ("prctl", "syscall", "capget", "capset", "unshare", "setns", "ptrace")


def hide() -> None:
    sysconfig.get_config_vars()  # which it knows from a file of this system
    sys.platform = "darwin"
    platform.system = lambda: "Darwin"
    platform.machine = lambda: "arm64"
    for module, names in OF_LINUX.items():
        for name in names.split():
            vars(module).pop(name, None)
    sys.modules["_scproxy"] = types.ModuleType("_scproxy")
    vars(sys.modules["_scproxy"]).update(_get_proxy_settings=dict, _get_proxies=dict)
    known = ctypes.CDLL

    def without(*given: object, **named: object) -> object:
        library = known(*given, **named)
        find = library.__getattr__

        class Library:
            def __getattr__(self, name: str) -> object:
                if name in OF_LIBC:
                    raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
                return find(name)

        return Library()

    ctypes.CDLL = without
    for module, name in ((builtins, "open"), (os, "open"), (os, "listdir"), (os, "stat"), (os, "readlink")):
        setattr(module, name, without_proc(getattr(module, name)))
    for name in ("exists", "isdir", "isfile"):
        setattr(os.path, name, not_in_proc(getattr(os.path, name)))


def is_in_proc(path: object) -> bool:
    return not isinstance(path, int) and os.fspath(path).startswith(b"/proc" if isinstance(path, bytes) else "/proc")


def without_proc(function: object) -> object:
    def hiding(path: object = ".", *given: object, **named: object) -> object:
        if is_in_proc(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *given, **named)

    return hiding


def not_in_proc(function: object) -> object:
    return lambda path: not is_in_proc(path) and function(path)


def main(arguments: list) -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    hide()
    sys.executable = arguments.pop(0)
    sys.path[:] = [each for each in sys.path if each != folder]
    while arguments[0].startswith("-") and arguments[0] != "-c":
        del arguments[: 2 if arguments[0] == "-X" else 1]
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


main(sys.argv[1:])
