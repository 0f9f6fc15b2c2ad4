"""What can be said of servers without starting them, and of their tools once they are listed: for `doctor`, `preflight`
and dry runs.

The rules this file keeps: nothing is started, written or sent; no value of a variable, header or token is shown.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from toolgate.auth.credential_states import end_of
from toolgate.config import Config, Server
from toolgate.core import names
from toolgate.upstreams import diagnosis

Level: TypeAlias = Literal["ok", "warning", "problem"]

MOST_NAMED = 5  # names of one kind that are listed

# What runs packages → how an exact version is written, and the options that take a word.
RUNNERS: Mapping[str, tuple[re.Pattern[str], frozenset[str]]] = {
    "npx": (re.compile(r".@\d[\w.+-]*$"), frozenset({"-p", "--package", "-c", "--call"})),
    "bunx": (re.compile(r".@\d[\w.+-]*$"), frozenset({"-p", "--package"})),
    "uvx": (re.compile(r".(?:==|@)\d[\w.+-]*$"), frozenset({"--from", "--with", "--python", "-p", "--index"})),
    "pipx": (re.compile(r".==\d[\w.+-]*$"), frozenset({"--spec", "--python"})),
}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `check` is its kind, `about` the server that it is about, if any."""

    check: str
    level: Level
    says: str
    about: str = ""
    fix: str = ""


def of_server(server: Server, environ: Mapping[str, str]) -> Iterator[Check]:
    """What its configuration shows."""
    if server.problem:
        kind = "secrets" if any(each.startswith("secret:") for each in server.missing) else "configuration"
        yield Check(check=kind, level="problem", about=server.name, says=server.problem)
        return
    yield from _command(server, environ)
    yield from _version(server)
    yield from _tokens(server)
    empty = [name for name, value in server.env.items() if not value]
    if empty:
        says = f"these variables are set but empty: {', '.join(empty)}"
        yield Check(check="configuration", level="warning", about=server.name, says=says, fix="set or remove them")


def _command(server: Server, environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether its program is there: where the server has a PATH of its own, there."""
    if not server.command:
        return
    folder = Path(server.cwd or ".")
    if not folder.is_dir():
        yield Check(check="commands", level="problem", about=server.name, says="its `cwd` is not a folder")
    has_path = os.sep in server.command
    found = shutil.which(server.command, path=None if has_path else server.env.get("PATH") or environ.get("PATH"))
    if has_path and not os.path.isabs(server.command):
        found = shutil.which(folder / server.command)
    if not found:
        name = os.path.basename(server.command)
        fix = diagnosis.INSTALLERS.get(name, "install it, or write its whole path").format(name)
        says = f"command not found: {server.command}"
        yield Check(check="commands", level="problem", about=server.name, says=says, fix=fix)


def _version(server: Server) -> Iterator[Check]:
    """A package without an exact version is another program whenever its maker says so."""
    runner = RUNNERS.get(os.path.basename(server.command))
    package = _package(server.args, runner[1]) if runner else ""
    if runner and package and not runner[0].search(package) and not package.startswith((".", "/", "git+", "http")):
        says = f"runs whatever version of {package} is the newest"
        yield Check(check="versions", level="warning", about=server.name, says=says, fix="write an exact version")


def _package(args: Iterable[str], taking: frozenset[str]) -> str:
    """The package that a runner's arguments name; one that an option names counts first."""
    words = [word for word in args if word not in ("run", "x")]
    for option in ("--from", "--package", "-p", "--spec"):
        if option in taking and option in words[:-1]:
            return words[words.index(option) + 1]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in taking
        else:
            return word
    return ""


def _tokens(server: Server) -> Iterator[Check]:
    for where, value in (*server.headers.items(), *server.env.items()):
        ended = expired(value.removeprefix("Bearer "))
        if ended:
            says = f"the token in {where} expired on {ended}"
            yield Check(check="secrets", level="problem", about=server.name, says=says, fix="get a new one")


def expired(token: str) -> str:
    """The date on which a JWT has expired; empty for what has not, or is none."""
    ends = end_of(token)
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(ends)) if ends and ends < time.time() else ""
    except (ValueError, OverflowError):
        return ""


# Of tools that are listed.


def of_names(listed: Mapping[str, Iterable[str]]) -> Iterator[Check]:
    """`listed`: the tools of each server, by its id and their own names."""
    for server, tools in listed.items():
        own = list(tools)
        yield from _long(server, own)
        twice = [name for name, count in Counter(own).items() if count > 1]
        if twice:
            says = f"lists these names more than once: {_few(twice)}"
            yield Check(check="names", level="warning", about=server, says=says, fix="report it to its maker")
    yield from shared(listed)


def shared(listed: Mapping[str, Iterable[str]]) -> Iterator[Check]:
    """Names that tools of several servers have."""
    owners: dict[str, list[str]] = {}
    for server, tools in listed.items():
        for name in set(tools):
            owners.setdefault(name, []).append(server)
    several = {name: sorted(each) for name, each in owners.items() if len(each) > 1}
    if several:
        told = _few([f"{name} ({', '.join(each)})" for name, each in sorted(several.items())])
        says = f"several servers have a tool of the same name: {told}; clients see them under the servers' names"
        yield Check(check="names", level="ok", says=says)


def _long(server: str, tools: list[str]) -> Iterator[Check]:
    """Names over 64 characters, which models' APIs do not take: clients see shortened ones."""
    joined = names.join_names(server, tools)
    long = [name for name in tools if joined[name] != server + names.SEPARATOR + name]
    if long:
        shown = _few([f"{name} → {joined[name]}" for name in long])
        says = f"names over {names.LONGEST} characters are shortened: {shown}"
        fix = "give the server a shorter name, or the tools other names (`tools`)"
        yield Check(check="names", level="warning", about=server, says=says, fix=fix)


def _few(words: list[str]) -> str:
    more = len(words) - MOST_NAMED
    return ", ".join(words[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def of_configuration(config: Config) -> Iterator[Check]:
    yield from (Check(check="configuration", level="warning", says=warning) for warning in config.warnings)
