"""A file → a `Config`, with all that is wrong on the way.

The rule this file keeps: a file is understood as a whole or refused as a whole. The root comes first: servers may
depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config import (
    access_shapes,
    dialects,
    fields,
    files,
    ownership,
    providers,
    secrets,
    server_reading,
    values,
)
from toolgate.config.access import Auth, KnownClient
from toolgate.config.containers import PASSED_OVER, File, ManifestEntry
from toolgate.config.dialect import Dialect
from toolgate.config.fields import Section
from toolgate.config.findings import BAD, Findings
from toolgate.config.formats import LONGEST, LONGEST_STATE, Format
from toolgate.config.permission_names import idle, strangers, vain
from toolgate.config.private import Private
from toolgate.config.problems import ConfigError, KeyPath, Problem
from toolgate.config.providers import Provider
from toolgate.config.secrets import Secrets, Sources
from toolgate.config.server import Server
from toolgate.config.server_reading import FileContext
from toolgate.config.server_types import TEMPLATES, TYPES, ServerType, sound_http_url
from toolgate.config.settings import Config, Known, Text
from toolgate.config.values import Wrong
from toolgate.config.variables import Expansion
from toolgate.core.names import INTERNAL_PREFIX, slug
from toolgate.core.redaction import Redactor

Table: TypeAlias = dict[str, Any]

LONGEST_NAME = 200  # characters of a server's name
ROOT = fields.rows(Config)
OWN_KEYS = ROOT.keys() - {"mcpServers"}
INHERITED = fields.inherited(Server)


def load(
    path: Path,
    environ: Mapping[str, str],
    dialect: str = "",
    references: bool = False,
    looks_up: bool = True,
    accept: Callable[[bytes], None] | None = None,
    longest: int = LONGEST,
) -> Config:
    """Read a file. Its suffix says the format; what it holds, and where that is not enough its name, whose words it is
    in, unless `dialect` says so. With `references`, variables and secrets stay as they are written; without `looks_up`,
    secrets only. `accept` is for a file that nobody has named: it is given the bytes before they are understood, and
    may raise. Raises `ConfigError`."""
    text = b""

    def take(data: bytes) -> None:
        nonlocal text
        text = data
        if accept:
            accept(data)

    tree = files.tree_of(path, take, longest)
    file = _file(str(path), environ, is_named=accept is None)
    words = dialects.named(dialect) if dialect else dialects.recognised(file, tree)
    config = _config(tree, file, words, references, looks_up)
    warnings = (*config.warnings, *ownership.risks(path))
    return msgspec.structs.replace(config, text=Text(text), warnings=warnings)


def read(
    text: str, *, file: str, environ: Mapping[str, str], native: bool = True, format: Format, dialect: str = ""
) -> Config:
    """Read a text as ours, as one of `dialect`, or (`native=False`) as that of another tool, whose unknown keys are
    only warned of. Raises `ConfigError`."""
    tree, place = files.parsed(text, file, format), _file(file, environ)
    if dialect:
        return _config(tree, place, dialects.named(dialect))
    return _config(tree, place, dialects.native(place, tree) if native else dialects.foreign(place, tree))


def checked(text: str, *, file: str, environ: Mapping[str, str], format: Format, references: bool = True) -> Config:
    """A text as it would be read from such a file, for who wants to know what is wrong with it: secrets stay as they
    are written, and with `references` variables too. Raises `ConfigError`."""
    tree, place = files.parsed(text, file, format), _file(file, environ, text=text)
    config = _config(tree, place, dialects.recognised(place, tree), references, looks_up=False)
    return msgspec.structs.replace(config, text=Text(text.encode()))


def foreign(text: str, *, file: str, format: Format, dialect: str = "") -> Config:
    """A text that came from elsewhere, as a file of another program, with variables as references. Nothing else is read
    for it, of this machine neither. Raises `ConfigError`."""
    tree = files.parsed(text, file, format, LONGEST_STATE)
    place = _file(file, {}, is_named=False, text=text)
    words = dialects.named(dialect) if dialect else dialects.recognised(place, tree)
    return _config(tree, place, words, references=True, looks_up=False)


def tables(path: Path, environ: Mapping[str, str], dialect: str = "") -> dict[str, dict[str, Any]]:
    """The servers of a file as native tables whose variables are still references: what `edits` can write. What is
    wrong with one server is no matter here. Raises `ConfigError`."""
    tree, file = files.tree_of(path), _file(str(path), environ)
    config = _config(tree, file, dialects.named(dialect) if dialect else dialects.recognised(file, tree), True)
    return {server.name: fields.written(server, masked=False, brief=True) for server in config.servers}


def tables_in(text: str, *, file: str, format: Format) -> dict[str, dict[str, Any]]:
    """The same of a text that came from elsewhere. Nothing else is read for it, of this machine neither. Raises
    `ConfigError`."""
    config = foreign(text, file=file, format=format)
    return {server.name: fields.written(server, masked=False, brief=True) for server in config.servers}


def recognised(path: Path, environ: Mapping[str, str]) -> Dialect:
    """Whose words a file is in. Raises `ConfigError` for what is no file of a format."""
    return dialects.recognised(_file(str(path), environ), files.tree_of(path))


def with_own(
    config: Config, own: Mapping[str, object], environ: Mapping[str, str], file: str = "servers.json"
) -> Config:
    """`config`, and the servers that were added at run time: native tables by name, read from `file`. Raises
    `ConfigError` for what is wrong with them, and for a name that both have."""
    reading = Reading(_file(file, environ), dialects.NATIVE, sources=sources(config, environ))
    reading.root |= {name: getattr(config, name) for name in (*INHERITED, *TEMPLATES)}
    reading.read({"mcpServers": dict(own)})
    owners = {server.id: server.name for server in config.servers}
    for server in reading.servers:
        if owner := owners.get(server.id):
            here = config.source or "the configuration"
            message = f"has the same id as server `{owner}` in {here}"
            reading.findings.wrong(("mcpServers", server.name), message, "rename or remove one of the two")
    reading.check()
    known = Known(config.known.values | reading.private())
    whole = msgspec.structs.replace(config, servers=(*config.servers, *reading.servers), known=known)
    before = set(_strangers(config))
    kept = (warning for warning in config.warnings if warning not in before)
    return msgspec.structs.replace(whole, warnings=(*kept, *_strangers(whole)))


def sources(config: Config, environ: Mapping[str, str]) -> Sources:
    """Where the secrets of a configuration are looked for."""
    path = secrets.file_of(config.secrets, config.state, config.source, environ)
    return Sources(config.secrets, environ, path, looks=config.has_secrets)


def state_folder(config: Config, environ: Mapping[str, str]) -> Path:
    """Where the gateway keeps what it must know again. It is not made here."""
    return secrets.folder(config.state, config.source, environ)


def tls_files(config: Config, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The certificate of the listener, and its key; nothing where it has none. Written as `state` is."""
    tls = config.http.tls
    return tuple(secrets.folder(each, config.source, environ) for each in (tls.certificate, tls.key)) if tls else ()


