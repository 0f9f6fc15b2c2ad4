"""`toolgate add`: one server into the user's configuration file. Nothing is started."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, own_file, printing
from toolgate.config import secrets, telling
from toolgate.core.names import slug
from toolgate.state import own_config

app = typer.Typer(add_completion=False)

HELP = """Add a server to your configuration file; its comments stay. Nothing is started.

    toolgate add time -- uvx mcp-server-time
    toolgate add docs https://docs.example.com/mcp --header "Authorization: Bearer abc"

Values that look like secrets go into the file of secrets, and a reference takes their place."""

_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@app.command(help=HELP)
def add(
    name: Annotated[str, typer.Argument(help="The name of the server.")],
    words: Annotated[
        list[str], typer.Argument(metavar="URL | -- COMMAND [ARGS...]", help="Where it is, or what starts it.")
    ],
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=VALUE]", help="A variable of its program; without a value it is passed on."),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A variable whose value is a secret; it is prompted for, or read from stdin."
        ),
    ] = None,
    header: Annotated[list[str] | None, typer.Option(metavar='"NAME: VALUE"', help="A header of each request.")] = None,
    type: Annotated[str, typer.Option(help="How it is reached, where that is not plain: sse, ws, component.")] = "",
    cwd: Annotated[str, typer.Option(metavar="FOLDER", help="The folder to start it in.")] = "",
    timeout: Annotated[str, typer.Option(help="How long a call may take, such as 90s.")] = "",
    oauth: Annotated[bool, typer.Option("--oauth", help="Sign in to it: toolgate connect NAME.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="In place of a server of this name.")] = False,
    keep_secrets: Annotated[bool, typer.Option("--keep-secrets", help="Leave secrets in the configuration.")] = False,
    config: common.ConfigPath = None,
) -> None:
    own = own_file.opened(config)
    taken = {slug(each): each for each in own.servers}
    if slug(name) in taken and not replace:
        printing.fail(f"{visible(taken[slug(name)])} is in {own.path} already: give another name, or --replace")
    table = _table(words, env or [], header or [], type=type, cwd=cwd, timeout=timeout, oauth=oauth)
    kept = {f"{slug(name)}-{slug(each)}": (each, _prompted(each)) for each in secret or ()}
    if kept:
        table["env"] = {**table.get("env", {}), **{each: f"${{secret:{key}}}" for key, (each, _) in kept.items()}}
    extraction = own_config.extraction(own)
    table = table if keep_secrets else extraction.of(name, table)
    found = {**extraction.found, **{key: value for key, (_, value) in kept.items()}}
    written = taken.get(slug(name), name)
    text = own_config.edited(own, {written: table})
    own_config.written(own, text, "add", (written,), found)
    printing.say(f"+ {visible(written)}, in {own.path}")
    for line in telling.of_table(table):
        printing.say(f"    {visible(line)}")
    if found:
        printing.say(f"secrets, in {own.secrets_file}: {', '.join(found)}")
    printing.say(f"Try it: toolgate test {slug(written)}")


def _table(
    words: list[str], env: list[str], headers: list[str], *, type: str, cwd: str, timeout: str, oauth: bool
) -> dict[str, Any]:
    """A native table, as `own_config.tables` has them."""
    first, is_url = words[0], bool(re.match(r"(?:https?|wss?)://", words[0]))
    if is_url and len(words) > 1:
        printing.fail("Give a URL, or `--` and a command with its arguments", 2)
    kind = type or ("ws" if first.startswith("ws") else "http") if is_url else type or "stdio"
    table: dict[str, Any] = {"type": kind, **({"url": first} if is_url else {"command": first})}
    if words[1:]:
        table["args"] = words[1:]
    if env:
        table["env"] = dict(_assigned(each) for each in env)
    if headers:
        table["headers"] = dict(_header(each) for each in headers)
    more = {"cwd": cwd, "timeout": timeout, "auth": "oauth" if oauth else ""}
    return {**table, **{key: value for key, value in more.items() if value}}


def _assigned(written: str) -> tuple[str, str]:
    name, is_given, value = written.partition("=")
    if not _variable.fullmatch(name):
        printing.fail("--env takes NAME=VALUE, or NAME for a variable that is passed on", 2)
    return name, value if is_given else f"${{{name}}}"


def _header(written: str) -> tuple[str, str]:
    name, is_given, value = written.partition(":")
    if not is_given or not name.strip():
        printing.fail('--header takes "NAME: VALUE"', 2)
    return name.strip(), value.strip()


def _prompted(name: str) -> str:
    if not _variable.fullmatch(name):
        printing.fail("--secret takes the name of a variable; its value is prompted for", 2)
    if sys.stdin.isatty():
        return str(typer.prompt(f"Value of {name}", hide_input=True, err=True))
    value = sys.stdin.readline(secrets.LONGEST_SECRET).removesuffix("\n")
    return value or printing.fail(f"The value of {name} is empty", 2)
