"""What was served last, kept in the store: each edit of a file is in the audit, by anybody, also while nothing ran.

The rules this file keeps: what is served is held against what was served before, by whichever gateway; nothing of a
secret is kept but hashes; and a line says whose file it was, since nobody knows who has edited it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from toolgate.config import Config, KnownClient, Server, masking, render
from toolgate.config.settings import NOTED
from toolgate.core import jsonrpc
from toolgate.core.clock import Clock
from toolgate.state.audit import Trail
from toolgate.state.base import NotKept, Store

log = logging.getLogger(__name__)

SPACE = "served"


class ServedServer(msgspec.Struct, frozen=True):
    """`file` is where it was written, `print` a hash of all that was."""

    print: str
    file: str = ""


class ServedClient(msgspec.Struct, frozen=True):
    """`since` is when it came, in seconds since 1970; `rights`, `key` and `claims` are hashes."""

    admin: bool
    enabled: bool
    add_servers: str
    rights: str
    key: str
    claims: str
    since: float = 0.0


class Standing(msgspec.Struct, frozen=True):
    """Servers by name, clients by id, hashes of other sections, and the client of each key of the store by its id."""

    servers: Mapping[str, ServedServer] = {}
    clients: Mapping[str, ServedClient] = {}
    sections: Mapping[str, str] = {}
    keys: Mapping[str, str] = {}


class Served:
    """`whence` says in which file a server of this name stands, `keys` whose the keys of the store are, and `grants`
    those of lasting approvals (`Principal.id`), by id; these may raise `NotKept`."""

    def __init__(
        self,
        store: Store,
        audit: Trail,
        clock: Clock,
        whence: Callable[[str], Path | None],
        keys: Callable[[], Mapping[str, str]],
        grants: Callable[[], Mapping[str, str]],
    ) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._whence = whence
        self._keys = keys
        self._grants = grants
        self._last: Standing | None = None

    def note(self, config: Config, known: str = "") -> None:
        """This is served from now on. What is other than before is noted, but for the server `known`, of which whoever
        wanted it notes more."""
        if not self._audit.notes_changes or not self._audit.file:
            return  # it will be held against what was noted last, once something is noted again
        key = _key(config)
        kept = _read(self._store.get(SPACE, key))
        before = self._last or kept
        since = {id: client.since for each in (before, kept) if each for id, client in each.clients.items()}
        now = self._last = self._standing(config, since, before)
        if now in (before, kept):
            return  # nothing is other; or another gateway of this configuration has noted it
        if before is None:
            self._audit.note_change("served.first", servers=list(now.servers), clients=list(now.clients))
        else:
            self._note_servers(config, before, now, known)
            self._note_clients(config, before, now)
            self._note_keys(before, now)
            changed = [each for each in NOTED if before.sections.get(each) != now.sections[each]]
            if changed:
                self._audit.note_change("settings.change", **_of_file(config.source), changed=changed)
        self._store.put(SPACE, key, msgspec.msgpack.encode(now))

    def _standing(self, config: Config, since: Mapping[str, float], before: Standing | None) -> Standing:
        now = self._clock.wall() if before else 0.0
        keys: Mapping[str, str] = before.keys if before else {}
        with suppress(NotKept):
            keys = self._keys()
        return Standing(
            {each.name: ServedServer(_print_of(each), self._file_of(each)) for each in config.servers},
            {each.id: _client(each, since.get(each.id, now)) for each in config.clients},
            {each: _hash(repr(getattr(config, each))) for each in NOTED},
            keys,
        )

    def _file_of(self, server: Server) -> str:
        return str(self._whence(server.name) or "")

    def _note_servers(self, config: Config, before: Standing, now: Standing, known: str) -> None:
        servers = {server.name: server for server in config.servers}
        for event, name in _differences("servers", before.servers, now.servers):
            if name == known:
                continue
            standing = now.servers.get(name) or before.servers[name]
            about: dict[str, Any] = {"name": name, **_of_file(standing.file)}
            if name in servers:
                about |= {
                    "by_operator": servers[name].by_operator,
                    "config": render.server(servers[name], masked=True),
                }
            self._audit.note_change(event, **about)

    def _note_clients(self, config: Config, before: Standing, now: Standing) -> None:
        for event, id in _differences("clients", before.clients, now.clients):
            about: dict[str, Any] = {"client": id, **_of_file(config.source)}
            client, was = now.clients.get(id), before.clients.get(id)
            if client:
                about |= {"admin": client.admin, "enabled": client.enabled}
            if client and was:
                fields = (
                    each for each in ServedClient.__struct_fields__ if getattr(client, each) != getattr(was, each)
                )
                about |= {"changed": list(fields)}
            elif client:
                about |= self._left_from_before(id, before, now)
            self._audit.note_change(event, **about)

    def _left_from_before(self, id: str, before: Standing, now: Standing) -> Mapping[str, list[str]]:
        """What another client of this id has had, and this one has again."""
        grants: Mapping[str, str] = {}
        with suppress(NotKept):
            grants = self._grants()
        left = {
            "keys": [key for key, owner in before.keys.items() if owner == id and key in now.keys],
            "grants": [grant for grant, owner in grants.items() if owner == f"client:{id}"],
        }
        for what, (word, command) in _LEFT.items():
            if left[what]:
                log.warning(
                    "client %s is configured again, and its earlier %s are valid again: %s. Revoke those that "
                    "you do not want: %s revoke ID",
                    *(id, word, ", ".join(left[what]), command),
                )
        return {what: ids for what, ids in left.items() if ids}

    def _note_keys(self, before: Standing, now: Standing) -> None:
        for event, id in _differences("keys", before.keys, now.keys):
            self._audit.note_change(event, key=id, client=now.keys.get(id) or before.keys[id])


def since(store: Store, config: Config) -> Mapping[str, float]:
    """When each client came, in seconds since 1970; 0 where that was before anything was known."""
    kept = _read(store.get(SPACE, _key(config)))
    return {id: client.since for id, client in kept.clients.items()} if kept else {}


def _key(config: Config) -> str:
    return os.path.abspath(config.source) if config.source else ""


_LEFT = {"keys": ("keys", "toolgate keys"), "grants": ("approvals", "toolgate approvals")}
_WORDS = {"keys": ("keys.appear", "keys.vanish", "keys.change")}


def _differences(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """(event, name) of what came, went, or is another."""
    added, removed, changed = _WORDS.get(what, (f"{what}.add", f"{what}.remove", f"{what}.change"))
    yield from ((removed, name) for name in before if name not in now)
    for name, standing in now.items():
        if name not in before:
            yield added, name
        elif standing != before[name]:
            yield changed, name


def _of_file(file: str) -> Mapping[str, str]:
    """Whose file it is, as far as the system tells: its owner need not be who has edited it."""
    try:
        owner = os.stat(file).st_uid
    except OSError:
        return {"who": "file:", "file": file}
    try:
        return {"who": f"file:{pwd.getpwuid(owner).pw_name}", "file": file}
    except KeyError:
        return {"who": f"file:{owner}", "file": file}


def _client(client: KnownClient, since: float) -> ServedClient:
    rights = (client.servers, client.permissions, client.limits, client.surface, client.name)
    return ServedClient(
        client.admin,
        client.enabled,
        client.add_servers or "",
        _hash(repr(rights)),
        _hash(client.key),
        _hash(repr(client.claims)),
        since,
    )


def _print_of(server: Server) -> str:
    """Without the values of secrets: those are the business of who rotates them, and other in another's environment."""
    table = render.server(server)
    for part in table.keys() & {"env", "headers"}:
        table[part] = {name: "" if masking.is_secret_name(name) else each for name, each in table[part].items()}
    return _hash(jsonrpc.encode(table).decode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _read(value: bytes | None) -> Standing | None:
    """What cannot be read is not known."""
    try:
        return msgspec.msgpack.decode(value, type=Standing) if value else None
    except (msgspec.DecodeError, ValueError):
        return None
