"""Attempts of Python code to get out of its run, by family. Each is code that prints with `E` when the kernel let it do
what it may not; whatever it raises is a refusal.

With `broken`, the prelude gives back to the code all that the language layer hid: it takes `locks`, `ctypes`, `socket`
and `subprocess` out of the frames and modules around it, as an attacker would.
"""

# ruff: noqa: E501  a row of the table is a line

PRELUDE = '''
import sys, os, asyncio, json
W = data
def E(*what): print("ESC" + "APED", *what)
if W["broken"]:
    import asyncio.subprocess, asyncio.base_events
    frame = sys._getframe()
    while "locks" not in frame.f_locals: frame = frame.f_back
    locks = frame.f_locals["locks"]
    serving = frame
    while "gateway" not in serving.f_locals: serving = serving.f_back
    ctypes = locks.ctypes
    sys.modules.update(ctypes=ctypes, resource=locks.resource, locks=locks, socket=asyncio.base_events.socket,
        _socket=asyncio.base_events.socket._socket, subprocess=asyncio.subprocess.subprocess,
        _posixsubprocess=asyncio.subprocess.subprocess)
    libc = ctypes.CDLL(None, use_errno=True)
    print("BROKEN")
def c(each):
    return ctypes.c_long(each) if isinstance(each, int) else ctypes.c_char_p(each.encode()) if isinstance(each, str) else each
def sc(name, *args):
    """A system call; its result, or minus its error."""
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(W["nr"][name]), *map(c, args))
    return r if r >= 0 else -ctypes.get_errno()
def may(name, *args):
    """Whether the kernel lets it through to where it looks at the arguments."""
    r = sc(name, *args)
    print(name, r)
    if r >= 0: E(name, r)
    return r
def buf(n): return ctypes.create_string_buffer(n)
def sa_in(port): return b"\\x02\\x00" + port.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
def sa_un(path): return b"\\x01\\x00" + path.encode() + bytes(1)
'''

