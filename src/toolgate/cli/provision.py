"""`toolgate provision WORDS`: find a server for what is needed, show its gates and what it would run, and add it.

The rule this file keeps: what was shown is what is added; a person says yes to it, or it has passed every gate.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing, progress
from toolgate.cli.gateways import Reached
from toolgate.core import names
from toolgate.provision.choosing import Lacking, server_of

app = typer.Typer(add_completion=False)

HELP = """Find a server for what you need, show its gates and the exact command, and add it.

It is added after you have said yes. With --yes nobody is asked, and it is added only if it passes every gate.
"""


@app.command(help=HELP)
def provision(
    words: common.Words,
    config: common.ConfigPath = None,
    choice: Annotated[str, typer.Option("--server", metavar="NAME", help="The match to add. Default: the first.")] = "",
    variables: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable of the server; VALUE may be ${secret:NAME}."),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Look for a server even if a tool can do it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the gates, and add nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; add it only if it passes every gate.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, and add nothing.")] = False,
) -> None:
    given = _read_variables(variables or [])
    how = (anyway, dry_run or as_json, yes, as_json)
    raise typer.Exit(common.run(_provision(" ".join(words), config, choice, given, how)))


def _read_variables(written: Sequence[str]) -> Mapping[str, str]:
    for each in written:
        if "=" not in each or each.startswith("="):
            printing.fail(f"--env must be NAME=VALUE, not {each}", 2)
    return {name: value for name, _, value in (each.partition("=") for each in written)}


async def _provision(
    words: str, path: str | None, choice: str, given: Mapping[str, str], how: tuple[bool, bool, bool, bool]
) -> int:
    anyway, is_dry, is_sure, as_json = how
    config = common.load_config(path)
    async with gateways.reached_to_change(config, lambda: common.open_settings(path, is_told=True)) as gateway:
        further = {"source": "registry"} if anyway or not config.servers else {}
        with progress.waiting("looking for servers, and at their packages"):
            found = await gateways.told(gateway, "mcp_provision", intent=words, dryRun=True, **further)
        if as_json:
            typer.echo(json.dumps(found))
            return 0 if found["source"] != "none" else 1
        for note in found.get("notes", ()):
            typer.echo(visible(note), err=True)
        if found["source"] == "local":
            typer.echo("\n".join(_of_tools(found["tools"])))
            return 0
        if not found["matches"]:
            typer.echo("Nothing fits. Say what you need in other words.")
            return 1
        match = _chosen(found["matches"], choice)
        typer.echo("\n".join((*_others(found["matches"], match), *_shown(match))))
        return 0 if is_dry else await _add(gateway, match, given, is_sure)


def _of_tools(tools: Sequence[Any]) -> Iterator[str]:
    yield "A tool of your servers can do that:"
    for each in tools:
        named = names.join_name(names.slug(each["server"]), each["tool"])
        yield f"  {visible(named)}  {each['confidence']:.2f}  {visible(each['description'])}"
    yield "To look for a server all the same: --anyway"


def _chosen(matches: Sequence[Any], choice: str) -> Any:
    if not choice:
        return matches[0]
    known = {each["name"]: each for each in matches} | {each["server"]["name"]: each for each in matches}
    if choice not in known:
        printing.fail(f"--server {visible(choice)} was not found; there are {', '.join(map(visible, known))}", 2)
    return known[choice]


def _others(matches: Sequence[Any], match: Any) -> Iterator[str]:
    for each in matches:
        if each is not match:
            yield f"also: {visible(each['name'])}  {each['confidence']:.2f}  {visible(each['installCommand'])}"


def _shown(match: Any) -> Iterator[str]:
    yield f"{visible(match['name'])}: {visible(match['description'])}"
    yield f"  source      {visible(match['source'])}"
    yield f"  would run   {visible(match['installCommand'])}"
    for gate in match["gates"]:
        fix = f" ({gate['fix']})" if gate.get("fix") else ""
        yield f"  {'passed' if gate['passed'] else 'FAILED'}  {gate['gate']:<10}  {visible(gate['why'] + fix)}"


async def _kept(gateway: Reached, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """By what the server starts the file of its package that is there now, whatever its registry has later. Where that
    file is not to be had, that is said."""
    if "command" not in table:
        return {}
    with progress.waiting("fetching its package"):
        wanted = {"command": table["command"], "args": table["args"]}
        status, said = await gateway.ask("POST", "/packages", wanted)
    if status == 200:
        return json.loads(said)
    runner = visible(str(table["command"]))
    typer.echo(f"Its file was not kept, so {runner} fetches it at each start: {gateways.explained(said)}", err=True)
    return {}


async def _add(gateway: Reached, match: Any, given: Mapping[str, str], is_sure: bool) -> int:
    try:
        table = server_of(match, given)
    except Lacking as lacking:
        first = next(iter(lacking.needs))
        words = shlex.quote("${secret:" + first + "}")
        printing.fail(
            f"{lacking}. Store it, then name it: toolgate secrets set {first}; "
            f"toolgate provision … --env {first}={words}"
        )
    failed = [gate["gate"] for gate in match["gates"] if not gate["passed"]]
    failed = [name for name in failed if name != "configured"]  # what it needs is given now
    if is_sure and failed:
        printing.fail(f"Not added: it does not pass {', '.join(failed)}. To decide yourself, leave out --yes")
    if not is_sure:
        if not printing.can_ask():
            printing.fail("Nothing was added. To add it without being asked, give --yes")
        if "env" in table:
            typer.echo(f"It gets these variables: {', '.join(map(visible, table['env']))}")
        typer.confirm(f"Add it as {table['name']}?", abort=True)
    table |= await _kept(gateway, table)
    added = await gateways.value(gateway, "POST", "/servers", table)
    typer.echo(f"added {visible(added['name'])}")
    checked = await gateways.value(gateway, "POST", f"/servers/{added['id']}/check")
    if "fault" in checked:
        fault = checked["fault"]
        hint = f" ({fault['hint']})" if fault.get("hint") else ""
        remove = f"To remove it: toolgate servers remove {added['id']}"
        printing.fail(f"It did not start: {fault['error']}{hint}. {remove}")
    for raw in checked.get("tools", ()):
        typer.echo(f"  {visible(names.join_name(added['id'], raw['name']))}")
    return 0
