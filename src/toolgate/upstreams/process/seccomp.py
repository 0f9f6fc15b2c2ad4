"""Which system calls a process may make: profiles as tables, and a small assembler that makes filters of them.

A filter is a program of the kernel's old packet filter (seccomp(2)), made here, in the gateway, so that a process
which puts it on needs no tables. The rules this file keeps: a call by another machine's convention is `ENOSYS`, since
its numbers mean something else (to end the process would write into the system's log each time); what only takes names
of files is not allowed where landlock would not see it; and a new call of a later kernel is `ENOSYS`, never allowed.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple

Profile = Literal["script", "jit", "zygote", "server"]

# What a profile may have besides, by the box. `inet`: sockets of the Internet, all kinds; `tcp`: those of TCP only;
# `unix`: those that reach other programs of this machine; `modes`: to change modes, owners and times of files; `no
# modes`: the same does nothing, and says that it has;
# `watch`: to be told of changes in folders, and of attributes of files; `truncate`: by a file's name.
Grant = Literal["inet", "tcp", "unix", "modes", "no modes", "watch", "truncate"]

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_REFUSED = _ERRNO | errno.EPERM
_ABSENT = _ERRNO | errno.ENOSYS
_DONE = _ERRNO  # no error: it has been done, for all that the program hears

_MACHINES = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
}  # the kernel's word for each, its column in _NUMBERS

# Of each call its number on x86_64 and on aarch64, from the kernel's headers.
_NUMBERS = """
accept 43 202 · accept4 288 242 · access 21 - · acct 163 89 ·
add_key 248 217 · adjtimex 159 171 · arch_prctl 158 - · bpf 321 280 · brk 12 214 ·
capget 125 90 · capset 126 91 · chdir 80 49 · chmod 90 - · chown 92 - · chroot 161 51 · clock_adjtime 305 266 ·
clock_getres 229 114 · clock_gettime 228 113 · clock_nanosleep 230 115 · clock_settime 227 112 · clone 56 220 ·
clone3 435 435 · close 3 57 · close_range 436 436 · delete_module 176 106 · dup 32 23 · dup2 33 - · dup3 292 24 ·
epoll_create1 291 20 · epoll_ctl 233 21 · epoll_pwait 281 22 · epoll_wait 232 - · eventfd2 290 19 · execve 59 221 ·
execveat 322 281 · exit 60 93 · exit_group 231 94 · faccessat 269 48 · faccessat2 439 439 · fadvise64 221 223 ·
fanotify_init 300 262 · fanotify_mark 301 263 · fchmod 91 52 · fchmodat 268 53 · fchmodat2 452 452 · fchown 93 55 ·
fchownat 260 54 · fcntl 72 25 · finit_module 313 273 · fremovexattr 199 16 · fsconfig 431 431 · fsetxattr 190 7 ·
fsmount 432 432 · fsopen 430 430 · fspick 433 433 · fstat 5 80 · futex 202 98 · futimesat 261 - · getcpu 309 168 ·
getcwd 79 17 · getdents64 217 61 · getegid 108 177 · geteuid 107 175 · getgid 104 176 · getpgid 121 155 ·
getpid 39 172 · getppid 110 173 · getrandom 318 278 · getrlimit 97 163 · getrusage 98 165 · getsid 124 156 ·
getsockname 51 204 · getsockopt 55 209 · gettid 186 178 · gettimeofday 96 169 · getuid 102 174 · getxattr 191 8 ·
init_module 175 105 ·
inotify_add_watch 254 27 · inotify_init 253 - · inotify_init1 294 26 ·
io_uring_enter 426 426 · io_uring_register 427 427 · io_uring_setup 425 425 · ioctl 16 29 ·
ioperm 173 - · iopl 172 - · ioprio_set 251 30 · kcmp 312 272 · kexec_file_load 320 294 · kexec_load 246 104 ·
keyctl 250 219 · kill 62 129 · landlock_add_rule 445 445 · landlock_create_ruleset 444 444 ·
landlock_restrict_self 446 446 · lchown 94 - · lgetxattr 192 9 · listen 50 201 · listxattr 194 11 · llistxattr 195 12 ·
lookup_dcookie 212 18 · lremovexattr 198 15 · lseek 8 62 ·
lsetxattr 189 6 · lstat 6 - · madvise 28 233 · membarrier 324 283 · memfd_create 319 279 ·
memfd_secret 447 447 · migrate_pages 256 238 ·
mknod 133 - · mknodat 259 33 · mmap 9 222 · modify_ldt 154 - · mount 165 40 · mount_setattr 442 442 ·
move_mount 429 429 · move_pages 279 239 · mprotect 10 226 · mq_getsetattr 245 185 · mq_notify 244 184 ·
mq_open 240 180 · mq_timedreceive 243 183 · mq_timedsend 242 182 · mq_unlink 241 181 · mremap 25 216 · msgctl 71 187 ·
msgget 68 186 · msgrcv 70 188 · msgsnd 69 189 · munmap 11 215 · name_to_handle_at 303 264 · nanosleep 35 101 ·
newfstatat 262 79 · nfsservctl 180 42 · open 2 - · open_by_handle_at 304 265 · open_tree 428 428 · openat 257 56 ·
perf_event_open 298 241 · personality 135 92 · pidfd_getfd 438 438 · pipe 22 - · pipe2 293 59 · pivot_root 155 41 ·
pkey_alloc 330 289 · pkey_free 331 290 · pkey_mprotect 329 288 · poll 7 - · ppoll 271 73 · prctl 157 167 ·
pread64 17 67 · prlimit64 302 261 · process_madvise 440 440 · process_mrelease 448 448 · process_vm_readv 310 270 ·
process_vm_writev 311 271 · pselect6 270 72 · ptrace 101 117 · quotactl 179 60 · quotactl_fd 443 443 · read 0 63 ·
readlink 89 - · readlinkat 267 78 · readv 19 65 · reboot 169 142 · recvfrom 45 207 · recvmsg 47 212 ·
removexattr 197 14 · request_key 249 218 · restart_syscall 219 128 · rseq 334 293 · rt_sigaction 13 134 ·
rt_sigprocmask 14 135 · rt_sigreturn 15 139 · sched_getaffinity 204 123 · sched_getparam 143 121 ·
sched_getscheduler 145 120 · sched_setaffinity 203 122 · sched_setattr 314 274 · sched_setparam 142 118 ·
sched_setscheduler 144 119 · sched_yield 24 124 · seccomp 317 277 · select 23 - · semctl 66 191 · semget 64 190 ·
semop 65 193 · semtimedop 220 192 · sendmmsg 307 269 · sendmsg 46 211 · sendto 44 206 · set_robust_list 273 99 ·
set_tid_address 218 96 · setdomainname 171 162 · sethostname 170 161 · setns 308 268 · setpriority 141 140 ·
setrlimit 160 164 · setsid 112 157 · settimeofday 164 170 · setxattr 188 5 · shmat 30 196 · shmctl 31 195 ·
shmdt 67 197 · shmget 29 194 · shutdown 48 210 · sigaltstack 131 132 · socket 41 198 · socketpair 53 199 · stat 4 - ·
statx 332 291 · swapoff 168 225 · swapon 167 224 · sysinfo 99 179 · syslog 103 116 · tgkill 234 131 · time 201 - ·
timerfd_create 283 85 · times 100 153 · truncate 76 45 · umount2 166 39 · uname 63 160 · unshare 272 97 ·
userfaultfd 323 282 · utime 132 - · utimensat 280 88 · utimes 235 - · vhangup 153 58 · wait4 61 260 · waitid 247 95 ·
write 1 64 · writev 20 66
"""


class Condition(NamedTuple):
    """About one argument's lower half, which is all that the kernel looks at for numbers and flags. `null` looks at
    both halves, as a pointer has them."""

    argument: int
    test: Literal["in", "without", "null"]
    values: tuple[int, ...] = (0,)
    mask: int = 0xFFFFFFFF  # what of it is looked at by `in`


class Rule(NamedTuple):
    call: str
    action: int
    conditions: tuple[Condition, ...] = ()


_NEW_NAMESPACES = 0x7E020000
_THREAD = 0x00010000
_FAST_OPEN = 0x20000000  # it connects without being asked by landlock
_EXEC = 4
_AF_INET, _AF_INET6, _AF_UNIX, _AF_NETLINK = 2, 10, 1, 16
_KIND = 0xF  # of a socket, without its flags
_CONNECTED_PAIR = (  # one of datagrams can be turned to any other program's socket
    Condition(0, "in", (_AF_UNIX,)),
    Condition(1, "in", (1, 5), _KIND),
)
_OF_THE_TERMINAL = (0x5412, 0x541C)  # which put words into the mouth of who sits there

# What file systems do to a file that is open for reading, which landlock does not see: flags, versions, encryption,
# subvolumes. Each has a letter for its own (ext4 and all, versions, xfs and all, btrfs, f2fs, bcachefs), and of these
# only what tells something, and what needs a file that is open for writing, is allowed.
_OF_FILE_SYSTEMS = (0x6600, 0x7600, 0x5800, 0x9400, 0xF500, 0xBC00)
_LETTER = 0xFF00
_FLAGS_TOLD = (0x80086601, 0x80046601, 0x80087601, 0x80047601, 0x801C581F, 0xC020660B)  # and extents
_COPIES = (0x40049409, 0x4020940D)  # that share their blocks

_NO_DEVICES = (0, 0o010000, 0o100000, 0o140000)  # pipes, files, sockets
_HARMLESS_FCNTL = (0, 1, 2, 3, 4, 1030)  # copies and flags; not who gets signals
_ABOUT_OTHERS = (8, 10, 15, 1024, 1026)  # signals when something comes; leases, for which all who open the file wait
_LOCKS_OF_OPEN_FILES = (37, 38)  # which may outlast all that have the file open, so that nobody knows whose they are
_HARMLESS_IOCTL = (0x5401, 0x5421, 0x541B, 0x5450, 0x5451)  # whether it is a terminal, blocks, has something to read
_ONE_SELF = Condition(0, "in", (0,))

# What an interpreter needs that opens nothing, starts nothing and reaches nobody.
_COMPUTES = """
read readv write writev close lseek fstat munmap mremap brk madvise futex rt_sigaction rt_sigprocmask rt_sigreturn
sigaltstack clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getrandom exit exit_group
restart_syscall poll ppoll select pselect6 dup dup2 dup3 pipe pipe2 recvfrom getpid gettid getppid getuid geteuid getgid
getegid sched_yield sched_getaffinity uname times getrusage getcwd getrlimit rseq membarrier set_robust_list shutdown
getsockname getsockopt
"""
_COMPUTES_RULES = (
    *(Rule(call, _ALLOW) for call in _COMPUTES.split()),
    Rule("fcntl", _ALLOW, (Condition(1, "in", _HARMLESS_FCNTL),)),
    Rule("ioctl", _ALLOW, (Condition(1, "in", _HARMLESS_IOCTL),)),
    Rule("socketpair", _ALLOW, _CONNECTED_PAIR),
    Rule("sendto", _ALLOW, (Condition(4, "null"),)),
    Rule("prlimit64", _ALLOW, (_ONE_SELF, Condition(2, "null"))),
    Rule("clone3", _ABSENT),  # its flags lie where no filter can see them; all know how to go on with clone
)
_SCRIPT = (
    *_COMPUTES_RULES,
    Rule("mmap", _ALLOW, (Condition(2, "without", (_EXEC,)),)),
    Rule("mprotect", _ALLOW, (Condition(2, "without", (_EXEC,)),)),
)

# What is needed to be started, and to look at the few files that landlock leaves.
_STARTS = """
mmap mprotect execve openat open newfstatat stat lstat statx access faccessat faccessat2 readlink readlinkat getdents64
pread64 arch_prctl set_tid_address fadvise64 epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 sysinfo
sched_getparam sched_getscheduler
"""
_STARTS_RULES = tuple(Rule(call, _ALLOW) for call in _STARTS.split())

# A compiler of machine code that runs threads: V8.
_JIT = (
    *_COMPUTES_RULES,
    *_STARTS_RULES,
    *(Rule(call, _ALLOW) for call in ("pkey_alloc", "pkey_free", "pkey_mprotect", "getcpu", "timerfd_create")),
    Rule("clone", _ALLOW, (Condition(0, "in", (_THREAD,), _THREAD), Condition(0, "without", (_NEW_NAMESPACES,)))),
    Rule("prctl", _ALLOW, (Condition(0, "in", (15, 16)),)),  # the names of threads
)

_KEEPS = """
wait4 waitid recvmsg sendmsg setsid kill tgkill close_range chdir capget capset setrlimit prctl seccomp getpgid getsid
landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""

