"""`toolgate keys`: the keys that clients show. A key is printed once, alone; only its hash is kept."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar

import typer

from toolgate.auth import keys
from toolgate.catalog import served
from toolgate.cli import common, printing
from toolgate.config import Config, access_shapes, state_folder
from toolgate.config.values import Wrong
from toolgate.core.clock import SystemClock
from toolgate.state import audit
from toolgate.state.base import NotKept, Store
from toolgate.state.opening import Unusable
from toolgate.state.sqlite import SqliteStore

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Create, list, revoke and rotate client keys.")

Result = TypeVar("Result")

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

_HERE = "`toolgate keys list` shows all ids and their clients."

KeyId = Annotated[str, typer.Argument(help="The key's id, as `toolgate keys list` shows it.")]
Expires = Annotated[str, typer.Option("--expires", help="Lifetime of the key, such as 12h or 90d. Default: no expiry.")]


@app.command(help="Create a key for a configured client and print it. It cannot be printed again.")
def create(
    client: Annotated[str, typer.Argument(help="The client's id.")],
    expires: Expires = "",
    config: common.ConfigPath = None,
) -> None:
    found = common.load_config(config)
    lasts = _seconds(expires, "--expires") if expires else None
    _require_client(found, client)
    id, key = _run(found, lambda store: keys.create(store, client, time.time(), lasts))
    _print(key, f"The key {id} was created for {client}; it will not be shown again.")
    _note(found, "keys.create", key=id, client=client, expires=expires)


@app.command("list", help="List the keys: id, client and expiry.")
def list_(config: common.ConfigPath = None) -> None:
    found = common.load_config(config)
    configured = {client.id: client for client in found.clients}

    async def read(store: Store) -> tuple[dict[str, keys.Record], Mapping[str, float]]:
        return keys.records(store), served.since(store, found)

    made, since = _run(found, read)
    for id, record in sorted(made.items(), key=lambda each: (each[1].client, each[1].made)):
        client = configured.get(record.client)
        remark = "" if client and client.enabled else " (client disabled)" if client else " (no such client)"
        if client and record.made < since.get(record.client, 0.0):
            remark += " (from before this client was configured)"
        typer.echo(f"{id}  {record.client}{remark}  created {_date(record.made)}  {_state(record)}")
    for client in found.clients:
        if client.key:
            typer.echo(f"-  {client.id}  in the configuration")
    if not made:
        typer.echo("No keys exist. Create one: toolgate keys create CLIENT", err=True)


@app.command(help="Revoke a key. A running gateway ends its requests and sessions at once.")
def revoke(id: KeyId, config: common.ConfigPath = None) -> None:
    found = common.load_config(config)
    record = _run(found, lambda store: keys.revoke(store, id))
    if not record:
        printing.fail(f"Key not found: {id}. {_HERE}")
    _note(found, "keys.revoke", key=id, client=record.client)
    typer.echo(f"The key {id} of {record.client or 'no client'} was revoked.", err=True)


@app.command(help="Create a key that replaces another, and print it. The old key stays valid for the grace period.")
def rotate(
    id: KeyId,
    grace: Annotated[str, typer.Option("--grace", help="How long the old key stays valid. Default: 1h.")] = "1h",
    expires: Expires = "",
    config: common.ConfigPath = None,
) -> None:
    found = common.load_config(config)
    seconds, lasts = _seconds(grace, "--grace"), _seconds(expires, "--expires") if expires else None
    made = _run(found, lambda store: keys.rotate(store, id, time.time(), seconds, lasts))
    if not made:
        printing.fail(f"No valid key {id}. {_HERE}")
    _print(made[1], f"The key {made[0]} replaces {id}, which stays valid for {grace}.")
    _note(found, "keys.rotate", key=id, by=made[0], grace=grace)


@app.command("hash", help="Read a key from standard input and print its hash for `key` in the configuration.")
def hash_() -> None:
    key = typer.prompt("Key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    key = key.strip()
    try:
        access_shapes.sound_key(key)
    except Wrong as wrong:
        printing.fail(f"The key {wrong.findings[0].message}.", 2)
    typer.echo(key if key.startswith(keys.HASHED) else keys.HASHED + keys.hashed(key))


def _run(config: Config, work: Callable[[Store], Awaitable[Result]]) -> Result:
    """Work with the store that the gateway of this configuration has; one that cannot be used is an error here."""
    try:
        return common.run(_opened(config, work))
    except NotKept as error:
        printing.fail(f"Cannot store the keys: {error.whole}")
    except Unusable as error:
        printing.fail(f"Cannot store the keys: {error}")


async def _opened(config: Config, work: Callable[[Store], Awaitable[Result]]) -> Result:
    store = SqliteStore(state_folder(config, os.environ), SystemClock())
    try:
        return await work(store)
    finally:
        await store.close()


def _note(config: Config, event: str, **about: str) -> None:
    """In the audit. Where that cannot be written, it is said, and the key is what it is."""

    async def noted(store: Store) -> str:
        async with audit.opened(config, os.environ, SystemClock(), store) as trail:
            trail.note_change(event, audit.operator(), **about)
        return trail.problem

    try:
        problem = common.run(_opened(config, noted))
    except (NotKept, Unusable) as error:
        problem = f"the audit log has no line of it: {error}"
    if problem:
        typer.echo(f"warning: {problem}", err=True)


def _require_client(config: Config, wanted: str) -> None:
    known = {client.id: client for client in config.clients}
    if wanted not in known:
        there = f"Available: {', '.join(known)}." if known else f"No clients are configured. {_add_one(config, wanted)}"
        where = f" in {config.source}" if config.source else ", since there is no configuration here"
        printing.fail(f"Client not found: {wanted}{where}. {there}", 2)
    if not known[wanted].enabled:
        typer.echo(f"warning: the client {wanted} is disabled; this key is refused for now", err=True)


_TOML = '[[clients]]\n  id = {id}\n  mcp_server_access = "all"'
_ENTRIES = {  # by the end of the file's name; of another file in TOML
    ".json": '"clients": [{{"id": {id}, "mcp_server_access": "all"}}]',
    ".yaml": "clients:\n    - id: {id}\n      mcp_server_access: all",
}


def _add_one(config: Config, id: str) -> str:
    ending = os.path.splitext(config.source)[1].replace(".yml", ".yaml")
    return f"Add one:\n  {_ENTRIES.get(ending, _TOML).format(id=json.dumps(id))}"


def _seconds(written: str, option: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", written)
    if not found:
        printing.fail(f"{option} {written} is not a duration: write 30m, 12h or 90d", 2)
    return float(int(found[1]) * UNITS[found[2]])


def _state(record: keys.Record) -> str:
    if record.expires is None:
        return "valid until revoked"
    ends = "valid until" if record.is_good(time.time()) else "expired"
    return f"{ends} {_date(record.expires)}" + (f", replaced by {record.succeeded_by}" * bool(record.succeeded_by))


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print(key: str, remark: str) -> None:
    typer.echo(key)
    typer.echo(remark, err=True)
