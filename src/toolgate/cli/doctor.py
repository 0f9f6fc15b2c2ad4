"""`toolgate doctor`: the configuration, the disk and every server looked at; each problem, and how to fix it.

What runs already is not started again: where a gateway runs with this configuration, its servers are looked at. Each
server is printed as soon as it has answered. The exit code is 0 where all is well, 1 where something is wrong, and 2
where the configuration cannot be read.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw
from rich.console import Console
from rich.markup import escape

from toolgate import __version__
from toolgate import state as stores
from toolgate.auth.cross_checks import problems
from toolgate.auth.safe_net import SafeNet
from toolgate.catalog import pins, poisoning
from toolgate.catalog.pins import StoredPins
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, progress, suggesting
from toolgate.cli.checked import Checked, fix_for, unprovoked, what_it_has
from toolgate.cli.gateways import Reached
from toolgate.config import Config, Server, permission_names, state_folder
from toolgate.config.providers import Provider
from toolgate.core import items
from toolgate.core.fault import Fault as CoreFault
from toolgate.frontends import operator
from toolgate.sandbox.services import described
from toolgate.search.folder import LocalModel, NoModel
from toolgate.state import audit
from toolgate.state.sqlite import FILE
from toolgate.upstreams import checks
from toolgate.upstreams.process import confinement
from toolgate.upstreams.providers.services import looked_at

app = typer.Typer(add_completion=False)

MOST_LOOKS = 5  # suspicious texts of one server
LEAST_SPACE = 100 * 1024 * 1024  # bytes that are to be free where the state and the audit are written


class Finding(msgspec.Struct, kw_only=True):
    """What is said of one thing that was looked at. `is_off`: it is not used, or cannot be, and nothing is wrong; `fix`
    is what to do about a problem; `looks` are what a person is to look at, although nothing is wrong; `names` are a
    server's own names of its tools; `box` is what a server's program may do, if it is in one."""

    name: str
    is_ok: bool
    is_off: bool = False
    says: str = ""
    fix: str = ""
    looks: tuple[str, ...] = ()
    box: str = ""
    stderr: tuple[str, ...] = ()
    tools: int | None = None
    revision: str = ""
    names: tuple[str, ...] = ()


@app.command(
    help="Check the configuration, the disk and every server; report each problem and how to fix it. "
    "Exits with 0 if all is well, 1 if there are problems, 2 if the configuration cannot be read."
)
def doctor(
    config: common.ConfigPath = None,
    server: Annotated[str | None, typer.Option(help="Only this server, with the end of its stderr.")] = None,
    ask: Annotated[
        bool, typer.Option("--providers", help="Ask each provider whether it knows its key and its model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    boxed: Annotated[
        str | None,
        typer.Option(
            "--suggest-sandbox",
            metavar="SERVER",
            help="Only this: start this stdio server in boxes, from the tightest on, and print the first that works.",
        ),
    ] = None,
    call: Annotated[str, typer.Option(help="With --suggest-sandbox: a tool to call in each box that is tried.")] = "",
    arguments: Annotated[str, typer.Option(help="With --call: its arguments as JSON.")] = "{}",
    yes: Annotated[
        bool, typer.Option("--yes", help="With --suggest-sandbox: try boxes with a network or all files unasked, too.")
    ] = False,
) -> None:
    settings = common.require_servers(common.load_whole(config))
    if boxed is not None:
        tried = common.find_server(settings, boxed)
        raise typer.Exit(common.run(suggesting.suggest(settings, tried, call, arguments, yes)))
    only = common.find_server(settings, server) if server is not None else None
    raise typer.Exit(common.run(_doctor(settings, only, ask, as_json)))


async def _doctor(config: Config, only: Server | None, ask: bool, as_json: bool) -> int:
    console = Console(highlight=False, quiet=as_json)
    console.print(f"toolgate {__version__}, Python {platform.python_version()}, {sys.platform}")
    if not sys.platform.startswith("linux"):
        console.print(
            "  on this system, grandchildren that leave their process group are not found when the gateway is killed"
        )
    console.print(f"configuration: {escape(config.source or 'none')}", soft_wrap=True)
    with progress.waiting("looking at this machine"):
        general = [*_configuration(config), *_disk(config), *await _quarantine(config), *_code(config), *_boxes(config)]
        general += [*_model(config), *await _providers(config, ask)]
    for found in general:
        _print(console, found)
    async with gateways.reached(config, lambda: config) as gateway:
        waiting = await _waiting(gateway)
        general += waiting
        for found in waiting:
            _print(console, found)
        pending = await _pending(config)
        examined = [found for found in config.servers if only in (None, found)]
        looks = [_examined(gateway, config, found, pending.get(found.id, ()), only is not None) for found in examined]
        servers: list[Finding] = []
        with progress.waiting("starting the servers and listing their tools") as wait:
            for done in asyncio.as_completed(looks):
                wait.is_at(len(servers), len(looks))
                servers.append(await done)
                _print(console, servers[-1])
        shared = _shared_names(examined, servers)
        general += shared
        for found in shared:
            _print(console, found)
    wrong = [found.name for found in (*general, *servers) if not found.is_ok]
    if as_json:
        typer.echo(json.dumps(_report(config, general, servers), indent=2))
    console.print(_summary(servers, wrong), soft_wrap=True)
    return 1 if wrong else 0


# The gateway itself.


async def _waiting(gateway: Reached) -> list[Finding]:
    """Why the configuration as it stands now is not served, or not noted, by a gateway that runs."""
    problem = (await gateways.value(gateway, "GET", "/status")).get("problem")
    return [Finding(name="the running gateway", is_ok=False, says=problem)] if problem else []


async def _quarantine(config: Config) -> list[Finding]:
    """Whether it is known which tools were trusted, where others are in quarantine."""
    where = state_folder(config, os.environ)
    if not where.exists():
        return []
    async with stores.opened(where) as store:
        why = await pins.trouble(config, store)
    says = f"unpinned tools are quarantined: {why}"
    fix = "repair the store, or review and approve them: toolgate pins diff"
    return [Finding(name="quarantine", is_ok=False, says=says, fix=fix)] if why else []


def _configuration(config: Config) -> list[Finding]:
    return [Finding(name="configuration", is_ok=False, says=str(problem)) for problem in problems(config)]


def _disk(config: Config) -> list[Finding]:
    """Whether what the gateway has to write can be written, and whether there is room for it."""
    places = {"state": state_folder(config, os.environ)}
    if audit.is_on(config):
        places["audit"] = audit.place(config, os.environ)
    found: list[Finding] = []
    for name, place in places.items():
        why, key = audit.trouble(place) if name == "audit" else _folder_trouble(place), f"{name}.path"
        fix = f"give this user write access, or set another path as `{'state' if name == 'state' else key}`"
        if not why and (free := shutil.disk_usage(_existing(place)).free) < LEAST_SPACE:
            why, fix = f"only {free // 2**20} MiB are free at {place}", "free some space on that disk"
        if why or name == "audit":
            found.append(Finding(name=name, is_ok=not why, says=why or str(place), fix=fix if why else ""))
    if why := operator.trouble(operator.place(config, os.environ)):
        found.append(Finding(name="socket", is_ok=False, says=f"commands reach no gateway that runs: {why}"))
    return found


def _code(config: Config) -> list[Finding]:
    """What runs code of clients, and what keeps it in. Where it cannot run, nothing is wrong: nobody may want it."""
    return [
        Finding(name=f"code in {language}", is_ok=True, is_off=not runs, says=says)
        for language, (says, runs) in described(config).items()
    ]


def _boxes(config: Config) -> list[Finding]:
    """Whether this machine has what the boxes of servers are put on with, where there are any."""
    wanted = [server.name for server in config.servers if server.enabled and server.confines]
    if not wanted:
        return []
    lacking = "; ".join(confinement.missing(confinement.Box()))
    has = f"{len(wanted)} of {len(config.servers)} servers in a box, by {confinement.layers().words}"
    if not lacking:
        return [Finding(name="boxes", is_ok=True, says=has)]
    if not config.sandbox.require_boxes:
        return [
            Finding(name="boxes", is_ok=True, says=has, looks=(f"they are not whole: this machine lacks {lacking}",))
        ]
    fix = "use Linux 6.12 or newer with landlock and seccomp; or set sandbox.require_boxes = false to start them anyway"
    return [Finding(name="boxes", is_ok=False, says=f"cannot be put on: this machine lacks {lacking}", fix=fix)]


def _model(config: Config) -> list[Finding]:
    """The model on this machine that searches by meaning: it is loaded, and makes a word a vector."""
    folder = config.virtual_search.model
    if not folder:
        return []
    try:
        (vector,) = LocalModel(Path(folder)).embed(("tool",))
    except NoModel as why:
        return [Finding(name="model", is_ok=False, says=str(why), fix="see virtual_search.model in the configuration")]
    return [Finding(name="model", is_ok=True, says=f"{folder} makes vectors of {len(vector)} numbers")]


async def _providers(config: Config, ask: bool) -> list[Finding]:
    """Which models may be asked, and for what. They are asked for nothing, and only where that is wanted for whether
    they know the key and the model."""
    net = SafeNet(config.guard.allow_hosts)
    return [await _provider(name, provider, net, ask) for name, provider in config.providers.items()]


async def _provider(name: str, provider: Provider, net: SafeNet, ask: bool) -> Finding:
    key = "with a key" if provider.key else "without a key"
    uses = ", ".join(provider.uses) or "nothing"
    says = f"{provider.model} at {visible(provider.host)}, {key}, for {uses}"
    finding = Finding(name=f"provider {name}", is_ok=True, says=says)
    if provider.problem:
        return Finding(name=finding.name, is_ok=False, says=provider.problem)
    if not ask:
        return finding
    try:
        is_ok, look = await looked_at(name, provider, net)
    except CoreFault as fault:
        is_ok, look = False, str((fault.__cause__ or fault).args[0])
    if not is_ok:
        return Finding(name=finding.name, is_ok=False, says=look, fix=f"see providers.{name} in the configuration")
    finding.says = f"{says}; it answers"
    finding.looks = (visible(look),) if look else ()
    return finding


def _folder_trouble(folder: Path) -> str:
    there = _existing(folder)
    return "" if there.is_dir() and os.access(there, os.W_OK) else f"{there} cannot be written to"


def _existing(place: Path) -> Path:
    """The place itself, or the folder above it that there is."""
    return next(path for path in (place, *place.absolute().parents) if path.exists())


# Servers.


async def _examined(
    gateway: Reached, config: Config, server: Server, pending: Collection[str], is_only: bool
) -> Finding:
    name = visible(server.name)
    if not server.enabled:
        return Finding(name=name, is_ok=True, is_off=True, says="disabled")
    status, said = await gateway.ask("POST", f"/servers/{server.id}/check")
    if status >= 400:
        return Finding(name=name, is_ok=False, says=gateways.explained(said))
    checked = msgspec.json.decode(said, type=Checked)
    words = unprovoked(checked.stderr).splitlines()[-(30 if is_only else 5) :]
    stderr = tuple(visible(line) for line in words)
    if checked.fault:
        says = visible(checked.error or checked.fault.error)
        fix = visible(fix_for(server, checked))
        box = visible(checked.box)
        looks = tuple(map(visible, _at_rest(server)))
        return Finding(
            name=name, is_ok=False, says=says, fix=fix, box=box, stderr=stderr, revision=checked.revision, looks=looks
        )
    tools = checked.tools
    names = tuple(items.read(raw).name for raw in tools)
    unmet = permission_names.unmet(config.clients, server.id, names) if tools else ()
    odd = [*checked.ignored, *_at_rest(server), *(each.says for each in checks.of_names({server.id: names}))]
    return Finding(
        name=name,
        is_ok=True,
        says=what_it_has(len(tools), checked.revision),
        looks=(*_to_be_looked_at(server, tools, pending), *unmet, *map(visible, odd)),
        names=names,
        box=visible(checked.box),
        stderr=stderr if is_only else (),
        tools=len(tools),
        revision=checked.revision,
    )


def _at_rest(server: Server) -> list[str]:
    """What its configuration shows, but for what its error says as well."""
    found = checks.of_server(server, os.environ) if not server.problem else ()
    return [each.says for each in found if each.check not in ("commands", "versions")]


def _shared_names(examined: Sequence[Server], found: Sequence[Finding]) -> list[Finding]:
    """Tools of several servers with one name: clients see them under the servers' names."""
    names = {each.name: each.names for each in found}
    listed = {server.id: names.get(visible(server.name), ()) for server in examined}
    return [Finding(name="names", is_ok=True, says=each.says) for each in checks.shared(listed)]