# Forks, watches and ends those who run scripts, and locks them.
_ZYGOTE = (
    *_COMPUTES_RULES,
    *_STARTS_RULES,
    *(Rule(call, _ALLOW) for call in _KEEPS.split()),
    Rule("clone", _ALLOW, (Condition(0, "without", (_NEW_NAMESPACES,)),)),
    Rule("prlimit64", _ALLOW, (_ONE_SELF,)),
)

# What no usual server needs, and what reaches past landlock: into the kernel, other processes, other users' things.
_DANGEROUS = """
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp bpf userfaultfd
perf_event_open add_key request_key keyctl mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount
fspick mount_setattr unshare setns init_module finit_module delete_module kexec_load kexec_file_load reboot swapon
swapoff open_by_handle_at name_to_handle_at quotactl quotactl_fd acct syslog settimeofday clock_settime clock_adjtime
adjtimex vhangup iopl ioperm modify_ldt lookup_dcookie fanotify_init fanotify_mark move_pages migrate_pages sethostname
setdomainname nfsservctl shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semtimedop
semctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr ioprio_set sched_setattr
"""
_OWN_RINGS = "io_uring_setup io_uring_enter io_uring_register"  # calls that no filter sees
_UNCOUNTED = "memfd_secret"  # memory that no limit of a process counts
_NAMELESS = "memfd_create execveat"  # programs that landlock does not see: a file that is nowhere has no rule
_MODES = "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat"
_ATTRIBUTES = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"
_ATTRIBUTES_BY_NAME = "getxattr lgetxattr listxattr llistxattr"  # to read them, which landlock does not see
_NET = "sendto sendmsg sendmmsg"
_SERVER = (
    *(Rule(call, _REFUSED) for call in _DANGEROUS.split()),
    *(Rule(call, _ABSENT) for call in (*_OWN_RINGS.split(), *_NAMELESS.split(), _UNCOUNTED, "clone3")),
    Rule("clone", _ALLOW, (Condition(0, "without", (_NEW_NAMESPACES,)),)),
    Rule("clone", _REFUSED),
    Rule("personality", _ALLOW, (Condition(0, "in", (0, 0xFFFFFFFF)),)),
    Rule("personality", _REFUSED),
    Rule("ioctl", _REFUSED, (Condition(1, "in", _OF_THE_TERMINAL),)),
    Rule("ioctl", _ALLOW, (Condition(1, "in", (*_FLAGS_TOLD, *_COPIES)),)),
    Rule("ioctl", _REFUSED, (Condition(1, "in", _OF_FILE_SYSTEMS, _LETTER),)),
    *(  # of processes of the same user, whether in a box or not
        rule
        for call in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam")
        for rule in (Rule(call, _ALLOW, (_ONE_SELF,)), Rule(call, _REFUSED))
    ),
    *(
        rule
        for call, mode in (("mknod", 1), ("mknodat", 2))
        for rule in (Rule(call, _ALLOW, (Condition(mode, "in", _NO_DEVICES, 0o170000),)), Rule(call, _REFUSED))
    ),
    Rule("setpriority", _ALLOW, (_ONE_SELF, Condition(1, "in", (0,)))),
    Rule("setpriority", _REFUSED),
    Rule("fcntl", _REFUSED, (Condition(1, "in", _ABOUT_OTHERS),)),
    Rule("fcntl", _ERRNO | errno.EINVAL, (Condition(1, "in", _LOCKS_OF_OPEN_FILES),)),  # as a kernel that has none
    Rule("socketpair", _ALLOW, _CONNECTED_PAIR),
    Rule("socketpair", _REFUSED),
)


