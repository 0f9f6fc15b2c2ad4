"""Attempts by JavaScript that has got out of everything but the kernel's box: it runs in Deno's own realm, with all of
Deno's permissions, and makes any system call it likes by way of the C library.

Each attempt is code that prints with `E` when the kernel let it do what it may not; whatever it throws is a refusal.
"""

# ruff: noqa: E501  a row of the table is a line

from __future__ import annotations

import json
from typing import Any

PRELUDE = r"""
const E = (...what) => console.log("ESC" + "APED", ...what);
const long = { parameters: Array(7).fill("i64"), result: "i64" };
const libc = Deno.dlopen("libc.so.6", { syscall: long, __errno_location: { parameters: [], result: "pointer" } }).symbols;
const kept = [];
const at = (bytes) => (kept.push(bytes), Deno.UnsafePointer.value(Deno.UnsafePointer.of(bytes)));
const text = (value) => at(new TextEncoder().encode(value + "\0"));
const zeros = (size) => at(new Uint8Array(size));
const numbers = (...values) => at(new BigUint64Array(values.map(BigInt)));
const c = (each) => (typeof each === "string" ? text(each) : BigInt(each));
function sc(name, ...args) {
  const all = [W.nr[name], ...args.map(c)];
  while (all.length < 7) all.push(0n);
  const r = Number(libc.syscall(...all.map(BigInt)));
  return r >= 0 ? r : -new Deno.UnsafePointerView(libc.__errno_location()).getInt32();
}
function may(name, ...args) {
  if (W.nr[name] === undefined) return -38;
  const r = sc(name, ...args);
  console.log(name, r);
  if (r >= 0) E(name, r);
  return r;
}
async function each(...acts) {
  for (const act of acts) try { await act(); } catch (e) { console.log(String(e)); }
}
const inet = (port) => at(new Uint8Array([2, 0, port >> 8, port & 255, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
const parent = Deno.ppid;
console.log("INSIDE");
"""

