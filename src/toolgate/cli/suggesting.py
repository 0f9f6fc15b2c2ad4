"""`toolgate doctor --suggest-sandbox SERVER`: the tightest box in which a server starts, lists and answers one call.

The rules this file keeps: boxes are tried from the tightest on, so that a server never has more than its last failure
has shown that it needs, and never runs without a box; before one in which it could do harm its user is asked, since a
server may fail in the others on purpose; and what one run cannot show is said beside what it has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import tomlkit
import typer
from msgspec import Raw

from toolgate.app import running
from toolgate.catalog.poisoning import visible
from toolgate.cli import gateways, printing
from toolgate.config import Config, Server, masking, profiles
from toolgate.config.server import ServerBox, kind_of_box
from toolgate.core import jsonrpc
from toolgate.upstreams.process import confinement

PATIENCE = 30.0  # seconds for a start in a box that may be too tight


class Failure(msgspec.Struct):
    error: str = ""


class Checked(msgspec.Struct):
    """What is read of an answer of `POST /admin/servers/NAME/check`."""

    error: str = ""
    stderr: str = ""
    fault: Failure | None = None
    tools: tuple[Raw, ...] = ()


class Ran(msgspec.Struct):
    """What became of one run. `problem` is empty where all went well."""

    problem: str = ""
    tools: int = 0


def candidates(server: Server) -> Iterator[ServerBox]:
    """From the tightest on."""
    package, own = profiles.started(server.command, server.args, server.env, server.cwd)
    if profiles.profile_of(package):
        yield ServerBox(level="profile")
    named = tuple(dict.fromkeys(_places(server, own)))
    for net in (None, True):
        yield ServerBox(level="strict", net=net)
        if named:
            yield ServerBox(level="strict", read=named, net=net)
            yield ServerBox(level="strict", write=named, net=net)
    yield ServerBox(level="no-net")
    yield ServerBox(level="no-write")


def _places(server: Server, args: Sequence[str]) -> Iterator[str]:
    """The files and folders that its command line and its variables name, if they are there."""
    values = [each.partition("=")[2] if each.startswith("-") else each for each in args]
    values += [value for name, value in server.env.items() if not masking.is_secret_name(name)]
    for each in values:
        place = os.path.normpath(os.path.join(server.cwd or "", each)) if each else ""
        if os.path.isabs(place) and os.path.exists(place) and place != "/":
            yield place


def is_wide(box: ServerBox) -> bool:
    """Whether a server in it can send away what it reads, or write what others run."""
    return bool(box.net) or box.level in ("no-net", "no-write")


async def suggest(config: Config, server: Server, tool: str, arguments: str, yes: bool = False) -> int:
    """`yes`: nobody is asked. Returns what the command ends with."""
    if server.type != "stdio":
        printing.fail(f"{server.name} is not started by toolgate: only stdio servers can be put into a box.", 2)
    if lacking := confinement.missing(confinement.Box()):
        printing.fail(f"Boxes cannot be put on here: this machine lacks {'; '.join(lacking)}")
    given = _arguments(arguments)
    for box in candidates(server):
        words, name = _words(server, box), visible(server.name)
        if is_wide(box) and not yes and not _agreed(name, words):
            printing.fail(
                "It works in no tighter box. Wider ones were not tried: give --yes to have them tried unasked."
            )
        ran = await _run(config, server, box, tool, given)
        typer.echo(f"{name} in a box, {words}: {visible(ran.problem) or f'works, {ran.tools} tools'}", err=True)
        if not ran.problem:
            typer.echo(snippet(config, server, box))
            typer.echo(_note(tool, box), err=True)
            return 0
    printing.fail(f"{visible(server.name)} works in no box. Run it as a user of its own, or in a container.")


def _agreed(name: str, words: str) -> bool:
    typer.echo(
        f"The next box would let {name} do more: {words}. A server may fail in tighter ones to get it.", err=True
    )
    return printing.can_ask() and typer.confirm(f"Start {name} in it?", err=True)


def _words(server: Server, box: ServerBox) -> str:
    confines = msgspec.structs.replace(server, box=box).confines
    assert confines
    return visible(confines.words())


def _arguments(written: str) -> Raw:
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        printing.fail("--arguments must be a JSON object", 2)
    return Raw(jsonrpc.encode(found))


async def _run(config: Config, server: Server, box: ServerBox, tool: str, arguments: Raw) -> Ran:
    """Start it, have it list, and call one tool of it if one is named."""
    patience = min(server.start_timeout, PATIENCE)
    tried = msgspec.structs.replace(server, box=box, enabled=True, start="", start_timeout=patience)
    alone = Config(
        servers=(tried,), sandbox=config.sandbox, state=config.state, source=config.source, known=config.known
    )
    async with running(alone) as app:
        gateway = gateways.Own(app)
        status, said = await gateway.ask("POST", f"/servers/{server.id}/check")
        if status >= 400:
            return Ran(gateways.explained(said))
        checked = msgspec.json.decode(said, type=Checked)
        if checked.fault:
            last = "; ".join(checked.stderr.strip().splitlines()[-1:])
            problem = checked.error or checked.fault.error
            return Ran(problem if not last or last in problem else f"{problem} ({last})")
        ran = Ran(tools=len(checked.tools))
        if tool:
            ran.problem = await _called(gateway, f"{server.id}__{tool}", arguments)
        return ran


async def _called(gateway: gateways.Own, tool: str, arguments: Raw) -> str:
    status, said = await gateway.ask("POST", "/call", {"tool": tool, "arguments": arguments})
    if status >= 400:
        return gateways.explained(said)
    result: Any = msgspec.json.decode(said).get("result", {})
    if not result.get("isError"):
        return ""
    text = " ".join(each.get("text", "") for each in result.get("content", ()))
    return f"{tool} failed: {text[:300]}"


def snippet(config: Config, server: Server, box: ServerBox) -> str:
    """What to write into the configuration, in the format of its file."""
    value = kind_of_box.write(box, False)
    if Path(config.source).suffix == ".toml":
        return f"[mcpServers.{tomlkit.key(server.name).as_string()}]\nbox = {_inline(value)}"
    whole = {"mcpServers": {server.name: {"box": value}}}
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _inline(value: Any) -> str:
    """On one line, as TOML: JSON's texts, numbers and lists are TOML's, too."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return f"{{ {', '.join(f'{key} = {_inline(each)}' for key, each in pairs)} }}"
    return json.dumps(value, ensure_ascii=False)


def _note(tool: str, box: ServerBox) -> str:
    if box.level == "profile":
        return "This is what servers of its package need. Add this key to the server in the configuration."
    did = f"started it, listed its tools and called {tool}" if tool else "started it and listed its tools"
    more = "" if tool else " Try one that needs files or the network with --call TOOL --arguments JSON."
    return f"Seen in one run that {did}; what other tools need was not seen.{more} Add this key to the server."
