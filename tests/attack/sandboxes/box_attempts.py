"""Attempts of a server whose box the configuration has put on: to reach the gateway, its neighbours and the system.

They are made beside those of `server_attempts`, through a gateway, by `children/doing.py`. `BOXES` are the boxes of the
servers that make them; a family runs in the box that it is to get past.
"""

# ruff: noqa: E501  a row of the table is a line

from __future__ import annotations

from typing import Any

from attack.sandboxes import server_attempts

LIMITS: dict[str, Any] = {"memory": "256MiB", "cpu": 2, "processes": 8}
BOXES: dict[str, dict[str, Any]] = {
    "hostile": {**LIMITS},
    "ports": {**LIMITS, "net": [1]},
    "net": {**LIMITS, "net": True},
    "sockets": {**LIMITS, "sockets": True},
}

# Limits that a configuration has no key for; and calls that say here that they have done what they have not.
_NOT_HERE = (
    *("file: a larger file", "limits: files", "limits: raise its own"),
    *("file: open its mode", "file: its mode by descriptor", "file: its owner", "file: its time"),
)

# Whether these have done anything is seen from outside (`World.harm`).
_MODES = """
for change in (
    lambda p: os.chmod(p, 0o777), lambda p: os.chown(p, 1000, 1000), lambda p: os.utime(p, (1, 1)),
    lambda p: os.chmod(f"/proc/self/fd/{os.open(p, os.O_PATH)}", 0o4777),
    lambda p: os.setxattr(p, "user.x", b"x"), lambda p: os.utime(p),
    lambda p: sc("fchmodat2", -100, p, 0o777, 0), lambda p: os.chown(p, 1000, 1000, follow_symlinks=False),
):
    for place in (W["secret"], W["state"], W["gate"], *W["files"], W["temporary"]):
        try: print(change(place))
        except OSError as e: print(e)
"""