def secrets_of(config: Config) -> frozenset[str]:
    """Values that are never to be shown: those that reading found, and those that stand in the structs."""
    return _certain(config).union(*(_in(each, config).values for each in config.servers))


def learn_secrets(config: Config, redactor: Redactor) -> None:
    """What stands in the clear for a server is a secret of that server: whoever wrote its example chose it."""
    redactor.learn(_certain(config))
    redactor.learn_configured({server.id: _in(server, config).in_the_clear() for server in config.servers})


def _certain(config: Config) -> frozenset[str]:
    """Those of all servers, and of the gateway itself."""
    return config.known.values | _in(msgspec.structs.replace(config, servers=()), config).values


def _in(struct: Config | Server, config: Config) -> Private:
    private = Private(config.secrets.public)
    for secret, name, value in fields.secrets(struct):
        secret.gather(private, name, value)
    return private


def _file(path: str, environ: Mapping[str, str], is_named: bool = True, text: str | None = None) -> File:
    return File(path, environ, is_named, OWN_KEYS, text)


def _config(tree: object, file: File, dialect: Dialect, references: bool = False, looks_up: bool = True) -> Config:
    reading = Reading(file, dialect, references, looks_up=looks_up)
    reading.read(tree)
    reading.put_in_keys()
    reading.put_in_notify()
    reading.put_in_pages_client()
    reading.put_in_providers()
    reading.check_places()
    reading.check()
    root: Table = {"surface": dialect.surface or "aggregate", **reading.root}
    config = Config(
        **root,
        servers=reading.servers,
        source=file.path,
        dialect=dialect.name,
        warnings=tuple(str(warning) for warning in files.placed(reading.findings.warnings, file.path, file.text)),
        has_secrets=looks_up,
    )
    warnings = (*config.warnings, *_strangers(config), *_unnamed_administrators(config))
    return msgspec.structs.replace(config, known=Known(reading.private()), warnings=warnings)


