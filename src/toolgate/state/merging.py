"""Servers of other programs' files, merged into the configuration that is edited for the user.

The rules this file keeps: nothing is started, no variable is put in; what would be run is told as it is written; what
looks like a secret goes into the file of secrets and is never told; a server that is there already stays as it is;
and whoever wrote a file decides about no secret and no variable of the user, unless that is the user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolgate.config import Config, Server, fields, telling
from toolgate.config.secret_references import with_secrets_named
from toolgate.config.server import NO_BOX, ServerAuth
from toolgate.config.variables import named_in
from toolgate.core.names import slug
from toolgate.core.not_edited import NotEdited
from toolgate.state import own_config
from toolgate.state.own_config import OwnConfig

MOST = 1000  # servers in all
_USERS_ALONE = fields.users_alone(Server)
_USERS_ALONE_OF_AUTH = fields.users_alone(ServerAuth)


class Source(msgspec.Struct, frozen=True):
    """One file, and what it says; `label` tells its servers apart from others of the same name. `is_users`: it is one
    that a program of the user keeps for them."""

    path: str
    label: str
    config: Config
    is_users: bool = False

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        return own_config.tables(self.config)


class Merged(msgspec.Struct, frozen=True):
    """What is to be added: native tables by name, with the secrets that were found in them; and what is said of it.
    `called` are the names of each source's servers, those that were there already too, by its label. `gives` says which
    secrets and variables of the user a server is given by a file that may be anybody's (`telling.given`), by its name:
    only where the user agrees."""

    servers: dict[str, dict[str, Any]]
    secrets: Mapping[str, str]
    origins: Mapping[str, str]  # name → the file that it comes from
    notes: tuple[str, ...]
    called: Mapping[str, list[str]]
    gives: Mapping[str, str]

    def without(self, names: Collection[str]) -> Merged:
        """All but these servers, and the secrets that only they name."""
        servers = {name: table for name, table in self.servers.items() if name not in names}
        left, _ = named_in(servers)
        secrets = {name: value for name, value in self.secrets.items() if name in left}
        notes = (f"{name} was left out: nobody agreed to give {self.gives[name]}" for name in names)
        gives = {name: each for name, each in self.gives.items() if name not in names}
        return msgspec.structs.replace(self, servers=servers, secrets=secrets, gives=gives, notes=(*self.notes, *notes))


def merge(own: OwnConfig, sources: Sequence[Source], only: Sequence[str] = (), keeps_secrets: bool = False) -> Merged:
    """What is not there yet. Of two that have one name and differ, the later one gets its program's name as well."""
    merging = _Merging(own, keeps_secrets)
    for source in sources:
        merging.add(source, only)
    missing = set(only) - {name for source in sources for name in source.servers}
    if missing:
        raise NotEdited(f"No such server: {', '.join(sorted(missing))}")
    if len(merging.servers) > MOST:
        raise NotEdited(f"These are {len(merging.servers)} servers, and no more than {MOST} can be imported at once")
    return merging.merged()


class _Merging:
    """What is to be added so far."""

    def __init__(self, own: OwnConfig, keeps_secrets: bool) -> None:
        self._known, self._secrets = own.servers, own_config.known_secrets(own)
        self._keeps_secrets = keeps_secrets
        # Where all programs are in a box already, a file of somebody could only take its own out of that.
        self._users_alone = (*_USERS_ALONE, *(("box",) if own.config.box != NO_BOX else ()))
        self._extraction = own_config.extraction(own)
        self.servers: dict[str, dict[str, Any]] = {}
        self._origins: dict[str, str] = {}
        self._called: dict[str, list[str]] = {}
        self._notes: list[str] = []
        self._gives: dict[str, str] = {}

    def add(self, source: Source, only: Sequence[str]) -> None:
        self._notes += [f"{source.path}: {warning}" for warning in source.config.warnings]
        broken = {server.name: server.problem for server in source.config.servers if server.problem}
        for name, table in source.servers.items():
            if name in broken:
                self._notes.append(f"{name} of {source.path} was left out: {broken[name]}")
            elif not only or name in only:
                called = self._add(name, table, source)
                self._called.setdefault(source.label, []).append(called)

    def _add(self, name: str, table: dict[str, Any], source: Source) -> str:
        """The name that it has here."""
        if not source.is_users:
            table, ours = self._of_anybody(table)
            if ours:
                told = f"{name} of {source.path}: {', '.join(ours)} left out"
                self._notes.append(f"{told}: only you set that, in your own file")
        fresh = table if self._keeps_secrets else self._extraction.of(name, table)
        there = {**self._known, **self.servers}
        if same := next((each for each, server in there.items() if server == fresh), ""):
            self._notes.append(f"{name} of {source.path} is there already{'' if same == name else f', as {same}'}")
            return same
        called = _free(name, source.label, {slug(each) for each in there})
        if called != name:
            self._notes.append(f"{name} of {source.path} is called {called}, since another {name} is there")
        self.servers[called], self._origins[called] = fresh, source.path
        if not source.is_users and (given := telling.given(called, with_secrets_named(table))):
            self._gives[called] = given
        return called

    def _of_anybody(self, table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What a file that may be anybody's says of a server, without what only the user sets; and the keys of that."""
        ours = [key for key in self._users_alone if key in table]
        kept = {key: value for key, value in table.items() if key not in ours}
        if isinstance(kept.get("auth"), dict):
            auth: dict[str, Any] = kept["auth"]
            ours += [f"auth.{key}" for key in _USERS_ALONE_OF_AUTH if key in auth]
            kept["auth"] = {key: value for key, value in auth.items() if key not in _USERS_ALONE_OF_AUTH}
        return kept, ours

    def merged(self) -> Merged:
        found = {name: value for name, value in self._extraction.found.items() if name not in self._secrets}
        return Merged(self.servers, found, self._origins, tuple(self._notes), self._called, self._gives)


def _free(name: str, label: str, taken: Collection[str]) -> str:
    names = (name, f"{name}-{slug(label) or 'imported'}", *(f"{name}-{number}" for number in range(2, 10 * MOST)))
    return next(each for each in names if slug(each) not in taken)


def shown(own: OwnConfig, merged: Merged) -> Iterator[str]:
    for name, table in merged.servers.items():
        yield f"+ {name}, of {merged.origins[name]}"
        yield from (f"    {line}" for line in telling.of_table(table))
        if name in merged.gives:
            yield f"    give {merged.gives[name]}"
    if merged.secrets:
        yield f"secrets, into {own.secrets_file}: {', '.join(merged.secrets)}"
    yield from merged.notes
    if not merged.servers:
        yield "Nothing to add"