ATTEMPTS: dict[str, dict[str, str]] = {
    "modes": {"modes, owners and times": _MODES},
    "gateway": {
        "its port": 'socket.create_connection(("127.0.0.1", W["http"])); E("connected")',
        "its operator's socket": 's = socket.socket(1, 1); s.connect(W["operator"]); E("connected")',
        "its operator's socket by a pair": 'a, b = socket.socketpair(1, 1); a.connect(W["operator"]); E("connected")',
        "its state": 'E(os.listdir(W["gate"]))',
        "its files": 'for each in W["files"]:\n    try: E(open(each, "rb").read(1))\n    except OSError as e: print(e)',
        "write its files": 'for each in W["files"]:\n    try: open(each, "ab").write(b"x"); E(each)\n    except OSError as e: print(e)',
        "a file of its own in its state": 'open(W["gate"] + "/servers.json", "w").write("{}"); E("wrote")',
        "what lies beside its own folder": 'E(os.listdir(os.path.dirname(W["own"])))',
        "a folder beside its own": 'os.mkdir(os.path.dirname(W["own"]) + "/new"); E("made")',
        "its own folder renamed": 'os.rename(W["own"], W["own"] + "-old"); E("renamed")',
        "a neighbour's folder": 'E(open(W["other"] + "/kept").read())',
        "write to a neighbour's folder": 'open(W["other"] + "/kept", "a").write("x"); E("wrote")',
        "its environment and memory": 'for name in ("environ", "mem", "maps", "auxv", "cmdline", "status", "stat"):\n'
        '    try: E(open(f"/proc/{W[\'gateway\']}/{name}", "rb").read(1))\n    except OSError as e: print(e)',
        "its descriptors": 'E(os.listdir(f"/proc/{W[\'gateway\']}/fd"))',
        "by its root": 'E(os.listdir(f"/proc/{W[\'gateway\']}/root/tmp"))',
        "by its folder": 'E(os.listdir(f"/proc/{W[\'gateway\']}/cwd"))',
        "its neighbour's command line": 'E(open(f"/proc/{W[\'neighbour\']}/cmdline").read())',
        "all processes": 'E(os.listdir("/proc"))',
        "its threads": 'E(os.listdir(f"/proc/{W[\'gateway\']}/task"))',
    },
    "sockets": {
        "the operator's": 's = socket.socket(1, 1); s.connect(W["operator"])\n'
        's.sendall(b"GET /admin/servers HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n"); d = s.recv(99); E(d) if d else print("closed")',
        "the operator's, by a child that is gone": 's = socket.socket(1, 1)\nif not os.fork():\n    s.connect(W["operator"]); os._exit(0)\n'
        'os.wait(); s.sendall(b"GET /admin/servers HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n"); d = s.recv(99); E(d) if d else print("closed")',
        "tcp": 'socket.create_connection(("127.0.0.1", W["http"])); E("connected")',
        "abstract ones of others": 'socket.socket(1, 1).connect(W["abstract"]); E("connected")',
        "descriptors of others": 'a, b = socket.socketpair(1, 2); print(a)',
    },
    "shared": {
        "temporary files of others": 'E(os.listdir("/tmp")); E(open(W["temporary"]).read())',
        "a temporary file of another": 'E(open(W["temporary"]).read())',
        "a file in /tmp": 'open("/tmp/of-a-hostile-server", "w").close(); E("made")',
        "a file in /var/tmp": 'open("/var/tmp/of-a-hostile-server", "w").close(); E("made")',
        "shared memory by name": 'open("/dev/shm/of-a-hostile-server", "w").close(); E("made")',
        "shared memory of others": 'E(os.listdir("/dev/shm"))',
        "a semaphore by name": 'r = libc.sem_open(b"/of-a-hostile-server", 64, 0o600, 1); E(r) if r else print("no")',
        "the user's home": 'E(os.listdir(W["home"]))',
        "the user's keys": 'E(open(W["home"] + "/.ssh/id").read())',
        "what a shell starts": 'open(W["home"] + "/.profile", "a").write("x"); E("wrote")',
        "what the system starts": 'for each in ("/etc/cron.d/x", "/etc/profile.d/x.sh", "/var/spool/cron/x", "/etc/ld.so.preload"):\n'
        '    try: open(each, "a").close(); E(each)\n    except OSError as e: print(e)',
        "what runs": 'E(os.listdir("/run"))',
        "its temporary folder made a link": 'import shutil; shutil.rmtree(W["own"] + "/tmp"); os.symlink(W["state"], W["own"] + "/tmp"); print("made")',
        "its temporary folder led elsewhere": 'there = os.path.realpath(os.environ["TMPDIR"]); open(there + "/new", "w").write("x")\n'
        'print("its own, made anew") if there == W["own"] + "/tmp" else E(there)',
        "swapped with its own": 'open(W["own"] + "/swap", "w").close(); may("renameat2", -100, W["own"] + "/swap", -100, W["secret"], 2)',
        "a pipe by name outside": 'os.mkfifo(W["state"] + "/pipe"); E("made")',
        "a root that is a link": 'os.symlink("/", W["own"] + "/root"); E(os.listdir(W["own"] + "/root" + W["state"]))',
        "passwords": 'for each in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers"):\n    try: E(open(each).read(1))\n    except OSError as e: print(e)',
    },
    "programs": {
        "a program without a file": 'fd = sc("memfd_create", "x", 0); print(fd)\nif fd >= 0:\n'
        '    os.write(fd, open("/bin/true", "rb").read()); os.execv(f"/proc/self/fd/{fd}", ["x"])',
        "memory that only it sees": 'may("memfd_create", "x", 0); may("memfd_create", "x", 8); may("memfd_secret", 0)',
        "a program by its descriptor": 'fd = os.open("/bin/true", os.O_RDONLY); may("execveat", fd, "", 0, 0, 0x1000)',
        "a program in its own folder": 'import shutil; shutil.copy("/bin/true", W["own"] + "/run"); os.execv(W["own"] + "/run", ["x"])',
        "a set-user bit of its own": 'import shutil; shutil.copy("/bin/true", W["own"] + "/su"); os.chmod(W["own"] + "/su", 0o4755)\n'
        'E("made") if os.stat(W["own"] + "/su").st_mode & 0o7000 else print("not made")',
    },
    "devices": {
        "memory and others": 'for each in ("mem", "kmem", "port", "kmsg", "fuse", "kvm", "ptmx", "tty", "net/tun", "loop-control", "vda", "sda"):\n'
        '    try: os.open("/dev/" + each, os.O_RDWR); E(each)\n    except OSError as e: print(e)',
        "settings of the kernel": 'for each in ("kernel/hostname", "kernel/core_pattern", "vm/drop_caches", "net/ipv4/ip_forward"):\n'
        '    try: os.open("/proc/sys/" + each, os.O_WRONLY); E(each)\n    except OSError as e: print(e)',
        "the whole system": 'for each in ("/proc/sysrq-trigger", "/sys/power/state", "/sys/kernel/debug", "/sys/fs/cgroup/cgroup.procs", "/proc/self/oom_score_adj"):\n'
        '    try: os.open(each, os.O_WRONLY); E(each)\n    except OSError as e: print(e)',
        "its own processes' group": 'open("/sys/fs/cgroup/new", "w"); E("made")',
    },
    "box": {
        "take it off": 'may("prctl", 22, 0, 0, 0, 0); may("prctl", 21, 0, 0, 0, 0) if sc("prctl", 21, 0, 0, 0, 0) != 2 else print("it has a filter")',
        "a box that allows more": 'a = (1 << 13) - 1; fd = sc("landlock_create_ruleset", a.to_bytes(8, "little"), 8, 0)\n'
        'p = os.open("/", os.O_PATH); sc("landlock_add_rule", fd, 1, a.to_bytes(8, "little") + p.to_bytes(4, "little"), 0)\n'
        'sc("landlock_restrict_self", fd, 0); E(os.listdir(W["state"]))',
        "by a thread": 'import threading\ndef look():\n    try: E(os.listdir(W["state"]))\n    except OSError as e: print(e)\n'
        't = threading.Thread(target=look); t.start(); t.join()',
        "by a child": 'import subprocess; print(subprocess.run(["/bin/sh", "-c", "cat " + W["secret"]], capture_output=True))',
        "by a child in a session of its own": 'r, w = os.pipe(); pid = os.fork()\nif not pid:\n    os.setsid()\n'
        '    try: os.write(w, open(W["secret"], "rb").read())\n    except OSError: pass\n    os._exit(0)\n'
        'os.waitpid(pid, 0); os.close(w); print(os.read(r, 100))',
        "more memory than it may have": 'try: resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)); E("raised")\nexcept (OSError, ValueError): print("no")',
        "more time than it may have": 'try: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1)); E("raised")\nexcept (OSError, ValueError): print("no")',
    },
}  # fmt: skip


def attempts() -> list[tuple[str, str]]:
    own = [(f"{family}: {name}", code) for family, each in ATTEMPTS.items() for name, code in each.items()]
    return [*own, *(each for each in server_attempts.attempts() if each[0] not in _NOT_HERE)]


def server_of(name: str) -> str:
    """In whose box it is made."""
    family = name.partition(":")[0]
    return family if family in BOXES else "hostile"