def _strangers(config: Config) -> tuple[str, ...]:
    """What clients' permissions say of servers that are not there."""
    ids = {server.id for server in config.servers}
    clients, step_up = config.clients, config.auth.step_up
    found = (*strangers(clients, step_up, ids), *vain(clients, step_up, ids), *idle(clients)) if ids else ()
    return tuple(str(Problem(config.source, key, message, fix)) for key, message, fix in found)


def _unnamed_administrators(config: Config) -> tuple[str, ...]:
    """Whether anybody with an account at the issuer of tokens is an administrator."""
    client = next((each for each in config.clients if each.id == config.auth.client), None)
    if not client or not client.admin or not client.enabled:
        return ()
    message = f"{client.id} is an administrator, and so is everybody with a token that matches no client's `claims`"
    fix = "name a client without `admin`, or give this one `claims` instead"
    return (str(Problem(config.source, "auth.client", message, fix)),)


class Reading:
    """One file while it is read. `root` has the fields of `Config` that the file says, `servers` its servers; they are
    fit to be used only where `findings` has no problems. With `references`, variables are not put in but written as a
    native file writes them. `sources` are where secrets are looked for, made when the root is read, unless they were
    given; without `looks_up` none is looked for, and each stands there as it is written."""

    def __init__(
        self,
        file: File,
        dialect: Dialect,
        references: bool = False,
        sources: Sources | None = None,
        looks_up: bool = True,
    ) -> None:
        self.file = file
        self.dialect = dialect
        self.references = references
        self.findings = Findings(dialect.strict)
        self.root: Table = {}
        self.written: set[KeyPath] = set()  # the keys of the root and of sections that the file has
        self.servers: tuple[Server, ...] = ()
        self._given_sources = sources
        self._looks_up = looks_up
        self._put_in: set[tuple[str, str]] = set()

    def check(self) -> None:
        """Raises `ConfigError` where something is wrong."""
        if self.findings.problems:
            raise ConfigError(files.placed(self.findings.problems, self.file.path, self.file.text))

    def read(self, tree: object) -> None:
        is_bare_list = self.dialect.may_be_list and _is_list(tree)
        root = {} if is_bare_list else self.findings.table(tree, ())
        if self.findings.problems:
            return
        path, spin = self.dialect.spin_variables(root) or ((), {})
        entries = self._entries(tree if is_bare_list else root)
        standing = {entry.path[0] for entry in entries if entry.path} | set(self.dialect.containers)
        for key, value in (spin or root).items():
            if key not in standing and not self.dialect.whole:
                self._read_key(key, value, path)
        self._read_servers(entries, root, path)

    def _entries(self, tree: object) -> list[ManifestEntry]:
        try:
            return list(self.dialect.entries(self.file, tree))
        except Wrong as error:
            self.findings.tell((), error)
            return []

    def _read_key(self, key: str, value: object, path: KeyPath) -> None:
        row, where = ROOT.get(key) if key in OWN_KEYS else None, (*path, key)
        if isinstance(row, Section):
            table = self.findings.table(value, where)
            self.written |= {(key, name) for name in table}
            found = self.findings.fields(row.rows, table, where)
            if row.struct:
                self.root[key] = row.struct(**fields.filled_in(row.rows, found))
        elif row:
            self.written.add((key,))
            self.root |= self.findings.fields({key: row}, {key: value}, path)
        elif key not in PASSED_OVER:
            self.findings.unknown(where, ROOT)

    def _read_servers(self, entries: list[ManifestEntry], root: Table, path: KeyPath) -> None:
        """Those of the file, then those that are only named: the template says where they are."""
        kept = [entry for entry in entries if self._is_called(entry) and not self._is_passed_over(entry)]
        self._check_ids(kept)
        context = FileContext(
            self.file,
            self.dialect,
            self.findings,
            self.sources.get,
            self.references,
            self.dialect.inputs(root),
            {type: self.root.get(row.template, "") for type, row in TYPES.items() if row.template},
            {name: self.root.get(name, fields.defaults(Config)[name]) for name in INHERITED},
            self._put_in,
        )
        servers = [server_reading.read(entry, context) for entry in kept]
        self.servers = tuple(server for server in servers if server)
        named = [each for type, row in TYPES.items() if row.names for each in self._only_named(type, row, path)]
        self.servers += tuple(server for entry in named if (server := server_reading.read(entry, context)))

    def _is_called(self, entry: ManifestEntry) -> bool:
        """Whether its name is one: strangers' files have any text there, and names are compared, shown, told."""
        if not isinstance(cast(object, entry.name), str) or len(entry.name) <= LONGEST_NAME:
            return True
        begins = json.dumps(entry.name[:40])
        message = f"has a server whose name begins with {begins} and has {len(entry.name):,} characters"
        self.findings.wrong(entry.path[:-1], message, f"give it one of up to {LONGEST_NAME}")
        return False

    def _is_passed_over(self, entry: ManifestEntry) -> bool:
        why, table = "", entry.table
        if not self.dialect.strict and entry.name == "toolgate":  # how another tool names this very gateway
            why = "is this gateway itself"
        elif isinstance(table, dict):
            why = self.dialect.passed_over(cast(Table, table))
        if why:
            self.findings.warn(entry.path, f"{why}: ignored")
        return bool(why)

    def _only_named(self, type: str, row: ServerType, path: KeyPath) -> list[ManifestEntry]:
        names: tuple[str, ...] = self.root.pop(row.names, ())
        where = (*path, row.names)
        taken = {server.id: server.name for server in self.servers}
        for name in names:
            if owner := taken.get(slug(name)):
                message = f"has a {type} with the id of server {json.dumps(owner)}"
                self.findings.wrong(where, message, "rename one of the two")
        if names and not self.servers:
            self.root.setdefault("surface", row.surface)
        url = {"url": self.root.get(row.template, fields.defaults(Config)[row.template])}
        entries = (ManifestEntry((*where, name), name, {"type": type}, url) for name in names)
        return [msgspec.structs.replace(entry, path=where) for entry in entries if self._is_called(entry)]

    def _check_ids(self, entries: list[ManifestEntry]) -> None:
        owners: dict[str, str] = {}
        for index, entry in enumerate(entries):
            name, path = entry.name, entry.path
            if self.findings.take(values.text, name, path) is BAD:
                continue
            id = slug(name)
            first = owners.setdefault(id, f"{index} {name}") == f"{index} {name}"
            if not id:
                self.findings.wrong(path, "has no letter or digit to build an id from", "rename it")
            elif id == "toolgate" or id.startswith(INTERNAL_PREFIX):
                self.findings.wrong(path, f"has the id `{id}`, which is reserved for the gateway", "rename it")
            elif not first:
                owner = json.dumps(owners[id].partition(" ")[2])
                self.findings.wrong(path, f"has the same id `{id}` as the server {owner}", "rename one of the two")

    @cached_property
    def sources(self) -> Sources:
        """To be asked for once the root is read."""
        if self._given_sources:
            return self._given_sources
        settings: Secrets = self.root.get("secrets", Secrets())
        path = secrets.file_of(settings, self.root.get("state", ""), self.file.path, self.file.environ)
        return Sources(settings, self.file.environ, path, self.dialect.style, self._looks_up)

    def private(self) -> frozenset[str]:
        """The secrets that it names, and those of the environment beside it."""
        private = Private(self.sources.settings.public)
        for value in self.sources.found:
            private.header(value)
        for value in self.sources.credentials:
            private.add(value)
        private.variables(self._put_in)
        private.environment(self.file.environ)
        return frozenset(private.values)

    def put_in_keys(self) -> None:
        """The variables in clients' keys. One that is not set is the whole file's fault: else a slip would open, or
        close, the gateway to somebody."""
        clients: tuple[KnownClient, ...] = self.root.get("clients", ())
        if clients and not self.references:
            self.root["clients"] = tuple(self._with_key(client, at) for at, client in enumerate(clients))

    def _with_key(self, client: KnownClient, index: int) -> KnownClient:
        if not client.key:
            return client
        path: KeyPath = ("clients", index, "key")
        key, is_whole = self._put_in_text(client.key, path)
        if key is BAD:
            return client
        if is_whole:
            self.findings.take(access_shapes.sound_key, key, path)
        return msgspec.structs.replace(client, key=key)

    def put_in_notify(self) -> None:
        """The variables in `approvals.notify`. One that is not set is the whole file's fault: nobody would be told."""
        approvals = self.root.get("approvals")
        if not approvals or not approvals.notify or self.references:
            return
        path: KeyPath = ("approvals", "notify")
        notify, is_whole = self._put_in_text(approvals.notify, path)
        if notify is BAD:
            return
        if isinstance(notify, str) and is_whole:
            self.findings.take(lambda value: sound_http_url(values.text(value)), notify, path)
        self.root["approvals"] = msgspec.structs.replace(approvals, notify=notify)

    def put_in_pages_client(self) -> None:
        """The variables in the secret of `auth.pages`. One that is not set is the whole file's fault, as for keys."""
        auth: Auth | None = self.root.get("auth")
        if not auth or not auth.pages.client_secret or self.references:
            return
        secret, _ = self._put_in_text(auth.pages.client_secret, ("auth", "pages", "client_secret"))
        if secret is not BAD:
            pages = msgspec.structs.replace(auth.pages, client_secret=secret)
            self.root["auth"] = msgspec.structs.replace(auth, pages=pages)

    def put_in_providers(self) -> None:
        """The variables in `providers`. One that is not set is the fault of that provider alone."""
        found: Mapping[str, Provider] = self.root.get("providers", {})
        if found and not self.references:
            self.root["providers"] = {name: self._with_variables(name, each) for name, each in found.items()}

    def _with_variables(self, name: str, provider: Provider) -> Provider:
        path: KeyPath = ("providers", name)
        expansion = Expansion(self.file.environ, self.dialect.style, secret=self.sources.get)
        whole = self.findings.take(lambda _: providers.with_variables(provider, expansion.expand), None, path)
        if whole is BAD:
            return provider
        if expansion.missing or expansion.unread:
            why = "; ".join(expansion.lacks()) or "its secrets were not looked up"
            return msgspec.structs.replace(provider, key="", headers={}, problem=why)
        self._put_in.update(expansion.put_in)
        self.findings.take(lambda _: providers.check(whole), None, path)
        return whole

    def _put_in_text(self, value: Any, path: KeyPath) -> tuple[Any, bool]:
        """The value with its variables, and whether they are all in it."""
        expansion = Expansion(self.file.environ, self.dialect.style, secret=self.sources.get)
        found = self.findings.take(expansion.expand, value, path)
        if expansion.missing:
            self.findings.wrong(path, "; ".join(expansion.lacks()))
        return found, not expansion.missing and not expansion.unread

    def check_places(self) -> None:
        """What toolgate believes without another look (servers that were added, keys, grants, pins, values of secrets)
        lies where a stranger cannot have put it: beside a file that was found anything may lie, and more after each
        `git pull`. By the path alone nobody knows what came along with the file, so it names no place at all."""
        if self.file.is_named:
            return
        places: tuple[KeyPath, ...] = (("state",), ("secrets", "file"))
        for path in places:
            if path in self.written:
                fix = "remove it, or give the file with --config"
                self.findings.wrong(path, "is not allowed in a file that was found in a folder", fix)


def _is_list(tree: object) -> bool:
    return isinstance(tree, list)
