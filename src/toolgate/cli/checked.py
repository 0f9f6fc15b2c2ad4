"""One server that was started and listed by a gateway: what came of it, and what to do about one that failed."""

from __future__ import annotations

import re
import shlex

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.upstreams import diagnosis

BELOW = "see its last output below"


class Fault(msgspec.Struct):
    """What the admin door says of a failure."""

    error: str = ""
    hint: str = ""


class Checked(msgspec.Struct, kw_only=True):
    """One server as the admin door shows it after `POST /admin/servers/NAME/check`."""

    state: str = ""
    error: str = ""
    hint: str = ""
    stderr: str = ""
    revision: str = ""
    box: str = ""
    fault: Fault | None = None
    tools: tuple[Raw, ...] = ()
    ignored: tuple[str, ...] = ()


def what_it_has(tools: int, revision: str) -> str:
    """A component speaks no revision."""
    return f"{tools} {'tool' if tools == 1 else 'tools'}" + (f", revision {revision}" if revision else "")


def fix_for(server: Server, checked: Checked) -> str:
    """What to do about a server that failed; empty where its error says it already."""
    if server.problem:
        return ""
    fault = checked.fault or Fault()
    for found in (checked.hint, diagnosis.fix_for(checked.error or fault.error, checked.stderr), fault.hint):
        if found and not found.startswith(diagnosis.LOOK):
            return found
    if server.url:
        return "check that its url is that of an MCP endpoint (its path is often /mcp), and that it is running"
    if unprovoked(checked.stderr).strip():
        return BELOW
    return f"it printed nothing; run it by hand: {shlex.join((server.command, *_shown_arguments(server)))}"


def fix_in_a_line(server: Server, checked: Checked) -> str:
    """The same where the end of its stderr is not shown."""
    fix = fix_for(server, checked)
    return f"see its last output: {diagnosis.last_words(unprovoked(checked.stderr))}" if fix == BELOW else fix


def _shown_arguments(server: Server) -> list[str]:
    """Without those that stood in variables: they may be secrets."""
    return ["***" if number in server.private_args else each for number, each in enumerate(server.args)]


# What servers write to stderr because we asked them for a method of another era first: with what it begins and ends.
_PROVOKED = (
    re.compile(r"(?m)^[^\n]*Failed to validate request:.*?^[^\n]*server/discover[^\n]*\n?(?=^\S|\Z)", re.DOTALL),
    re.compile(r"(?m)^[^\n]*server/discover[^\n]*\n?"),
)


def unprovoked(stderr: str) -> str:
    """What a server wrote to stderr, without what our own probe has provoked."""
    for pattern in _PROVOKED:
        stderr = pattern.sub("", stderr)
    return stderr.rstrip()
