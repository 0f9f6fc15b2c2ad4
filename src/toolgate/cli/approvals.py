"""`toolgate approvals`: an operator decides on calls that wait, in a process of its own; a running gateway sees it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer

from toolgate.auth import safe_text
from toolgate.cli import common, printing
from toolgate.config import Config, state_folder
from toolgate.core.clock import SystemClock
from toolgate.policy import approval_requests
from toolgate.policy.approvals import LASTS, Approvals, Grant, Lasts, StoredRequest, TooMany, Unfit
from toolgate.policy.checker import Checker
from toolgate.policy.deciding import Deciding
from toolgate.state import SqliteStore, Unusable, audit
from toolgate.state.base import NotKept

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Decide on calls that need approval.")

Id = Annotated[str, typer.Argument(help="The id, as shown by `toolgate approvals list` and by the refused call.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Lasting = Annotated[
    str,
    typer.Option("--for", metavar="PERIOD", help=f"{', '.join(LASTS)}. Every choice but `once` allows any arguments."),
]
Edited = Annotated[str | None, typer.Option("--arguments", help="Arguments to use instead of those shown, as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

LOOK = 0.5  # seconds between looks at what waits

Kept = TypeVar("Kept", StoredRequest, Grant)


@app.command("list", help="List calls that wait for a decision, and decisions not used yet.")
def listing(config: common.ConfigPath = None, as_json: AsJson = False) -> None:
    async def work() -> None:
        async with _opened(common.load_config(config)) as deciding:
            _print([_request_line(each) for each in deciding.approvals.requests()], "no calls are waiting", as_json)

    common.run(work())


@app.command(help="Print each call that needs a decision as it arrives, until Ctrl-C.")
def watch(config: common.ConfigPath = None, as_json: AsJson = False) -> None:
    common.run(_watch(common.load_config(config), as_json))


async def _watch(config: Config, as_json: bool) -> None:
    where = f" --config {shlex.quote(config.source)}" if config.source else ""
    seen: set[str] = set()
    async with _opened(config) as deciding:
        while True:
            waiting = [each for each in deciding.approvals.requests() if each.state == "undecided"]
            for request in (each for each in waiting if each.id not in seen):
                if as_json:
                    typer.echo(json.dumps(_row(request)))
                else:
                    typer.echo(
                        f"{described(request)}\n- Decide: toolgate approvals allow {request.id}{where} (or deny)\n"
                    )
            seen = {each.id for each in waiting}
            await asyncio.sleep(LOOK)


@app.command(help="Show one call: server, tool and arguments.")
def show(id: Id, config: common.ConfigPath = None, as_json: AsJson = False) -> None:
    async def work() -> None:
        async with _opened(common.load_config(config)) as deciding:
            request = _found(deciding.request, id)
            typer.echo(json.dumps(_row(request), indent=2) if as_json else described(request))

    common.run(work())


@app.command(help="Show a call, then allow it.")
def allow(
    id: Id, lasts: Lasting = "once", arguments: Edited = None, yes: Yes = False, config: common.ConfigPath = None
) -> None:
    for each in LASTS:
        if each == lasts:
            return common.run(_allow(common.load_config(config), id, each, arguments or "", yes))
    printing.fail(f"--for {lasts} is not valid: choose one of {', '.join(LASTS)}", 2)


async def _allow(config: Config, id: str, lasts: Lasts, arguments: str, yes: bool) -> None:
    async with _opened(config) as deciding:
        request = _found(deciding.request, id)
        typer.echo(described(request))
        if arguments:
            try:
                await deciding.check_arguments(request, arguments)
            except Unfit as why:
                printing.fail(f"--arguments {why}", 2)
            typer.echo("\n".join(("It will be called with these arguments instead:", *_laid_out(arguments))))
        if not yes:
            typer.confirm(_TITLES[lasts], abort=True)
        await deciding.allow(request, lasts, config.approvals.ttl, arguments, audit.operator())
        typer.echo("allowed")


@app.command(help="Deny a call, and the same call again until the request expires.")
def deny(id: Id, config: common.ConfigPath = None) -> None:
    async def work(config: Config) -> None:
        async with _opened(config) as deciding:
            await deciding.deny(_found(deciding.request, id), config.approvals.ttl, audit.operator())
            typer.echo("denied")

    common.run(work(common.load_config(config)))


@app.command(help="List the tools that may be called without asking.")
def grants(config: common.ConfigPath = None, as_json: AsJson = False) -> None:
    async def work() -> None:
        async with _opened(common.load_config(config)) as deciding:
            _print([_grant_line(each) for each in deciding.approvals.grants()], "no grants", as_json)

    common.run(work())


@app.command(help="Revoke a grant, so that the tool asks again.")
def revoke(id: Id, config: common.ConfigPath = None) -> None:
    async def work() -> None:
        async with _opened(common.load_config(config)) as deciding:
            await deciding.revoke(_found(deciding.grant, id), audit.operator())
            typer.echo("revoked")

    common.run(work())


@asynccontextmanager
async def _opened(config: Config) -> AsyncGenerator[Deciding]:
    """Decisions for all gateways of this state folder, or the end of the command."""
    clock = SystemClock()
    try:
        store = SqliteStore(state_folder(config, os.environ), clock)
    except Unusable as why:
        printing.fail(f"Cannot read the waiting calls: {why}")
    try:
        async with audit.opened(config, os.environ, clock, store) as trail:
            yield Deciding(Approvals(store, clock), trail, Checker())
    except NotKept as why:
        printing.fail(f"No decision was made: {why.whole}")
    except (TooMany, Unfit) as why:
        printing.fail(f"No decision was made: {why}")
    finally:
        await store.close()


def _found(find: Callable[[str], Kept], id: str) -> Kept:
    """What has that id, or the end of the command."""
    try:
        return find(id)
    except Unfit as why:
        printing.fail(str(why))


_TITLES: dict[Lasts, str] = {
    "once": "Allow this one call?",
    "session": "Allow this tool, with any arguments, until that session ends?",
    "hour": "Allow this tool, with any arguments, for an hour?",
    "always": "Allow this tool, with any arguments, until you revoke it?",
}


def described(request: StoredRequest) -> str:
    facts = approval_requests.facts(request.place, request.via, request.known_as)
    who = f"- Caller: {safe_text.named(request.place.principal)}"
    state = f"- State: {request.state}, {_left(request.until)}"
    shown = safe_text.read(request.shown)
    beside = approval_requests.beside(safe_text.read(request.beside))
    told = (*approval_requests.consequence(request.place, shown), *approval_requests.arguments(shown), *beside)
    return "\n".join((who, *facts, *told, f"- SHA-256: {request.digest}", state))


def _laid_out(arguments: str) -> Sequence[str]:
    return list(safe_text.laid_out(safe_text.read(arguments), "    "))


def _left(until: float | None) -> str:
    """How long that holds, for people."""
    if until is None:
        return "until it is revoked"
    minutes = max(0.0, until - SystemClock().wall()) / 60
    return f"for another {minutes / 60:.0f} h" if minutes > 120 else f"for another {minutes:.0f} min"


def _row(request: StoredRequest) -> dict[str, Any]:
    place = request.place
    return {
        "id": request.id,
        "state": request.state,
        "principal": place.principal,
        "server": place.server,
        "kind": place.kind,
        "target": place.target,
        "via": request.via,
        "arguments": request.shown,
        "beside": request.beside,
        "sha256": request.digest,
        "until": request.until,
    }


def _request_line(request: StoredRequest) -> tuple[str, dict[str, Any]]:
    place = request.place
    named = f"{safe_text.named(place.server)} {safe_text.named(place.target)} for {safe_text.named(place.principal)}"
    return f"{request.id}  {request.state}, {_left(request.until)}  {named}", _row(request)


def _grant_line(grant: Grant) -> tuple[str, dict[str, Any]]:
    place = grant.place
    named = f"{safe_text.named(place.server)} {safe_text.named(place.target)} for {safe_text.named(place.principal)}"
    row = {
        "id": grant.id,
        "lasts": grant.lasts,
        "by": grant.by,
        "principal": place.principal,
        "server": place.server,
        "kind": place.kind,
        "target": place.target,
        "until": grant.until,
    }
    return f"{grant.id}  {grant.lasts}, {_left(grant.until)}  {named}  (by the {grant.by})", row


def _print(lines: Sequence[tuple[str, dict[str, Any]]], otherwise: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([row for _, row in lines], indent=2))
    else:
        typer.echo("\n".join(line for line, _ in lines) or otherwise)
