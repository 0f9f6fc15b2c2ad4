"""What known servers need, by the name of their package: `PROFILES`, a table of data.

The rules this file keeps: a profile gives what the server cannot work without, and files only where the server's own
command line or its variables name them; and only a package of that name has it, from the registry that the runner
goes by, or a program of that name in PATH: where something else may be started, there is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

Use = Literal["read", "write", "folder", "run"]
"""Of what is named somewhere: it may be read or written; or the folder that it lies in may be written, or run from."""


class Paths(NamedTuple):
    read: list[str]
    write: list[str]
    run: list[str]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments`: of what is named by its arguments that are no options; so `options` and `variables` of theirs.
    `env`: what it is given where its configuration does not say otherwise, with `{own}` for its own folder and `{home}`
    for that of the user. `run`: folders of programs that it runs. `is_browser`: it runs a browser."""

    net: bool = False
    arguments: Use | None = None
    options: Mapping[str, Use] = {}
    variables: Mapping[str, Use] = {}
    env: Mapping[str, str] = {}
    run: tuple[str, ...] = ()
    is_browser: bool = False

    def paths(self, args: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Paths:
        """What is named. Without `cwd` it starts in its own folder, in which relative
        paths lie."""
        named = [*self._of_arguments(args), *((use, env[name]) for name, use in self.variables.items() if name in env)]
        found = Paths([], [], [*self.run])
        for use, path in named:
            path = os.path.normpath(os.path.join(cwd or "", path))
            if os.path.isabs(path):
                path = os.path.dirname(path) if use in ("folder", "run") else path
                {"read": found.read, "run": found.run}.get(use, found.write).append(path)
        return found

    def _of_arguments(self, args: Sequence[str]) -> Iterator[tuple[Use, str]]:
        rest = iter(args)
        for each in rest:
            option, is_joined, value = each.partition("=")
            if option in self.options:
                yield self.options[option], value if is_joined else next(rest, "")
            elif self.arguments and not each.startswith("-"):
                yield self.arguments, each


_API = Profile(net=True)
_NOTHING = Profile()
_OFFICIAL = "@modelcontextprotocol/server-"

PROFILES: Mapping[str, Profile] = {
    # files
    f"{_OFFICIAL}filesystem": Profile(arguments="write"),
    f"{_OFFICIAL}memory": Profile(
        variables={"MEMORY_FILE_PATH": "folder"}, env={"MEMORY_FILE_PATH": "{own}/memory.jsonl"}
    ),
    "mcp-server-git": Profile(options={"--repository": "write", "-r": "write"}),
    "mcp-server-sqlite": Profile(options={"--db-path": "folder"}),
    "markitdown-mcp": _API,
    "serena-agent": Profile(net=True, options={"--project": "write"}),
    # nothing but computing
    f"{_OFFICIAL}everything": _NOTHING,
    f"{_OFFICIAL}sequential-thinking": _NOTHING,
    "mcp-server-time": _NOTHING,
    # the network
    "mcp-server-fetch": _API,
    f"{_OFFICIAL}github": _API,
    f"{_OFFICIAL}gitlab": _API,
    f"{_OFFICIAL}slack": _API,
    f"{_OFFICIAL}brave-search": _API,
    f"{_OFFICIAL}google-maps": _API,
    f"{_OFFICIAL}postgres": _API,
    "@upstash/context7-mcp": _API,
    "tavily-mcp": _API,
    "firecrawl-mcp": _API,
    "@notionhq/notion-mcp-server": _API,
    # a browser
    "@playwright/mcp": Profile(
        net=True,
        is_browser=True,
        run=("~/.cache/ms-playwright",),
        env={"PLAYWRIGHT_BROWSERS_PATH": "{home}/.cache/ms-playwright"},
        options={
            "--output-dir": "write",
            "--user-data-dir": "write",
            "--storage-state": "read",
            "--config": "read",
            "--executable-path": "run",
        },
    ),
    f"{_OFFICIAL}puppeteer": Profile(
        net=True, is_browser=True, run=("~/.cache/puppeteer",), env={"PUPPETEER_CACHE_DIR": "{home}/.cache/puppeteer"}
    ),
    "chrome-devtools-mcp": Profile(
        net=True,
        is_browser=True,
        options={"--executablePath": "run", "--executable-path": "run", "--userDataDir": "write"},
    ),
}

# Programs whose first argument that is no option is the program that they run.
INTERPRETERS = ("node", "python", "deno", "bun", "ruby", "perl", "sh", "bash", "php", "tsx", "java")

_INSTALLED = re.compile(r".*/node_modules/((?:@[^/]+/)?[^/]+)/")
_MODULES = {name.replace("-", "_"): name for name in PROFILES} | {"serena": "serena-agent"}
_MODULE = re.compile(rf"\b(?:{'|'.join(map(re.escape, _MODULES))})\b")


def profile_of(package: str) -> Profile | None:
    return PROFILES.get(package)


def started(
    command: str, args: Sequence[str], env: Mapping[str, str] = {}, cwd: str | None = None
) -> tuple[str, Sequence[str]]:
    """The package whose program a command starts, without its version, empty where that cannot be said for certain;
    and the arguments of that program."""
    package, own = _started(command, args)
    name = re.split(r"[/\\]", command)[-1]
    loads_more = any(_LOADS_MORE.fullmatch(each) for each in env)
    if name in RUNNERS:
        is_it = _is_of_the_registry(name, RUNNERS[name].split(args))
    else:
        loads_more |= bool(cwd) and _is_interpreter(name)  # a module is looked for there first
        is_it = name == command and not any(map(_INSTALLED.match, args))
    return package if is_it and not loads_more else "", own


# Variables by which other code is loaded into a program, or another one found, or a package looked for elsewhere.
_LOADS_MORE = re.compile(
    r"PATH|LD_.*|NODE_OPTIONS|NODE_PATH|PYTHON(?:PATH|HOME|STARTUP|USERBASE)|BASH_ENV|ENV|(?i:npm_config|uv)_.*"
)
_OF_THE_REGISTRY = re.compile(r"(?:@[\w.-]++/)?[\w.-]++(?:\[[\w., -]*\])?@?[\w.^~<>=!*|+, -]*")
_THE_SDK = re.compile(r"mcp[=<>~!0-9.*, ]*")  # which nearly all packages need, in a version that they may not say


def _is_of_the_registry(runner: str, split: Split) -> bool:
    """Whether it is the package by that name, and nothing else with it."""
    rest = iter(split.options)
    for option in rest:
        if option in RUNNERS[runner].flags:
            continue
        value = next(rest)
        is_sdk = option in ("--with", "-w") and _THE_SDK.fullmatch(value)
        if runner != "uvx" or not (option in ("--python", "-p") or is_sdk):
            return False
    return bool(_OF_THE_REGISTRY.fullmatch(split.package))


def _started(command: str, args: Sequence[str]) -> tuple[str, Sequence[str]]:
    name = re.split(r"[/\\]", command)[-1]
    if name in RUNNERS:
        split = RUNNERS[name].split(args)
        return bare(split.package), split.args
    for at, each in enumerate((command, *args)):
        if found := _INSTALLED.match(each):
            return found[1], args[at:]
        is_code = at > 1 and args[at - 2] == "-c"  # of Python, which imports it
        if module := _MODULE.search(each) if is_code else _MODULE.fullmatch(each):  # `python -m mcp_server_git`
            return _MODULES[module[0]], args[at:]
    if _is_interpreter(name):
        return "", args[1 + next((at for at, each in enumerate(args) if not each.startswith("-")), len(args)) :]
    return (name if name in PROFILES else _MODULES.get(name, "")), args


def _is_interpreter(name: str) -> bool:
    return name.rstrip("0123456789.") in INTERPRETERS


_VERSION = re.compile(r"(?<!^)(?:@[^/]*|\[.*|[=<>~!].*)$")


def bare(spec: str) -> str:
    """`@scope/name@1.2` → `@scope/name`; `name[extra]==1.2` → `name`."""
    return _VERSION.sub("", spec.strip())


# Programs that fetch a package and run it.


class Split(msgspec.Struct, frozen=True):
    """The command line of a runner: the package, the program in it (empty: its own), what else the runner is to
    install or to go by, and the arguments of the program."""

    package: str
    program: str
    options: tuple[str, ...]
    args: tuple[str, ...]


class Runner(msgspec.Struct, frozen=True):
    """How a runner's command line is read: options that name the package, options with a value, options without."""

    named: tuple[str, ...]
    valued: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def split(self, args: Sequence[str]) -> Split:
        """Where it has an option that is not known, the package is empty."""
        package, options, rest = "", list[str](), list(args)
        while rest and rest[0].startswith("-"):
            each = rest.pop(0)
            option, is_joined, value = each.partition("=")
            if each == "--":
                break
            if option in self.flags:
                options.append(each)
            elif option in (*self.named, *self.valued):
                value = value if is_joined else rest.pop(0) if rest else ""
                if option in self.named and not package:
                    package = value
                else:
                    options += [option, value]
            else:
                return Split("", "", (), ())
        first = rest.pop(0) if rest else ""
        return Split(package or first, first if package else "", tuple(options), tuple(rest))


RUNNERS: Mapping[str, Runner] = {
    "npx": Runner(
        ("--package", "-p"), ("--registry",), ("-y", "--yes", "-q", "--quiet", "--prefer-offline", "--offline")
    ),
    "uvx": Runner(
        ("--from",),
        ("--with", "-w", "--python", "-p", "--index", "--index-url", "--extra-index-url", "--default-index"),
        ("--isolated", "--refresh", "--offline", "--quiet", "-q", "--no-cache", "-n"),
    ),
}
