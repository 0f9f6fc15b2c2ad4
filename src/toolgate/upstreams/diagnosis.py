"""Why a server failed, as far as its error and the end of its stderr tell: a table of known causes, each with its fix.

The rules this file keeps: the most particular cause stands first, and a fix says what to do, not what went wrong. What
is searched is a server's choice: so it is the last 4 KiB only, line by line, and no pattern repeats anything without
bound.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping

LOOK = "see the end of its stderr"  # how the hint begins where nothing better is known

_NODE = "install Node.js (https://nodejs.org), which includes {0}"
_UV = "install uv (https://docs.astral.sh/uv/), which includes {0}"
_PYTHON = "install Python (https://www.python.org), or write the whole path of {0} as the command"
_OLD_LIBRARY = (
    'it was made for mcp 1.x and runs with mcp 2: write "compat": "mcp<2" next to its command uvx (in another tool\'s '
    "file `--with 'mcp<2'` as the first of its args), or install a newer version of the server"
)

# What to install for a command that is not there; `{0}` is the command.
INSTALLERS = {
    **dict.fromkeys(("node", "npm", "npx"), _NODE),
    **dict.fromkeys(("uv", "uvx"), _UV),
    **dict.fromkeys(("python", "python3", "pip", "pip3"), _PYTHON),
    "docker": "install Docker (https://docs.docker.com/get-docker/), or Podman and write podman as the command",
    "podman": "install Podman (https://podman.io), or Docker and write docker as the command",
    "pipx": "install pipx (https://pipx.pypa.io), or uv and write uvx as the command",
    **dict.fromkeys(("bun", "bunx"), "install Bun (https://bun.sh), which includes {0}"),
    "deno": "install Deno (https://deno.com)",
    "go": "install Go (https://go.dev)",
    "cargo": "install Rust (https://rustup.rs), which includes {0}",
    "java": "install a Java runtime, version 17 or newer",
    "dotnet": "install .NET (https://dotnet.microsoft.com)",
}

# What stands in the error or on stderr → what to do about it. `{0}` is what the first group matched.
CAUSES: tuple[tuple[str, str], ...] = (
    # made for another library
    (r"AttributeError: '(?:Server|FastMCP|ClientSession|ServerSession)' object has no attribute", _OLD_LIBRARY),
    (r"AttributeError: module 'mcp(?:\.[\w.]{1,100})?' has no attribute", _OLD_LIBRARY),
    (r"ImportError: cannot import name '[^']{1,100}' from 'mcp(?:\.[\w.]{1,100})?'", _OLD_LIBRARY),
    (r"ModuleNotFoundError: No module named '(?:mcp\.server\.fastmcp|mcp\.[\w.]{1,100})'", _OLD_LIBRARY),
    (r"TypeError: (?:Server|FastMCP)\.\w{1,100}\(\) got an unexpected keyword argument", _OLD_LIBRARY),
    (
        r"cannot import name",
        "it was made for another version of a library: pin that version, or install a newer server",
    ),
    # a variable that is not set
    (r"KeyError: '([A-Z][A-Z0-9_]{2,100})'", "set {0} in its env in the configuration"),
    (
        r"(?i:(?:environment|env)[ -]?var(?:iable)?s?:? [`'\"]?)([A-Z][A-Z0-9_]{2,100})[`'\"]?"
        r"(?i: (?:is |are |was |must be |has to be )?(?:not (?:set|defined|found)|unset|missing|required|set\b))",
        "set {0} in its env in the configuration",
    ),
    (
        r"\b([A-Z][A-Z0-9]{0,50}_[A-Z0-9_]{1,100})[`'\"]? (?i:(?:environment|env)[ -]?var(?:iable)? )?"
        r"(?i:(?:is |was |must be |has to be )(?:not (?:set|defined|found)|unset|missing|required|provided|set\b))",
        "set {0} in its env in the configuration",
    ),
    (
        r"(?i:(?:missing|required|please set|must set|need to set|provide)(?: the| an?| your| required){0,3}"
        r"(?: (?:environment|env)[ -]?var(?:iable)?s?| api key| token)?:? [`'\"]?)"
        r"([A-Z][A-Z0-9]{0,50}_[A-Z0-9_]{1,100})",
        "set {0} in its env in the configuration",
    ),
    # what may not become another user
    (
        r"\"no new privileges\" flag is set"
        r"|new[ug]idmap\S{0,20}:? .{0,200}(?:Operation not permitted|exit status)"
        r"|(?:snap-confine|cap_dac_override) .{0,200}not (?:found|permitted)|snap-confine has elevated permissions"
        r"|fusermount3?: .{0,200}Operation not permitted",
        'it needs more privileges than its user has: add "new_privileges": true next to its command',
    ),
    # what a program loads beside itself
    (
        r"Executable doesn.t exist at |npx playwright install",
        "install its browser: npx playwright install chromium",
    ),
    (r"error while loading shared libraries: ([\w.+-]{1,100})", "install the system's package that has {0}"),
    (r"version `(GLIBC_[\d.]{1,20})' not found", "it needs {0}: use a newer system, or an older version of the server"),
    (
        r"(?:Exec format error|Bad CPU type in executable)",
        "it is made for another kind of processor: install that for this one",
    ),
    (
        r"(?:pydantic|pydantic_core)\S{0,100} .{0,100}incompatible|pydantic_core\._pydantic_core",
        "reinstall it: uvx --reinstall NAME",
    ),
    # what is over
    (
        r"(?i:(?:token|jwt|session|credential)s? (?:is |has |have |are )?(?:expired|been revoked))"
        r"|invalid_grant|ExpiredToken",
        "its token has expired: get a new one, or sign in again",
    ),
    (
        r"(?:CERT_HAS_EXPIRED|certificate has expired)",
        "the certificate of that host has expired: its operator must renew it",
    ),
    # packages and programs
    (r"(?:npm (?:ERR!|error) (?:code E)?404|No matching version found)", "check the package's name and version"),
    (
        r"(?:not found in the package registry|No matching distribution found|No solution found when resolving)",
        "check the package's name and version, and that it exists for this version of Python",
    ),
    (
        r"npm (?:ERR!|error) could not determine executable",
        "the package has no default program: name one, as in `npx -p PACKAGE PROGRAM`",
    ),
    (
        r"(?:Unsupported engine|EBADENGINE|requires Node(?:\.js)? |engine \"node\" is incompatible)",
        "install a newer Node.js",
    ),
    (r"(?:SyntaxError: Unexpected token '?[?.]|ERR_REQUIRE_ESM|ERR_UNKNOWN_BUILTIN_MODULE)", "install a newer Node.js"),
    (
        r"(?:requires a different Python|Requires-Python|requires-python|requires Python)",
        "run it with a supported version of Python, such as `uvx --python 3.12 NAME`",
    ),
    (r"(?:Cannot connect to the Docker daemon|docker daemon is not running)", "start Docker"),
    (r"(?:Unable to find image|pull access denied)", "check the image's name, and `docker pull` it"),
    (
        r"(?:ModuleNotFoundError: )?No module named '?([\w.]{1,100})",
        "install its dependency {0}, or run it with `uvx`, which installs dependencies",
    ),
    (
        r"(?:Cannot find (?:module|package)|ERR_MODULE_NOT_FOUND)",
        "install its dependencies, or run it with `npx -y`, which installs them",
    ),
    (
        r"(?:sh|bash|env)(?:: line \d{1,9}|: \d{1,9})?: '?([\w./+-]{1,200})'?: "
        r"(?:command not found|not found|No such file)",
        "install {0}, which the server starts",
    ),
    (r"spawn (\S{1,200}) ENOENT", "install {0}, which the server starts"),
    # the machine
    (
        r"(?:EADDRINUSE|[Aa]ddress already in use|port is already allocated)",
        "its port is in use: stop the other program, or set another port",
    ),
    (
        r"(?:EACCES|EPERM|[Pp]ermission denied|PermissionError)",
        "check the permissions of the files that it reads and writes",
    ),
    (r"(?:ENOSPC|[Nn]o space left on device)", "free some disk space"),
    (r"(?:EMFILE|Too many open files)", "raise the limit of open files (ulimit -n)"),
    (r"(?:JavaScript heap out of memory|MemoryError|\bOOMKilled\b)", "give it more memory"),
    (
        r"(?:CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT|self[- ]signed certificate|UNABLE_TO_GET_ISSUER_CERT)",
        "set SSL_CERT_FILE or NODE_EXTRA_CA_CERTS to the file of trusted certificates",
    ),
    (
        r"(?:ENOTFOUND|EAI_AGAIN|getaddrinfo|Name or service not known|Temporary failure in name resolution"
        r"|nodename nor servname|Could not resolve host|dns error)",
        "host not found: check the address, the network and the proxy",
    ),
    (r"(?:ENETUNREACH|Network is unreachable|No route to host)", "no network: check the network and the proxy"),
    (
        r"(?:ECONNREFUSED|Connect(?:ion)? (?:call failed|refused))",
        "nothing is listening there: start that server, or check the port in its url",
    ),
    # what is there is no MCP server
    (r"Method not found: initialize", "it speaks JSON-RPC but not MCP: check that this starts an MCP server"),
    (r"^[Uu]sage: |unrecognized arguments|the following arguments are required", "check its args"),
)

LONGEST_LINE = 1000  # characters of a line that are looked at
LONGEST_TOLD = 200  # characters of the line that tells most
MOST_LINES = 200  # of stderr, among which the most telling is looked for
MOST_SEARCHED = 4096  # characters of an error, and of stderr

_COMPILED = tuple((re.compile(sign), cure) for sign, cure in CAUSES)
_COMMAND = re.compile(r"Command not found: (.+)")
_DENIED = re.compile(r"Permission denied: (.+)")


def fix_for(error: str, stderr: str = "") -> str:
    """What to do about a server that failed so; empty where the cause is none of those that are known."""
    missing = _COMMAND.match(error)
    if missing:
        command = os.path.basename(missing.group(1))
        return INSTALLERS.get(command, "").format(command)
    lines = [*_last_lines(error), *_last_lines(stderr)]
    for sign, cure in _COMPILED:
        for line in lines:
            if found := sign.search(line):
                return cure.format(*found.groups())
    return ""


def _last_lines(said: str) -> list[str]:
    """The beginnings of the last lines, as many as may be searched."""
    found: list[str] = []
    room = MOST_SEARCHED
    for line in reversed(said.splitlines()):
        line = line[:LONGEST_LINE]
        room -= len(line) + 1
        if room < 0:
            break
        found.append(line)
    return found[::-1]


# Lines that say nothing of the cause: where npm keeps its log, whom to ask for help.
_EMPTY = re.compile(
    r"npm (?:ERR!|error)\s{0,9}(?:code \S{1,50}\s{0,9}$|A complete log of this run|$)"
    r"|^\s{0,9}\S{0,300}-debug-\d{0,20}\.log\s{0,9}$|^$"
)
_OF_NPM = re.compile(r"npm (?:ERR!|error) ")


def last_words(stderr: str) -> str:
    """The line that tells most of why a program has ended: the last one; of npm, which begins with it, the first; to
    200 characters. `stderr` is without secrets (`Tail.text`): in one line of several nobody would know a part of one.
    """
    lines = [line.strip()[:LONGEST_LINE] for line in stderr.splitlines()[-MOST_LINES:]]
    telling = [line for line in lines if not _EMPTY.search(line)]
    of_npm = [line for line in telling if _OF_NPM.match(line)]
    told = (of_npm[0] if of_npm and _OF_NPM.match(telling[-1]) else telling[-1]) if telling else ""
    return told[:LONGEST_TOLD]


# What the system may lack → how to let us have it. Both limits of descriptors: ours, and that of the machine. None of
# this says anything of a server.
_LACKS: Mapping[int, str] = {
    errno.EMFILE: "toolgate has too many files and connections open: raise its limit (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "the machine has too many files open: raise its limit (fs.file-max)",
    errno.EAGAIN: "too many processes: raise the limit (ulimit -u), or stop some",
    errno.ENOMEM: "the machine is out of memory: add memory, or stop some programs",
    errno.ENOBUFS: "the machine has no memory for more connections: close some",
    errno.EADDRNOTAVAIL: "the machine has no port left to connect from: close some connections",
}


def is_our_lack(error: object) -> bool:
    """Whether it failed for what the gateway or its machine lacks, whatever it was tried with."""
    return isinstance(error, OSError) and error.errno in _LACKS


def of_system(error: OSError) -> tuple[str, str]:
    """What a failure of the operating system means, and what to do about it; that is empty where nobody knows."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return why, _LACKS.get(error.errno or 0, "")


def as_a_shell_says(error: str) -> str:
    """What stands on stderr where a shell is asked for a command that it cannot run; else nothing."""
    if missing := _COMMAND.match(error):
        return f"/bin/sh: {missing.group(1)}: command not found\n"
    denied = _DENIED.match(error)
    return f"/bin/sh: {denied.group(1)}: Permission denied\n" if denied else ""