# A family, then its attempts by name.
ATTEMPTS: dict[str, dict[str, str]] = {
    "file": {
        "open": 'E(open(W["secret"]).read())',
        "os.open": 'E(os.read(os.open(W["secret"], os.O_RDONLY), 99))',
        "path only": 'E(os.open(W["secret"], os.O_PATH))',
        "write": 'open(W["state"] + "/x", "w").write("x"); E("wrote")',
        "list": 'E(os.listdir(W["state"]))',
        "scandir": 'E([each.name for each in os.scandir("/")])',
        "stat": 'E(os.stat(W["secret"]).st_size)',
        "exists": 'E() if os.path.exists(W["secret"]) else None',
        "readlink": 'E(os.readlink("/proc/self/exe"))',
        "make and remove": 'os.mkdir(W["state"] + "/d"); E("made")',
        "unlink": 'os.unlink(W["secret"]); E("removed")',
        "rename": 'os.rename(W["secret"], W["own"] + "/s"); E("moved")',
        "hard link": 'os.link(W["secret"], W["own"] + "/s"); E("linked")',
        "symlink": 'os.symlink(W["secret"], W["own"] + "/s"); E("linked")',
        "chmod": 'os.chmod(W["secret"], 0o777); E("changed")',
        "chown": 'os.chown(W["secret"], 65534, 65534); E("changed")',
        "utime": 'os.utime(W["secret"], (1, 1)); E("changed")',
        "truncate": 'os.truncate(W["secret"], 0); E("truncated")',
        "xattr": 'os.setxattr(W["secret"], "user.x", b"x"); E("changed")',
        "chdir": 'os.chdir("/proc/self"); E(os.getcwd())',
        "sqlite": 'import sqlite3; E(sqlite3.connect(W["own"] + "/db").execute("create table a(b)"))',
        "sqlite attach": 'import sqlite3; sqlite3.connect(":memory:").execute("attach ? as x", (W["secret"],)); '
        'E(sqlite3.connect("file:" + W["secret"] + "?immutable=1", uri=True).execute("select * from sqlite_master"))',
        "sqlite extension": "import sqlite3; db = sqlite3.connect(':memory:'); db.enable_load_extension(True); "
        "db.load_extension('/lib/x86_64-linux-gnu/libc.so.6'); E('loaded')",
        "linecache": 'import linecache; E() if linecache.getlines(W["secret"]) else None',
        "loader": 'import importlib.machinery as m; E(m.SourceFileLoader("s", W["secret"]).get_data(W["secret"]))',
        "zip import": 'import zipimport; E(zipimport.zipimporter(W["secret"]))',
        "tempfile": "import tempfile; E(tempfile.mkstemp())",
        "by raw calls": 'may("openat", -100, W["secret"], 0); may("open", W["secret"], 0); '
        'may("openat2", -100, W["secret"], bytes(24), 24); may("creat", W["state"] + "/y", 0o600)',
        "by handle": 'h = (8).to_bytes(4, "little") + bytes(140); '
        'may("name_to_handle_at", -100, W["secret"], h, bytes(8), 0); may("open_by_handle_at", 0, h, 0)',
        "a library": 'ctypes.CDLL("/lib/x86_64-linux-gnu/libutil.so.1"); E("loaded")',
        "raw changes": 'may("mkdirat", -100, W["state"] + "/q", 0o700); may("unlinkat", -100, W["secret"], 0); '
        'may("linkat", -100, W["secret"], -100, W["own"] + "/l", 0); may("symlinkat", "/", -100, W["own"] + "/m"); '
        'may("renameat2", -100, W["secret"], -100, W["own"] + "/n", 0); may("fchmodat", -100, W["secret"], 0o777)',
    },
    "environment": {
        "os.environ": "print(dict(os.environ)); E() if any('TOKEN' in each for each in os.environ) else None",
        "getenv": "for name in ('SECRET', 'HOME', 'PATH', 'USER'):\n    if os.getenv(name): E(os.getenv(name))",
        "proc": 'E(open("/proc/self/environ").read())',
        "own memory": 'start = ctypes.c_void_p.in_dll(libc, "environ").value\n'
        "print(ctypes.string_at(ctypes.cast(start, ctypes.POINTER(ctypes.c_char_p))[0], 3000))",
        "command line": "print(sys.argv, sys.orig_argv); E() if len(sys.argv) > 9 else None",
    },
    "fork": {
        "fork": "pid = os.fork(); E('forked', pid)",
        "forkpty": "pid, fd = os.forkpty(); E('forked')",
        "raw fork": 'may("fork")',
        "raw vfork": 'print(W["nr"].get("vfork")); may("clone", 0x4111, 0, 0, 0, 0)',
        "raw clone": 'may("clone", 17, 0, 0, 0, 0)',
        "clone3": 'may("clone3", (0).to_bytes(32, "little") + (17).to_bytes(8, "little") + bytes(48), 88)',
        "multiprocessing": "import multiprocessing; multiprocessing.Process(target=print).start(); E('started')",
        "parent's share": 'may("clone", 0x8000 | 17, 0, 0, 0, 0)',
    },
    "exec": {
        "execv": "os.execv('/bin/echo', ['echo', 'ESCAPED'])",
        "spawn": "os.posix_spawn('/bin/true', ['true'], {}); E('spawned')",
        "system": "E('ran') if os.system('true') == 0 else None",
        "popen": "E(os.popen('id').read() or 1/0)",
        "subprocess": "import subprocess; subprocess.run(['/bin/true']); E('ran')",
        "execveat": 'may("execveat", -100, "/bin/true", 0, 0, 0)',
        "memfd": 'fd = may("memfd_create", "x", 0)\nmay("execveat", fd, "", 0, 0, 0x1000)',
        "mprotect": 'a = sc("mmap", 0, 4096, 3, 0x22, -1, 0); print(a)\n'
        'may("mprotect", a, 4096, 5); may("mprotect", a, 4096, 7)',
        "raw mmap": 'may("mmap", 0, 4096, 7, 0x22, -1, 0)',
        "callback": "f = ctypes.CFUNCTYPE(None)(lambda: None); print(f)\nmay('mmap', 0, 4096, 5, 0x22, -1, 0)",
        "persona": 'may("personality", 0x0400000)',
        "growing stack": 'may("mprotect", id(W) & ~4095, 4096, 0x1000007)',
    },
    "socket": {
        "tcp": 'import socket; socket.create_connection(("127.0.0.1", W["tcp"])); E("connected")',
        "udp": 'import socket; socket.socket(2, 2).sendto(b"x", ("127.0.0.1", W["udp"])); E("sent")',
        "unix": 'import socket; socket.socket(1, 1).connect(W["unix"]); E("connected")',
        "abstract": 'import socket; socket.socket(1, 1).connect(W["abstract"]); E("connected")',
        "asyncio": 'await asyncio.open_connection("127.0.0.1", W["tcp"]); E("connected")',
        "server": 'import asyncio\ns = await asyncio.start_server(print, "127.0.0.1", 0); E("listening") if s.sockets else None',
        "urllib": 'import urllib.request; E(urllib.request.urlopen(f"http://127.0.0.1:{W[\'tcp\']}", timeout=2))',
        "http": 'import http.client; c = http.client.HTTPConnection("127.0.0.1", W["tcp"]); c.request("GET", "/"); E("sent")',
        "raw": 'for family in (2, 10, 1, 16, 17, 38, 40, 44):\n    for kind in (1, 2, 3, 5): may("socket", family, kind, 0)',
        "pair turned": 'a = (ctypes.c_int * 2)(); print(sc("socketpair", 1, 1, 0, a))\n'
        'may("connect", a[0], sa_un(W["unix"]), 110)\nmay("bind", a[0], sa_un(W["own"] + "/b"), 110)\nmay("listen", a[0], 1)',
        "datagram pair": 'a = (ctypes.c_int * 2)(); print(sc("socketpair", 1, 2, 0, a))\n'
        'p = sa_un(W["datagrams"]); may("sendto", a[0], "x", 1, 0, p, len(p))\nmay("sendmsg", a[0], bytes(56), 0)',
        "other pairs": 'may("socketpair", 2, 1, 0, (ctypes.c_int * 2)()); may("socketpair", 16, 2, 0, (ctypes.c_int * 2)())',
        "name look-up": 'import socket; E(socket.getaddrinfo("localhost", 80))',
    },
    "ptrace": {
        "trace me": 'may("ptrace", 0, 0, 0, 0)',
        "attach": 'for pid in (W["neighbour"], W["gateway"], os.getppid()): may("ptrace", 16, pid, 0, 0); '
        'may("ptrace", 0x4206, pid, 0, 0)',
        "read memory": 'b = buf(64); io = ctypes.addressof(b).to_bytes(8, "little") + (64).to_bytes(8, "little")\n'
        'for pid in (W["neighbour"], W["gateway"], os.getppid()): may("process_vm_readv", pid, io, 1, io, 1, 0)',
        "write memory": 'b = buf(64); io = ctypes.addressof(b).to_bytes(8, "little") + (64).to_bytes(8, "little")\n'
        'for pid in (W["neighbour"], os.getppid()): may("process_vm_writev", pid, io, 1, io, 1, 0)',
        "their descriptors": 'for pid in (W["neighbour"], os.getppid()):\n    may("pidfd_open", pid, 0); may("pidfd_getfd", 0, 1, 0)',
        "compare": 'may("kcmp", os.getpid(), os.getppid(), 0, 0, 0)',
    },
    "namespaces": {
        "user": 'may("unshare", 0x10000000)',
        "network": 'may("unshare", 0x40000000)',
        "clone with one": 'may("clone", 0x10000000 | 17, 0, 0, 0, 0)',
        "enter": 'may("setns", 0, 0)',
        "mount": 'may("mount", "none", "/tmp", "tmpfs", 0, 0); may("umount2", "/proc", 2)',
        "root": 'may("chroot", "/tmp"); may("pivot_root", "/", "/")',
        "new mounts": 'may("fsopen", "tmpfs", 0); may("open_tree", -100, "/", 1); may("move_mount", -100, "/", -100, "/tmp", 0)',
    },
    "kernel": {
        "io_uring": 'may("io_uring_setup", 8, bytes(120)); may("io_uring_enter", 0, 1, 0, 0, 0, 0)',
        "bpf": 'may("bpf", 0, bytes(72), 72); may("bpf", 5, bytes(128), 128)',
        "userfaultfd": 'may("userfaultfd", 0); may("userfaultfd", 1)',
        "perf": 'may("perf_event_open", bytes(128), 0, -1, -1, 0)',
        "keys": 'may("add_key", "user", "x", "y", 1, -3); may("keyctl", 0, -3, 1); may("request_key", "user", "x", 0, -3)',
        "modules": 'may("init_module", "", 0, ""); may("finit_module", 0, "", 0); may("kexec_load", 0, 0, 0, 0)',
        "later calls": 'for number in (*range(453, 480), 600, 5000):\n'
        '    r = libc.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0)\n    if r >= 0: E(number)',
        "x32": 'r = libc.syscall(ctypes.c_long(0x40000000 | 39)); print(r)\nif r >= 0: E("another convention")',
        "landlock again": 'may("landlock_create_ruleset", bytes(24), 24, 0); may("landlock_restrict_self", 0, 0)',
        "filter again": 'may("seccomp", 1, 0, bytes(16)); may("prctl", 22, 1, 0, 0, 0)',
    },
    "threads": {
        "thread": "import threading; t = threading.Thread(target=lambda: E('a thread')); t.start(); t.join()",
        "low": "import _thread, time; _thread.start_new_thread(lambda: E('a thread'), ()); time.sleep(0.1)",
        "pool": "from concurrent.futures import ThreadPoolExecutor as P\nwith P() as p: E(list(p.map(abs, [1])))",
        "to_thread": "await asyncio.to_thread(lambda: E('a thread'))",
        "raw": 'may("clone", 0x3d0f00, 0, 0, 0, 0)',
    },
    "limits": {
        "raise": "import resource as r\nfor each in range(16):\n    try: r.setrlimit(each, (-1, -1)); E(each)\n"
        "    except (ValueError, OSError): pass",
        "prlimit of self": 'for each in (0, 2, 7, 9): may("prlimit64", 0, each, (1 << 60).to_bytes(8, "little") * 2, 0)',
        "prlimit of others": 'for pid in (W["neighbour"], W["gateway"], os.getppid()): '
        'may("prlimit64", pid, 0, (1).to_bytes(8, "little") * 2, 0); may("prlimit64", pid, 7, 0, buf(16))',
        "priority": 'os.setpriority(0, W["neighbour"], 19); E("set")',
        "own priority": "os.nice(-5); E('raised')",
        "cores": 'os.sched_setaffinity(W["neighbour"], {0}); E("set")',
        "capabilities": 'may("capset", (0x20080522).to_bytes(4, "little") + bytes(4), b"\\xff" * 24)',
        "user": 'may("setuid", 0); may("setresuid", 0, 0, 0); may("prctl", 8, 1, 0, 0, 0)',
        "dumpable": 'may("prctl", 4, 1, 0, 0, 0); may("prctl", 38, 0, 0, 0, 0)',
    },
    "signals": {
        "stop the zygote": "import signal; os.kill(os.getppid(), signal.SIGSTOP); E('sent')",
        "kill the neighbour": 'os.kill(W["neighbour"], 9); E("sent")',
        "everybody": "os.kill(-1, 9); E('sent')",
        "a group": "os.killpg(os.getpgid(os.getppid()), 9); E('sent')",
        "existence": 'os.kill(W["gateway"], 0); E("seen")',
        "raw": 'for pid in (W["neighbour"], os.getppid()): may("tgkill", pid, pid, 19); may("tkill", pid, 19); '
        'may("rt_sigqueueinfo", pid, 19, bytes(128))',
        "by descriptor": 'may("pidfd_open", W["neighbour"], 0); may("pidfd_send_signal", 0, 9, 0, 0)',
        "by a pipe's owner": 'import fcntl; r, w = os.pipe(); fcntl.fcntl(r, 8, W["neighbour"]); E("owned")',
        "by a timer": 'may("timer_create", 0, bytes(8) + (9).to_bytes(4, "little") + (4).to_bytes(4, "little") + '
        'os.getppid().to_bytes(4, "little") + bytes(44), buf(8))',
        "session": "os.setsid(); E('left')",
    },
    "proc": {
        "environ": 'for pid in (W["neighbour"], W["gateway"], os.getppid(), 1, "self"):\n'
        '    for name in ("environ", "maps", "cmdline", "mem", "status"):\n'
        "        try: E(open(f'/proc/{pid}/{name}', 'rb').read(100))\n        except OSError: pass",
        "descriptors": 'E(os.listdir(f"/proc/{os.getppid()}/fd"))',
        "root": 'E(open(f"/proc/{W[\'neighbour\']}/root/etc/passwd").read())',
        "own memory": 'E(os.open("/proc/self/mem", os.O_RDWR))',
        "system": 'E(open("/proc/sys/kernel/hostname").read(), os.listdir("/sys"))',
    },
    "shared memory": {
        "system v": 'may("shmget", 0, 4096, 0o1600); may("shmat", 0, 0, 0); may("msgget", 0, 0o1600); may("semget", 0, 1, 0o1600)',
        "posix": "from multiprocessing import shared_memory as s; s.SharedMemory('toolgate-x', True, 100); E('made')",
        "queues": 'may("mq_open", "toolgate-x", 0o102, 0o600, 0)',
        "secret": 'may("memfd_secret", 0); may("memfd_create", "y", 2)',
    },
    "descriptors": {
        "what is open": "import fcntl, stat\nfor fd in range(4096):\n    try: fcntl.fcntl(fd, 1)\n    except OSError: continue\n"
        "    print(fd, sc('getsockname', fd, buf(128), (128).to_bytes(4, 'little')))\n"
        "    if fd > 2 or sc('getsockname', fd, buf(128), (128).to_bytes(4, 'little')) >= 0: E(fd)",
        "the zygote's socket": 'gateway = serving.f_locals["gateway"]; print(gateway.fileno()); gateway.send(b"+"); E("sent")',
        "other runs": 'for run in serving.f_locals["runs"].values(): run.control.send(b"exited 0\\n"); E("sent")',
        "given over": 'import socket, array; a, b = socket.socketpair()\n'
        'b.sendmsg([b"x"], [(1, 1, array.array("i", [1]))]); E("sent")',
        "more than it may": "fds = []\ntry:\n    while len(fds) < 2000: fds += os.pipe()\nexcept OSError as e: print(len(fds), e)\n"
        "if len(fds) > 64: E(len(fds))",
        "the null device": 'os.write(2, b"x"); os.ftruncate(2, 0); os.fchmod(2, 0); E("changed a device")',
    },
    "bridge": {
        "memory around": "import gc\nfound = [each for each in gc.get_objects() if isinstance(each, (str, bytes))]\n"
        "for each in gc.get_objects():\n    if isinstance(each, dict):\n        for v in list(each.values()):\n"
        "            if isinstance(v, str) and v.startswith(W['canary']) and len(v) > len(W['canary']): E(v)",
        "frames around": "f = sys._getframe()\nwhile f:\n    for v in list(f.f_locals.values()):\n"
        "        if isinstance(v, (str, bytes)) and len(v) < 10**6: print(repr(v).replace('ESCAPED', ''))\n    f = f.f_back",
        "another's answer": 'b = servers._bridge; b._answers[1] = {"value": 1}; print(b.answer(1))\n'
        'b.say({"answer": 1, "value": 2})',
        "forged lines": 'os.write(1, b\'{"started": 1}\\n{"call": 1, "server": "no", "tool": "x", "arguments": {}}\\n\'); '
        'os.write(1, b"exited 0\\n")',
        "no more control": "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nprint('deaf')",
    },
    "modules": {
        "another box": 'box = dict(serving.f_locals["box"]); box.update(files=[(0xffff, b"/")], filter=b"", lenient=True, '
        'capabilities=-1 & ((1 << 64) - 1))\nlocks.put_on(box); E(open(W["secret"]).read())',
        "path finder": "import importlib.machinery as m; sys.meta_path.insert(0, m.PathFinder); sys.path.append(W['own'])\n"
        "import wave; E('imported')",
        "built in": "import _imp\nfor name in sys.builtin_module_names:\n    try: __import__(name)\n    except Exception: pass\n"
        "import posix; E(posix.open(W['secret'], 0))",
        "reload": "import importlib\nfor name in ('os', 'io', 'ctypes'):\n    try: importlib.reload(sys.modules[name]); print(name)\n"
        "    except Exception as e: print(e)\nimport os; E(os.open(W['secret'], 0))",
        "dynamic": "import _imp; E(_imp.create_dynamic(type('S', (), dict(name='x', origin=W['secret']))()))",
        "code of the zygote": "serving.f_globals['begin']([0, 1, 2], {}, 2, {}, None, None); E('forked')",
        "pickle": "import pickle; pickle.loads(b\"cos\\nsystem\\n(S'echo ESCAPED'\\ntR.\"); pickle.loads(b\"cposix\\nfork\\n(tR.\"); E()",
        "breakpoint": "breakpoint(); E()",
        "audit hook": "sys.addaudithook(lambda *a: None); sys.settrace(lambda *a: None); open(W['secret']); E('opened')",
    },
}  # fmt: skip


def attempts() -> list[tuple[str, str]]:
    return [(f"{family}: {name}", code) for family, each in ATTEMPTS.items() for name, code in each.items()]