async def _pending(config: Config) -> Mapping[str, Collection[str]]:
    """Tools that are not as they were pinned, by server, as gateways that ran have seen them."""
    where = state_folder(config, os.environ)
    if not (where / FILE).is_file():
        return {}
    async with stores.opened(where) as store:
        server_lists = StoredPins(store, config.source)
        return {server.id: server_lists.pending(server.id) for server in config.servers}


def _to_be_looked_at(server: Server, tools: Sequence[Raw], pending: Collection[str]) -> list[str]:
    looks = [f"{len(pending)} of its tools need approval: toolgate pins diff {server.id}"] if pending else []
    found = [(items.read(raw).name, each) for raw in tools for each in poisoning.of(raw)]
    looks += [f"{visible(name)[:100]}: {each}" for name, each in found[:MOST_LOOKS]]
    return [*looks, f"and {len(found) - MOST_LOOKS} more"] if len(found) > MOST_LOOKS else looks


# What is printed.


def _print(console: Console, found: Finding) -> None:
    with progress.aside():
        _print_lines(console, found)


def _print_lines(console: Console, found: Finding) -> None:
    mark = "–" if found.is_off else "[green]✓[/]" if found.is_ok else "[red]✗[/]"
    console.print(f"{mark} {escape(found.name)}: {escape(visible(found.says))}", soft_wrap=True)
    if found.fix:
        console.print(f"    fix: {escape(found.fix)}", soft_wrap=True)
    if found.box:
        console.print(f"    in a box, {escape(found.box)}", soft_wrap=True)
    for line in found.looks:
        console.print(f"    [yellow]look:[/] {escape(line)}", soft_wrap=True)
    for line in found.stderr:
        console.print(f"    [dim]stderr:[/] {escape(line)}", soft_wrap=True)


def _summary(servers: Sequence[Finding], wrong: Sequence[str]) -> str:
    tools = sum(found.tools or 0 for found in servers)
    whole = f"{len(servers)} {'server' if len(servers) == 1 else 'servers'}, {tools} tools"
    if not wrong:
        return f"All is well: {whole}."
    return f"{whole}; problems: {len(wrong)} ({', '.join(map(escape, wrong))})."


def _report(config: Config, general: Sequence[Finding], servers: Sequence[Finding]) -> dict[str, Any]:
    def row(found: Finding) -> dict[str, Any]:
        kept = {key: value for key, value in msgspec.structs.asdict(found).items() if value not in ("", (), None)}
        kept.pop("names", None)
        return {"ok" if key == "is_ok" else key: value for key, value in kept.items()}

    return {
        "ok": all(found.is_ok for found in (*general, *servers)),
        "version": __version__,
        "configuration": config.source,
        "checks": [row(found) for found in general],
        "servers": [row(found) for found in servers],
    }
