"""Attempts of a stdio server to get out of its box: of its own folder, its own processes, its own limits.

It runs a whole Python in a box of the profile `server`, with ctypes and sockets. Each attempt is code that prints with
`E` when the kernel let it do what it may not; whatever it raises is a refusal. What it does to the world shows besides.
"""

# ruff: noqa: E501  a row of the table is a line

from __future__ import annotations

import json
from typing import Any

from toolgate.upstreams.process import confinement, guard
from toolgate.upstreams.process.confinement import MIB, Box

_PRELUDE = """
import ctypes, json, os, resource, signal, socket, sys, time
W = json.loads(sys.argv[1]) if len(sys.argv) > 1 else json.loads(WORLD)
print("INSIDE", flush=True)
def E(*what): print("ESCAPED", *what, flush=True)
libc = ctypes.CDLL(None, use_errno=True)
def c(each):
    return ctypes.c_long(each) if isinstance(each, int) else ctypes.c_char_p(each.encode()) if isinstance(each, str) else each
def sc(name, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(W["nr"][name]), *map(c, args))
    return r if r >= 0 else -ctypes.get_errno()
def may(name, *args):
    r = sc(name, *args)
    print(name, r)
    if r >= 0: E(name, r)
    return r
def buf(n): return ctypes.create_string_buffer(n)
"""


def prelude(told: dict[str, Any]) -> str:
    return f"WORLD = {json.dumps(told)!r}\n{_PRELUDE}"


def box_of(name: str, told: dict[str, Any]) -> Box:
    """The strict box, with the network that the attempt is to get past."""
    read, execute = confinement.of_python()
    network = "tcp" if name.startswith("ports") else "all" if name.startswith("net") else "none"
    return Box(
        read=(*read, "/proc/self") if name.startswith("proc") else read,
        execute=(*execute, "/bin/true", "/usr/bin/true", "/bin/su", "/usr/bin/su"),
        write=(told["own"],),
        network=network,
        inherits=guard.OF_THE_LOADER,
        ports=(1,),
        memory=256 * MIB,
        cpu=2,
        processes=8,
        open_files=64,
        file_size=MIB,
    )