def _granted(grants: frozenset[Grant]) -> Iterable[Rule]:
    """The rules of a server about what a box grants or not."""
    tcp_only = (Condition(1, "in", (1,), _KIND), Condition(2, "in", (0, 6)))  # other kinds and MPTCP pass by landlock
    if {"inet", "tcp"} & grants:
        more = () if "inet" in grants else tcp_only
        yield Rule("socket", _ALLOW, (Condition(0, "in", (_AF_INET, _AF_INET6)), *more))
    if "inet" in grants:
        yield Rule("socket", _ALLOW, (Condition(0, "in", (_AF_NETLINK,)), Condition(2, "in", (0,))))
    else:
        for call, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            yield Rule(call, _ALLOW, (Condition(flags, "without", (_FAST_OPEN,)),))
            yield Rule(call, _REFUSED)
    if "unix" in grants:
        yield Rule("socket", _ALLOW, (Condition(0, "in", (_AF_UNIX,)),))
    if (
        not {"inet", "unix"} & grants
    ):  # what listens and has no port is given one by the kernel, and no landlock sees it
        yield from (Rule(call, _REFUSED) for call in ("listen", "accept", "accept4"))
    yield Rule("socket", _ERRNO | errno.EACCES)
    refused = [] if {"modes", "no modes"} & grants else [*_MODES.split(), *_ATTRIBUTES.split()]
    refused += [] if "watch" in grants else ["inotify_init", "inotify_init1", "inotify_add_watch"]
    refused += [] if "truncate" in grants else ["truncate"]
    yield from (Rule(call, _REFUSED) for call in refused)
    if "no modes" in grants:
        yield from (Rule(call, _DONE) for call in _MODES.split())
        yield from (Rule(call, _ERRNO | errno.ENOTSUP) for call in _ATTRIBUTES.split())
    if "watch" not in grants:
        yield from (Rule(call, _ERRNO | errno.ENOTSUP) for call in _ATTRIBUTES_BY_NAME.split())