ATTEMPTS: dict[str, dict[str, str]] = {
    "file": {
        "read the state folder": "await each(() => E(Deno.readTextFileSync(W.secret)), async () => E(await Deno.readTextFile(W.secret)))",
        "list": "await each(() => E([...Deno.readDirSync(W.state)].length), () => E([...Deno.readDirSync('/')].length))",
        "home and keys": "await each(...['/root/.ssh/id_rsa', '/root/.ssh/id_ed25519', '/home', '/root', '/etc/passwd', '/etc/shadow']"
        ".map((path) => () => E(path, Deno.statSync(path).isFile ? Deno.readTextFileSync(path).length : [...Deno.readDirSync(path)].length)))",
        "by raw calls": "may('openat', -100, W.secret, 0); may('open', W.secret, 0); may('openat2', -100, W.secret, zeros(24), 24); "
        "may('creat', W.state + '/y', 0o600); may('openat', -100, W.own + '/new', 0o101, 0o600)",
        "as a module": "await each(async () => E(await import('file://' + W.secret, { with: { type: 'text' } })), async () => E(await import('file:///etc/hostname')))",
        "as a worker": "await new Promise((done) => { const w = new Worker('file://' + W.secret, { type: 'module' }); w.onerror = (e) => { e.preventDefault(); done() }; setTimeout(done, 500) })",
        "as a library": "await each(() => Deno.dlopen(W.secret, {}), () => E(Deno.dlopen(W.own + '/x.so', {})))",
        "with node": "const fs = await import('node:fs'); await each(() => E(fs.readFileSync(W.secret, 'utf8')), () => E(fs.openSync(W.state, 'r')))",
    },
    "write": {
        "a file": "await each(() => E(Deno.writeTextFileSync(W.own + '/a', 'x')), () => E(Deno.writeTextFileSync(W.secret, 'x', { append: true })))",
        "a temporary file": "await each(() => E(Deno.makeTempFileSync()), () => E(Deno.makeTempDirSync({ dir: W.own })))",
        "change": "await each(() => E(Deno.mkdirSync(W.state + '/d')), () => E(Deno.removeSync(W.secret)), () => E(Deno.renameSync(W.secret, W.own + '/b')), "
        "() => E(Deno.chmodSync(W.secret, 0o777)), () => E(Deno.chownSync(W.secret, 1, 1)), () => E(Deno.truncateSync(W.secret, 0)), () => E(Deno.utimeSync(W.secret, 1, 1)))",
        "links": "await each(() => E(Deno.symlinkSync(W.secret, W.own + '/l')), () => E(Deno.linkSync(W.secret, W.own + '/m')))",
        "raw changes": "may('mkdirat', -100, W.state + '/q', 0o700); may('unlinkat', -100, W.secret, 0); may('renameat2', -100, W.secret, -100, W.own + '/n', 0); may('fchmodat', -100, W.secret, 0o777)",
        "storage": "await each(() => { localStorage.setItem('a', 'b'); E('stored') }, async () => E(await caches.open('x')), async () => E(await Deno.openKv(W.own + '/kv')))",
        "the null device": "may('ftruncate', 1, 0); may('fchmod', 0, 0)",
    },
    "environment": {
        "Deno.env": "const all = Deno.env.toObject(); console.log(all); if (Object.keys(all).some((name) => name.includes('TOKEN') || name === 'PATH')) E('the environment')",
        "proc": "await each(...['self', parent, W.gateway, W.neighbour, 1].flatMap((pid) => ['environ', 'cmdline', 'mem', 'status'].map((name) => () => E(Deno.readTextFileSync(`/proc/${pid}/${name}`).length))))",
        "maps of others": "await each(...[parent, W.gateway, W.neighbour, 1].map((pid) => () => E(Deno.readTextFileSync(`/proc/${pid}/maps`).length)))",
        "what the system says": "await each(() => E(Deno.networkInterfaces().length), () => E(Deno.readTextFileSync('/proc/sys/kernel/random/boot_id')), () => E([...Deno.readDirSync('/proc')].length))",
    },
    "connect": {
        "tcp": "await each(async () => E(await Deno.connect({ hostname: '127.0.0.1', port: W.tcp })), async () => E(await fetch(`http://127.0.0.1:${W.tcp}`)))",
        "udp": "await each(async () => E(await Deno.listenDatagram({ port: 0, transport: 'udp', hostname: '127.0.0.1' })))\nmay('socket', 2, 2, 0)",
        "unix": "await each(async () => E(await Deno.connect({ transport: 'unix', path: W.unix })))\nmay('socket', 1, 1, 0)",
        "abstract": "const net = await import('node:net'); await new Promise((done) => net.connect(W.abstract).on('error', done).on('connect', () => { E('connected'); done() }))",
        "listen": "await each(() => E(Deno.listen({ port: 0, hostname: '127.0.0.1' })), () => E(Deno.serve({ port: 0 }, () => 1)))",
        "raw": "for (const family of [2, 10, 1, 16, 17, 38, 40, 44]) for (const kind of [1, 2, 3, 5]) may('socket', family, kind, 0)",
        "stdio turned": "for (const fd of [0, 1, 2]) { may('connect', fd, inet(W.tcp), 16); may('bind', fd, inet(0), 16); may('listen', fd, 1); may('sendto', fd, 'x', 1, 0, inet(W.udp), 16) }",
        "a pair turned": "const a = zeros(8); console.log(sc('socketpair', 1, 1, 0, a)); may('connect', 3, inet(W.tcp), 16); may('socketpair', 1, 2, 0, a); may('socketpair', 2, 1, 0, a)",
        "a name looked up": "await each(async () => E(await Deno.resolveDns('localhost', 'A')), async () => E(await (await import('node:dns/promises')).lookup('localhost')))",
        "a web socket": "await new Promise((done) => { const s = new WebSocket(`ws://127.0.0.1:${W.tcp}`); s.onerror = done; s.onopen = () => { E('open'); done() } })",
    },
    "exec": {
        "Deno.Command": "await each(() => E(new Deno.Command('/bin/true').outputSync()), async () => E(await new Deno.Command(Deno.execPath()).output()))",
        "node": "const p = await import('node:child_process'); await each(() => E(p.execSync('id')), () => { const r = p.spawnSync('/bin/true'); if (r.status === 0) E('ran') })",
        "a file without a name": "const fd = may('memfd_create', 'x', 0); may('execveat', fd, '', 0, 0, 0x1000); may('memfd_secret', 0)",
        "another program": "const argv = numbers(0); may('execve', '/bin/true', argv, argv); may('execve', '/bin/sh', argv, argv); may('execveat', -100, '/bin/true', argv, argv, 0)",
    },
    "processes": {
        "fork": "may('fork'); may('vfork'); may('clone', 17, 0, 0, 0, 0); may('clone', 0x4111, 0, 0, 0, 0)",
        "clone3": "may('clone3', numbers(0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)",
        "a fork bomb": "for (let n = 0; n < 200; n++) for (const name of ['fork', 'vfork']) if (W.nr[name] !== undefined && sc(name) > 0) E(name)",
        "trace": "for (const pid of [W.neighbour, W.gateway, parent]) { may('ptrace', 16, pid, 0, 0); may('ptrace', 0x4206, pid, 0, 0) }\nmay('ptrace', 0, 0, 0, 0)",
        "memory of others": "const io = numbers(Number(zeros(64)), 64); for (const pid of [W.neighbour, W.gateway, parent]) { may('process_vm_readv', pid, io, 1, io, 1, 0); may('process_vm_writev', pid, io, 1, io, 1, 0) }",
        "kill others": "await each(...[W.neighbour, W.gateway, parent, -1].map((pid) => () => E(Deno.kill(pid, 'SIGSTOP'))))\n"
        "for (const pid of [W.neighbour, W.gateway, parent, 0, -1]) { may('kill', pid, 0); may('tgkill', pid, pid, 19); may('tkill', pid, 19) }",
        "by descriptor": "may('pidfd_open', W.neighbour, 0); may('pidfd_send_signal', 0, 9, 0, 0); may('pidfd_getfd', 0, 1, 0)",
        "a pipe's owner": "for (const fd of [0, 1, 2]) may('fcntl', fd, 8, W.neighbour)",
        "survive the end": "for (let n = 1; n < 32; n++) try { Deno.addSignalListener('SIG' + ['HUP', 'INT', 'TERM', 'USR1', 'ALRM'][n % 5], () => 1) } catch (e) { console.log(String(e)) }\n"
        "may('setsid'); may('setpgid', 0, 0); may('fork'); for (;;) await new Promise((done) => setTimeout(done, 100))",
        "priorities and cores": "may('setpriority', 0, W.neighbour, 19); may('setpriority', 0, 0, -5); may('sched_setaffinity', W.neighbour, 8, numbers(1)); may('sched_setaffinity', 0, 8, numbers(1))",
        "limits": "for (let n = 0; n < 16; n++) may('prlimit64', 0, n, numbers(2 ** 40, 2 ** 40), 0)\nmay('prlimit64', W.neighbour, 7, 0, zeros(16)); may('setrlimit', 7, numbers(2 ** 40, 2 ** 40))",
    },
    "kernel": {
        "io_uring": "may('io_uring_setup', 8, zeros(120)); may('io_uring_enter', 0, 1, 0, 0, 0, 0); may('io_uring_register', 0, 0, 0, 0)",
        "bpf": "may('bpf', 0, zeros(72), 72); may('bpf', 5, zeros(128), 128)",
        "perf and userfaultfd": "may('perf_event_open', zeros(128), 0, -1, -1, 0); may('userfaultfd', 0); may('userfaultfd', 1)",
        "keys": "may('add_key', 'user', 'x', 'y', 1, -3); may('keyctl', 0, -3, 1); may('request_key', 'user', 'x', 0, -3)",
        "mounts": "may('mount', 'none', '/tmp', 'tmpfs', 0, 0); may('umount2', '/proc', 2); may('chroot', '/tmp'); may('fsopen', 'tmpfs', 0); may('open_tree', -100, '/', 1); may('pivot_root', '/', '/')",
        "namespaces": "may('unshare', 0x10000000); may('unshare', 0x40000000); may('setns', 0, 0); may('clone', 0x10000000 | 17, 0, 0, 0, 0); may('clone', 0x50000f00, 0, 0, 0, 0)",
        "modules": "may('init_module', '', 0, ''); may('finit_module', 0, '', 0); may('kexec_load', 0, 0, 0, 0); may('reboot', 0, 0, 0)",
        "other numbers": "for (const n of [...Array(30).keys()].map((n) => n + 453).concat(600, 5000)) { const r = Number(libc.syscall(BigInt(n), 0n, 0n, 0n, 0n, 0n, 0n)); if (r >= 0) E(n) }",
        "another convention": "const r = Number(libc.syscall(0x40000027n, 0n, 0n, 0n, 0n, 0n, 0n)); console.log(r); if (r >= 0) E('x32')",
        "filters again": "may('landlock_create_ruleset', numbers(1, 0, 0), 8, 0); may('seccomp', 1, 0, zeros(16)); may('prctl', 22, 1, 0, 0, 0); may('prctl', 38, 0, 0, 0, 0); may('prctl', 4, 1, 0, 0, 0)",
        "users and capabilities": "may('setuid', 0); may('setresuid', 0, 0, 0); may('capset', numbers(0x20080522), zeros(24)); may('personality', 0x400000)",
        "shared memory": "may('shmget', 0, 4096, 0o1600); may('msgget', 0, 0o1600); may('semget', 0, 1, 0o1600); may('mq_open', 'toolgate-x', 0o102, 0o600, 0)",
    },
}  # fmt: skip


def attempts() -> list[tuple[str, str]]:
    return [(f"{family}: {name}", code) for family, each in ATTEMPTS.items() for name, code in each.items()]


def whole(code: str, told: dict[str, Any]) -> str:
    return f"const W = {json.dumps(told)};\n{PRELUDE}\n{code}\nDeno.exit(0);\n"