ATTEMPTS: dict[str, dict[str, str]] = {
    "file": {
        "read the state folder": 'E(open(W["secret"]).read())',
        "list the state folder": 'E(os.listdir(W["state"]))',
        "by a symlink of its own": 'os.symlink(W["secret"], W["own"] + "/a"); E(open(W["own"] + "/a").read())',
        "by a hard link of its own": 'os.link(W["secret"], W["own"] + "/b"); E("linked")',
        "move the secret here": 'os.rename(W["secret"], W["own"] + "/c"); E("moved")',
        "write outside": 'open(W["state"] + "/new", "w").write("x"); E("wrote")',
        "overwrite": 'open(W["secret"], "a").write("x"); E("wrote")',
        "make a folder outside": 'os.mkdir(W["state"] + "/d"); E("made")',
        "remove": 'os.unlink(W["secret"]); E("removed")',
        "truncate by name": 'os.truncate(W["secret"], 0); E("truncated")',
        "open its mode": 'os.chmod(W["secret"], 0o777); E("changed")',
        "its mode by descriptor": 'fd = os.open(W["secret"], os.O_PATH); os.chmod(f"/proc/self/fd/{fd}", 0o777); E("changed")',
        "its owner": 'os.chown(W["secret"], 1000, 1000); E("changed")',
        "its time": 'os.utime(W["secret"], (1, 1)); E("changed")',
        "its attributes": 'os.setxattr(W["secret"], "user.x", b"x"); E("changed")',
        "names of its attributes": 'os.listxattr(W["secret"]); E("read")',
        "names of its attributes, if it is a link": 'os.listxattr(W["secret"], follow_symlinks=False); E("read")',
        "flags of what it may read": "import fcntl\nb = bytearray(8); fd = os.open(os.__file__, 0); fcntl.ioctl(fd, 0x80086601, b)\n"
        'may("ioctl", fd, 0x40086602, bytes(b)); may("ioctl", fd, 0x40046602, bytes(b)); may("ioctl", fd, 0x401C5820, bytes(28))',
        "flags of a folder": "import fcntl\nb = bytearray(8); fd = os.open(os.path.dirname(os.__file__), 0); "
        'fcntl.ioctl(fd, 0x80086601, b); may("ioctl", fd, 0x40086602, bytes(b))',
        "versions and blocks of what it may read": 'fd = os.open(os.__file__, 0); may("ioctl", fd, 0x40087602, bytes(8)); '
        'may("ioctl", fd, 0x40086604, bytes(8)); may("ioctl", fd, 0x660C, 0)',
        "by a handle": 'h = (128).to_bytes(4, "little") + bytes(140); may("name_to_handle_at", -100, W["secret"], h, bytes(8), 0)',
        "watch the folder": 'fd = sc("inotify_init1", 0); may("inotify_add_watch", fd, W["state"], 0xfff)',
        "a device": 'os.mknod(W["own"] + "/disk", 0o60600, os.makedev(254, 0)); E("made")',
        "a larger file": "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        'n = 0\nwith open(W["own"] + "/large", "wb", 0) as f:\n'
        "    for _ in range(64): n += f.write(bytes(1 << 18))\nE(n) if n > 1 << 20 else None",
        "another root": 'may("chroot", W["own"]); may("mount", "none", W["own"], "tmpfs", 0, 0); '
        'may("mount", "/", W["own"], 0, 4096, 0)',
        "run what it wrote": 'p = W["own"] + "/x"\nwith open(p, "w") as f: f.write("#!/bin/sh\\n")\n'
        'os.execv(p, [p])\nE("ran")',
    },
    "environment": {
        "its own": "E(os.environ) if any('canary' in each for each in os.environ.values()) else print(dict(os.environ))",
        "its neighbour's": 'E(open(f"/proc/{W[\'neighbour\']}/environ").read())',
        "the gateway's": 'E(open(f"/proc/{W[\'gateway\']}/environ").read())',
        "its keeper's": 'E(open(f"/proc/{os.getppid()}/environ").read())',
    },
    "proc": {
        "its neighbour's, with its own open": 'E(open(f"/proc/{W[\'neighbour\']}/environ").read())',
        "roots": 'E(open(f"/proc/self/root{W[\'secret\']}").read())',
        "by its own folder": 'os.chdir(W["state"]); E(os.listdir("/proc/self/cwd"))',
        "descriptors": 'for fd in range(3, 200):\n    try: print(os.fstat(fd)); E(fd)\n    except OSError: pass',
    },
    "socket": {
        "tcp": 'socket.create_connection(("127.0.0.1", W["tcp"])); E("connected")',
        "udp": 'socket.socket(2, 2).sendto(b"x", ("127.0.0.1", W["udp"])); E("sent")',
        "unix": 'socket.socket(1, 1).connect(W["unix"]); E("connected")',
        "abstract": 'socket.socket(1, 1).connect(W["abstract"]); E("connected")',
        "a stream pair that connects": 'for kind in (1, 5):\n    a, b = socket.socketpair(1, kind)\n'
        '    for address in (bytes(16), W["unix"]):\n        try: a.connect(address); E("connected")\n        except OSError as e: print(e)',
        "kinds": 'for family in (1, 2, 10, 16, 17, 38, 40, 44):\n    for kind in (1, 2, 3, 5): may("socket", family, kind, 0)',
        "a datagram from a pair": 'a, b = socket.socketpair(1, 2); a.sendto(b"x", W["datagrams"]); E("sent")',
        "a pair that connects": 'a, b = socket.socketpair(1, 2); a.connect(W["datagrams"]); E("connected")',
        "listen": 's = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); E("listening")',
    },
    "ports": {
        "another port": 'socket.create_connection(("127.0.0.1", W["tcp"])); E("connected")',
        "fast open": 's = socket.socket(); s.sendto(b"x", 0x20000000, ("127.0.0.1", W["tcp"])); E("sent")',
        "fast open by message": 's = socket.socket(); s.sendmsg([b"x"], [], 0x20000000, ("127.0.0.1", W["tcp"])); E("sent")',
        "fast open by option": 's = socket.socket(); s.setsockopt(6, 30, 1); s.connect(("127.0.0.1", W["tcp"])); '
        's.send(b"x"); E("sent")',
        "multipath": 's = socket.socket(2, 1, 262); s.connect(("127.0.0.1", W["tcp"])); E("connected")',
        "udp": 'socket.socket(2, 2).sendto(b"x", ("127.0.0.1", W["udp"])); E("sent")',
        "other kinds": 'for kind in (2, 3, 5): may("socket", 2, kind, 0)\nfor family in (1, 16, 17, 38): may("socket", family, 2, 0)',
        "listen": 's = socket.socket(); s.bind(("127.0.0.1", 0)); E("bound")',
    },
    "net": {
        "unix": 'socket.socket(1, 1).connect(W["unix"]); E("connected")',
        "abstract": 'socket.socket(1, 2).connect(W["abstract"]); E("connected")',
        "packets": 'for family in (17, 38, 40, 44): may("socket", family, 3, 0)\nmay("socket", 2, 3, 1)',
    },
    "ptrace": {
        "attach": 'for pid in (W["neighbour"], W["gateway"], os.getppid()): may("ptrace", 16, pid, 0, 0)',
        "memory": 'b = buf(64); io = ctypes.addressof(b).to_bytes(8, "little") + (64).to_bytes(8, "little")\n'
        'for pid in (W["neighbour"], os.getppid()): may("process_vm_readv", pid, io, 1, io, 1, 0)',
        "descriptors": 'fd = sc("pidfd_open", W["neighbour"], 0); may("pidfd_getfd", fd, 0, 0)',
    },
    "signals": {
        "kill the neighbour": 'os.kill(W["neighbour"], 9); E("sent")',
        "stop the keeper": "os.kill(os.getppid(), signal.SIGSTOP); E('sent')",
        "by descriptor": 'fd = sc("pidfd_open", W["neighbour"], 0); may("pidfd_send_signal", fd, 9, 0, 0)',
        "by a pipe's owner": 'import fcntl; r, w = os.pipe(); fcntl.fcntl(r, 8, W["neighbour"]); E("owned")',
        "by a lease, for which who opens the file waits": "import fcntl\nfor path in (sys.executable, os.__file__):\n"
        '    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK); E("leased", path)',
        "by a lease on its own file": 'import fcntl; fd = os.open(W["own"] + "/lease", os.O_CREAT); '
        'fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK); E("leased")',
        "by a watched folder": 'import fcntl; fcntl.fcntl(os.open(W["own"], 0), fcntl.F_NOTIFY, 2); E("watched")',
        "everybody": "os.kill(-1, 18); print('it alone is there')",
    },
    "others' limits": {
        "cpu": 'resource.prlimit(W["neighbour"], resource.RLIMIT_CPU, (1, 1)); E("set")',
        "of the gateway": 'resource.prlimit(W["gateway"], resource.RLIMIT_NOFILE, (3, 3)); E("set")',
        "priority": 'os.setpriority(os.PRIO_PROCESS, W["neighbour"], 19); E("set")',
        "priority of the user": "os.setpriority(os.PRIO_USER, os.getuid(), 19); E('set')",
        "cores": 'os.sched_setaffinity(W["neighbour"], {0}); E("set")',
    },
    "limits": {
        "raise its own": "for each in (resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):\n"
        "    try: resource.setrlimit(each, (-1, -1)); E(each)\n    except (OSError, ValueError): pass",
        "memory": "a = []\ntry:\n    while len(a) < 1024: a.append(bytearray(1 << 20))\nexcept MemoryError: pass\n"
        "n = len(a); del a; E(n) if n > 256 else print(n)",
        "time": "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nt = time.monotonic()\n"
        "while time.process_time() < 6: pass\nE('six seconds')",
        "files": "a = []\ntry:\n    while len(a) < 500: a.append(os.open('/dev/null', 0))\nexcept OSError: pass\n"
        "E(len(a)) if len(a) > 64 else None",
        "processes": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor _ in range(40):\n    if not os.fork(): time.sleep(60); os._exit(0)\n"
        "time.sleep(15); E('forty processes')",
        "a bomb of forks": "for _ in range(3000):\n    try: os.fork()\n    except OSError: pass\ntime.sleep(15); E('a bomb')",
    },
    "kernel": {
        "namespaces": 'may("unshare", 0x10000000); may("unshare", 0x40000000); may("setns", 1, 0); may("clone", 0x10000011, 0, 0, 0, 0)',
        "io_uring": 'may("io_uring_setup", 8, bytes(120))',
        "bpf and others": 'may("bpf", 0, bytes(72), 72); may("userfaultfd", 1); may("perf_event_open", bytes(128), 0, -1, -1, 0)',
        "keys": 'may("add_key", "user", "x", "y", 1, -3); may("keyctl", 0, -3, 1)',
        "shared memory": 'may("shmget", 0, 4096, 0o1600); may("msgget", 0, 0o1600); may("mq_open", "q", 0o102, 0o600, 0)',
        "the terminal": 'import fcntl; fcntl.ioctl(0, 0x5412, b"x"); E("typed")',
        "machine's time and name": 'may("sethostname", "x", 1); may("settimeofday", bytes(16), 0); may("syslog", 10, 0, 0)',
        "x32": 'r = libc.syscall(ctypes.c_long(0x40000000 | 39)); print(r)\nif r >= 0: E("another convention")',
        "later calls": 'for number in (*range(453, 480), 600):\n'
        '    r = libc.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0)\n    if r >= 0: E(number)',
        "privileges": 'may("capset", (0x20080522).to_bytes(4, "little") + bytes(4), b"\\xff" * 24); may("prctl", 38, 0, 0, 0, 0)\n'
        "os.setuid(0) if os.getuid() else print()\nif os.getuid() == 0 and W['user']: E('root')",
        "a program with the set-user bit": "os.execv('/bin/su', ['su', '-c', 'echo ESCAPED'])",
    },
}  # fmt: skip

# How it outlives its end is looked at from outside: `test_boxes`.


def attempts() -> list[tuple[str, str]]:
    return [(f"{family}: {name}", code) for family, each in ATTEMPTS.items() for name, code in each.items()]