@cache
def program(profile: Profile, grants: frozenset[Grant] = frozenset(), machine: str = "") -> bytes:
    """The filter; empty where nothing is known of this machine (`platform.machine`)."""
    row = _MACHINES.get(machine or platform.machine())
    if not row:
        return b""
    arch, column = row
    numbers = {words[0]: words[1:] for words in map(str.split, _NUMBERS.replace("\n", " ").split("·"))}
    allowed = {"script": _SCRIPT, "jit": _JIT, "zygote": _ZYGOTE}.get(profile)
    rules = allowed or (*_SERVER, *_granted(grants))
    known = [(int(number), rule) for rule in rules if (number := numbers[rule.call][column]) != "-"]
    highest = max(int(each[column]) for each in numbers.values() if each[column] != "-")
    return _assembled(arch, known, _REFUSED if allowed else _ALLOW, highest)


# The assembler. An instruction is a code, how far to jump where it is so and where not, and a value.

_LOAD, _AND, _IS, _ABOVE, _COMMON, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # where the kernel lays them

_Instruction = tuple[int, int, int, int]


def _assembled(arch: int, rules: Sequence[tuple[int, Rule]], otherwise: int, highest: int) -> bytes:
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_IS, 1, 0, arch),
        (_RETURN, 0, 0, _ABSENT),
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, highest),  # as are those of x32
        (_RETURN, 0, 0, _ABSENT),
    ]
    for number, rule in rules:
        body = [*_tests(rule.conditions), (_RETURN, 0, 0, rule.action)]
        if rule.conditions:  # one that does not hold comes here, and the number is to be looked at again
            body.append((_LOAD, 0, 0, _NUMBER))
        code += [(_IS, 0, len(body), number), *body]
    code.append((_RETURN, 0, 0, otherwise))
    return b"".join(struct.pack("<HBBI", *each) for each in code)


def _tests(conditions: Sequence[Condition]) -> list[_Instruction]:
    """All must hold; where one does not, it goes on behind the return that follows."""
    code: list[_Instruction] = []
    for condition in reversed(conditions):
        code = _test(condition, beyond=len(code) + 1) + code
    return code


def _test(condition: Condition, beyond: int) -> list[_Instruction]:
    low = _ARGUMENTS + 8 * condition.argument
    if condition.test == "null":
        return [(_LOAD, 0, 0, low), (_IS, 0, beyond + 2, 0), (_LOAD, 0, 0, low + 4), (_IS, 0, beyond, 0)]
    if condition.test == "without":
        return [(_LOAD, 0, 0, low), (_COMMON, beyond, 0, condition.values[0])]
    looks = [(_IS, len(condition.values) - 1 - at, 0, value) for at, value in enumerate(condition.values)]
    code, _, _, value = looks[-1]
    looks[-1] = (code, 0, beyond, value)
    return [(_LOAD, 0, 0, low), (_AND, 0, 0, condition.mask), *looks]
