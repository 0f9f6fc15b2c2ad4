"""The plain values of a configuration file → the fields of the structs, with all that is wrong on the way.

The rule this file keeps: reading never stops at the first fault, and says what is wrong by the path of its key.
What a key may hold stands in `keys`; here is what keys mean to one another: ids, types, variables.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config import access_shapes, env_file, keys, secrets, shapes, values, variables
from toolgate.config.dialects import CHILDREN, COMPONENTS, Dialect, File, places
from toolgate.config.keys import Key, Later, Row
from toolgate.config.manifests import ManifestEntry, spin_variables
from toolgate.config.secrets import Secrets, Sources, Vault
from toolgate.config.values import Finding, Kind, Wrong, did_you_mean
from toolgate.config.variables import Expansion, Reference
from toolgate.core.names import slug

KeyPath: TypeAlias = tuple[str | int, ...]
Fields: TypeAlias = dict[str, Any]

COMPONENT_URL = "http://{name}.spin.internal/"
MOST_HINTS = 20  # per file; whoever has more unknown keys than that has named the wrong file

_simple_key = re.compile(r"[A-Za-z0-9_-]{1,80}")
_bad = object()


def dotted(path: KeyPath) -> str:
    """`mcpServers."My Server".args[0]`, on one line whatever the keys hold."""
    shown = (f"[{key}]" if isinstance(key, int) else f".{_quoted(key)}" for key in path)
    return "".join(shown).removeprefix(".")


def _quoted(key: str) -> str:
    return key if _simple_key.fullmatch(key) else json.dumps(key[:80])


class Reading:
    """One file while it is read. `servers`, `root` and `sections` hold the fields of the structs, fit to be made only
    where there are no `problems`; `warnings` are what does not stop anything. With `references`, variables are not
    put in but written as a native file writes them. `put_in` are the variables that went in, with their values;
    `sources` are where secrets are looked for, made when the sections are read, unless they were given; without
    `looks_up` none is looked for, and each stands there as it is written."""

    def __init__(
        self,
        file: File,
        dialect: Dialect,
        references: bool = False,
        sources: Sources | None = None,
        looks_up: bool = True,
    ) -> None:
        self.file = file
        self._looks_up = looks_up
        self.given_sources = sources
        self.put_in: set[tuple[str, str]] = set()
        self.dialect = dialect
        self.native = dialect.strict
        self.references = references
        self.servers: list[Fields] = []
        self.root: Fields = {}
        self.sections: dict[str, Fields] = {}
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []
        self.inputs: Mapping[str, Reference] = {}

    def read(self, tree: object) -> None:
        """The root first: servers may depend on it."""
        bare_list = self.dialect is CHILDREN and _is_list(tree)
        before = len(self.problems)
        root = {} if bare_list else self.table(tree, ())
        if len(self.problems) > before:
            return
        path, spin = (spin_variables(root) if self.dialect is COMPONENTS else None) or ((), {})
        entries = self._entries(tree if bare_list else root)
        standing = {entry.path[0] for entry in entries if entry.path} | set(self.dialect.containers)
        for key, value in (spin or root).items():
            if key not in standing:
                self._root_key(key, value, path)
        self.inputs = self.dialect.inputs(root)
        self._read_servers(entries)
        self._read_components(path)

    def _entries(self, tree: object) -> list[ManifestEntry]:
        try:
            return list(self.dialect.entries(self.file, tree))
        except Wrong as error:
            self.tell((), error)
            return []

    def _root_key(self, key: str, value: object, path: KeyPath) -> None:
        where = (*path, key)
        if key in keys.SECTIONS and not self.dialect.whole:
            self.sections[key] = self.fields(keys.SECTIONS[key], self.table(value, where), where)
        elif key in keys.ROOT and not self.dialect.whole:
            self.root |= self.fields({key: keys.ROOT[key]}, {key: value}, path)
        elif key not in keys.PASSED_OVER and not self.dialect.whole:
            self.unknown(where, ("mcpServers", *keys.SECTIONS, *keys.ROOT))

    def _read_servers(self, entries: list[ManifestEntry]) -> None:
        kept = [entry for entry in entries if not self._is_passed_over(entry)]
        self._check_ids(kept)
        read = [_ServerReading(self, entry).server() for entry in kept]
        self.servers = [server for server in read if server]

    def _is_passed_over(self, entry: ManifestEntry) -> bool:
        why, table = "", entry.table
        if not self.native and entry.name == "toolgate":  # how another tool names this very gateway
            why = "is this gateway itself"
        elif isinstance(table, dict):
            why = self.dialect.passed_over(cast("dict[str, Any]", table))
        if why:
            self.warn(entry.path, f"{why}: ignored")
        return bool(why)

    def _read_components(self, path: KeyPath) -> None:
        """Those that are only named: the template says where they are."""
        names: tuple[str, ...] = self.root.pop("tool_components", ())
        entries = [ManifestEntry((*path, "tool_components"), name, {"type": "component"}) for name in names]
        taken = {server["id"]: server["name"] for server in self.servers}
        for entry in entries:
            if owner := taken.get(slug(entry.name)):
                self.wrong(entry.path, f"has a component with the id of server {json.dumps(owner)}", "rename one")
        found = [_ServerReading(self, entry).server() for entry in entries]
        if names and not self.servers:
            self.root.setdefault("surface", "components")
        self.servers += [server for server in found if server]

    def _check_ids(self, entries: list[ManifestEntry]) -> None:
        owners: dict[str, str] = {}
        for index, entry in enumerate(entries):
            name, path = entry.name, entry.path
            if self.take(values.text, name, path) is _bad:
                continue
            id = slug(name)
            first = owners.setdefault(id, f"{index} {name}") == f"{index} {name}"
            if not id:
                self.wrong(path, "has no letter or digit to build an id from", "rename it")
            elif id == "toolgate" or id.startswith("gobby-"):
                self.wrong(path, f"has the id `{id}`, which is the gateway's own", "rename it")
            elif not first:
                owner = json.dumps(owners[id].partition(" ")[2])
                self.wrong(path, f"has the same id `{id}` as the server {owner}", "rename one of the two")

    @functools.cached_property
    def sources(self) -> Sources:
        """To be asked for once the sections are read."""
        if self.given_sources:
            return self.given_sources
        fields = dict(self.sections.get("secrets", {}))
        vault = fields.pop("vault", None)
        settings = Secrets(**fields, vault=None if vault is None else Vault(**vault))
        file, state = self.file, self.root.get("state", "")
        path = secrets.file_of(settings, state if isinstance(state, str) else "", file.path, file.environ)
        expand = of_environment(file.environ, self.dialect.style)
        return Sources(settings, file.environ, path, expand, self._looks_up)

    def put_in_keys(self) -> None:
        """The variables in clients' keys. One that is not set is the whole file's fault: else a slip would open, or
        close, the gateway to somebody."""
        for index, client in enumerate(self.root.get("clients", ())):
            if "key" not in client or self.references:
                continue
            path: KeyPath = ("clients", index, "key")
            expansion = Expansion(self.file.environ, self.dialect.style, secret=self.sources.get)
            client["key"] = self.take(expansion.expand, client["key"], path)
            if expansion.missing:
                self.wrong(path, "; ".join(_lacks(expansion, self.dialect.style)))
            elif client["key"] is not _bad and not expansion.unread:
                self.take(access_shapes.sound_key, client["key"], path)

    def put_in_notify(self) -> None:
        """The variables in `approvals.notify`. One that is not set is the whole file's fault: nobody would be told."""
        section = self.sections.get("approvals", {})
        notify = section.get("notify")
        if not notify or self.references:
            return
        path: KeyPath = ("approvals", "notify")
        expansion = Expansion(self.file.environ, self.dialect.style, secret=self.sources.get)
        if isinstance(notify, str):
            section["notify"] = self.take(expansion.expand, notify, path)
        else:
            section["notify"] = tuple(self.take(expansion.expand, word, path) for word in notify)
        if expansion.missing:
            self.wrong(path, "; ".join(_lacks(expansion, self.dialect.style)))
        elif isinstance(notify, str) and not expansion.unread:
            self.take(_webhook_url, section["notify"], path)

    def check_places(self) -> None:
        """What toolgate believes without another look (servers that were added, keys, grants, pins, values of secrets)
        lies where a stranger cannot have put it: beside a file that was found anything may lie, and more after each
        `git pull`. By the path alone nobody knows what came along with the file, so it names no place at all."""
        if self.file.is_named:
            return
        places: tuple[tuple[Fields, KeyPath], ...] = (
            (self.root, ("state",)),
            (self.sections.get("secrets", {}), ("secrets", "file")),
        )
        for table, path in places:
            if path[-1] in table:
                fix = "remove it, or give the file with --config"
                self.wrong(path, "is not allowed in a file that was found in a folder", fix)

    # What every part of the file needs.

    def table(self, value: object, path: KeyPath) -> dict[str, object]:
        """A table; nothing at all (YAML: every line below is a comment) is an empty one."""
        found = self.take(values.table, {} if value is None else value, path)
        return {} if found is _bad else found

    def fields(
        self,
        rows: Mapping[str, Row | None],
        table: Mapping[str, object],
        path: KeyPath,
        faults: list[str] | None = None,
    ) -> dict[str, Any]:
        """What the keys of `table` that work hold, in the file's words."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key not in rows:
                self.unknown((*path, key), rows)
                continue
            row = rows[key]
            later = row if isinstance(row, Later) else row.later(value) if row and row.later else None
            if later:
                self.later((*path, key), later, value, faults)
            elif isinstance(row, Key) and (read := self.take(row.kind, value, (*path, key))) not in (
                _bad,
                msgspec.UNSET,
            ):
                found[key] = read
        return found

    def take(self, kind: Kind, value: object, path: KeyPath) -> Any:
        try:
            return kind(value)
        except Wrong as error:
            self.tell(path, error)
            return _bad

    def tell(self, path: KeyPath, error: Wrong) -> None:
        for finding in error.findings:
            self.wrong((*path, *finding.path), finding.message, finding.fix)

    def wrong(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(Finding(message, fix, path))

    def warn(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.warnings.append(Finding(message, fix, path))

    def unknown(self, path: KeyPath, known: Iterable[str]) -> None:
        if not self.native:
            return self.warn(path, "is unknown and ignored")
        key = str(path[-1])
        ours = keys.FIXES.get(key, "")
        if ours in known:
            fix = f"did you mean `{ours}`?"
        else:
            fix = did_you_mean(key, known) if len(self.problems) < MOST_HINTS else ""
        self.wrong(path, "unknown key", fix or "remove it")

    def later(self, path: KeyPath, row: Later, value: object, faults: list[str] | None = None) -> None:
        """A key of a later version. `faults`: of a server, which alone fails where the file is another tool's."""
        shown = dotted(path[-1:] if faults is not None else path)
        if row.accepts(value):
            return
        other = "" if row.accepted is msgspec.UNSET else f" other than {json.dumps(row.accepted)}"
        message = f"`{shown}`{other} is not available in this version of toolgate"
        if self.native or faults is None:
            self.wrong(path, message, "; ".join(filter(None, (row.fix, row.says))))
        elif row.grave:
            faults.append(": ".join((message, row.says or row.fix)))
        else:
            self.warn(path, f"{message} and is ignored", row.says)


def _is_list(tree: object) -> bool:
    return isinstance(tree, list)


class _ServerReading:
    """One server while it is read. `faults` are what fails this server alone."""

    def __init__(self, reading: Reading, entry: ManifestEntry, defaults: Fields | None = None) -> None:
        self.reading = reading
        self.name = entry.name
        self.written = entry.table
        self.path: KeyPath = entry.path
        self.rows = reading.dialect.rows or keys.SERVER
        self.defaults = {**reading.dialect.defaults, **entry.defaults, **(defaults or {})}
        self.faults: list[str] = []
        self.sound_url: Callable[[str], None] | None = None  # of the type that is written

    def server(self) -> Fields | None:
        """None where something is wrong that the reading was told of."""
        before = len(self.reading.problems)
        if (table := self.reading.take(values.table, self.written, self.path)) is _bad:
            return None
        found = self.reading.fields(self.rows, table, self.path, self.faults)
        type = self._type(table, found)
        self._check_pairs(found, type)
        self.sound_url = keys.SOUND_URLS.get(type or "") if "type" in map(self._field, found) else None
        written = found.get("args", ())
        missing = self._put_in_variables(found)
        if len(self.reading.problems) > before or type is None:
            return None
        fields = {**self.defaults, **self._fields(found)}
        pairs = enumerate(zip(written, fields.get("args", ()), strict=False))
        fields["private_args"] = tuple(index for index, (before, after) in pairs if before != after)
        if type == "http" and "type" not in fields and variables.is_websocket(fields.get("url", "")):
            type = "ws"
        fields |= {"id": slug(self.name), "name": self.name, "type": type}
        self._finish(fields)
        if len(self.reading.problems) > before:
            return None
        return {**fields, "problem": "; ".join(self.faults), "missing": missing}

    def _field(self, key: str) -> str:
        row = self.rows.get(key)
        return row.field if isinstance(row, Key) and row.field else key

    def _fields(self, found: Mapping[str, Any]) -> Fields:
        """The file's words → the struct's. Tables that fill one field are joined; of all else the first one holds."""
        fields: Fields = {}
        for key, value in found.items():
            row = self.rows[key]
            spread = isinstance(row, Key) and row.spread
            for field, each in value.items() if spread else [(self._field(key), value)]:
                fields[field] = shapes.merged(fields[field], each) if field in fields else each
        return fields

    def _type(self, table: Mapping[str, object], found: Mapping[str, Any]) -> str | None:
        """The type of server, as written or by the key that it has."""
        present = {self._field(key) for key in table}
        written = next((found[key] for key in found if self._field(key) == "type"), None)
        if {"command", "url"} <= present and written not in keys.BOTH:
            return self._wrong("has both `command` and `url`", "remove one of the two")
        if "type" in present:
            return None if written is None else self._written_type(written, present)
        if not present & {"command", "url"}:
            return self._wrong("needs `command` (a program to start) or `url` (a server to reach)")
        meant = (row.means for key, row in self.rows.items() if key in table and isinstance(row, Key) and row.means)
        return "stdio" if "command" in present else next(meant, "http")

    def _written_type(self, written: str, present: set[str]) -> str | None:
        foreign = keys.FOREIGN_TYPES.get(written)
        word = foreign or written if not self.reading.native else written
        if word not in keys.TYPES:
            fix = f'write "{foreign}"' if foreign else did_you_mean(word, keys.TYPES)
            return self._wrong(f"must be {values.any_of(keys.TYPES)}", fix, "type")
        if word == "component" and "url" not in present:
            return self._component_of_template(present)
        if keys.TYPES[word] not in present:
            return self._wrong(f"is of type {word} and needs `{keys.TYPES[word]}`")
        return word

    def _component_of_template(self, present: set[str]) -> str | None:
        if self.path[-1] != "tool_components" and "component_url" not in self.reading.root:
            return self._wrong(
                "is of type component and needs `url`", "set it here, or `component_url` at the root for all components"
            )
        self.defaults["url"] = self.reading.root.get("component_url", COMPONENT_URL)
        return "component"

    def _wrong(self, message: str, fix: str = "", *below: str) -> None:
        self.reading.wrong((*self.path, *below), message, fix)

    def _check_pairs(self, found: dict[str, Any], type: str | None) -> None:
        """Keys that do not go together. What does not fit is taken out of `found`."""
        tell = self.reading.wrong if self.reading.native else self.reading.warn
        owners: dict[str, str] = {}
        for key in [key for key in self.rows if key in found]:
            row = self.rows[key]
            owner = owners.setdefault(self._field(key), key)
            if type and isinstance(row, Key) and row.only and type not in row.only:
                if found.pop(key):  # empty ones are what other tools write
                    only = "/".join(row.only)
                    tell((*self.path, key), f"is for {only} servers, and this one is {type}", "remove it")
            elif owner != key and not isinstance(found[key], dict):
                del found[key]
                tell((*self.path, key), f"cannot be combined with `{owner}`", "remove one of the two")

    def _put_in_variables(self, found: dict[str, Any]) -> tuple[str, ...]:
        """Expand what can be expanded, in place; the names of variables that are not set."""
        reading = self.reading
        kind = variables.References if reading.references else Expansion
        file, style = reading.file, reading.dialect.style
        expansion = kind(file.environ, style, reading.inputs, places(file), reading.sources.get)
        for key, value in found.items():
            row = self.rows[key]
            if isinstance(row, Key) and (row.sound or self._field(key) == "tools") and value is not None:
                may_name = found.get("by_operator", True) or reading.references
                found[key] = (self._expanded if may_name else self._as_written)(key, value, row, expansion)
        self.faults += _lacks(expansion, style)
        reading.put_in |= set(expansion.put_in)
        return tuple(dict.fromkeys(expansion.missing))

    def _as_written(self, key: str, value: Any, row: Key, expansion: Expansion) -> Any:
        """What a tool call has named, in which nothing of the gateway's is put: that would go wherever a model has
        thought of. What wants it fails this server."""
        if not variables.has_pattern(value):
            return self._expanded(key, value, row, expansion)
        self.faults.append(f"`{key}` contains `${{`, but a tool call added the server: {_WHO_WRITES_PATTERNS}")
        return {} if row.spread else type(value)()

    def _expanded(self, key: str, value: Any, row: Key, expansion: Expansion) -> Any:
        """What comes out wrong is the file's fault where our file says so itself. Else, where a variable brought it in
        or the file is another tool's, it fails this server only, and nothing of it is kept."""
        already = len(expansion.missing) + len(expansion.unread)
        expanded: Any = value
        sound = (self.sound_url if self._field(key) == "url" else None) or row.sound
        try:
            expanded = expansion.expand(value) if row.sound else expansion.expand_overlays(value)
            is_whole = len(expansion.missing) + len(expansion.unread) == already and not self.reading.references
            if sound and is_whole:
                sound(expanded)
        except Wrong as error:
            if self.reading.native and expanded == value:
                self.reading.tell((*self.path, key), error)
            for each in error.findings:
                message = f"`{dotted((key, *each.path))}` {each.message}"
                self.faults.append(": ".join(filter(None, (message, each.fix))))
            return {} if row.spread else type(value)()
        if self.reading.dialect.style is variables.LITERAL and row.sound and variables.has_pattern(expanded):
            self.reading.warn((*self.path, key), "contains `${`, which is passed on unchanged")
        return expanded

    def _finish(self, fields: Fields) -> None:
        """What takes several fields at once."""
        if env_file := fields.pop("envFile", None):
            self._read_env_file(env_file, fields)
        if compat := fields.pop("compat", None):
            self._fit_in(compat, fields)
        if fields["type"] == "component":
            self._find_component(fields)
        if fields["type"] != "stdio" and fields["type"] not in keys.BOTH and not fields.get("url"):
            self.faults.append("its `url` is empty")

    def _read_env_file(self, path: str, fields: Fields) -> None:
        if self.reading.references:
            return self.reading.warn((*self.path, "envFile"), "is not used", "list its variables in `env`")
        try:
            fields["env"] = {**env_file.read(self.reading.file.folder / path), **fields.get("env", {})}
        except OSError:
            self.faults.append("its `envFile` cannot be read: check that it is there")

    def _fit_in(self, compat: str, fields: Fields) -> None:
        program = re.sub(r".*[/\\]", "", fields.get("command", "")).removesuffix(".exe")
        if program != "uvx" and not self.faults:
            self._wrong('is only for servers with `command` "uvx"', "give the versions in `args`", "compat")
        fields["args"] = ("--with", compat, *fields.get("args", ()))
        fields["private_args"] = tuple(2 + index for index in fields["private_args"])

    def _find_component(self, fields: Fields) -> None:
        """`{name}` goes in here; `{port}` is known only when the component is started."""
        url = fields["url"] = fields.get("url", "").replace("{name}", slug(self.name))
        if "{port}" in url and not fields.get("command"):
            self._wrong("contains `{port}`, which only components started by toolgate have", "write the port", "url")
        try:
            if url and not variables.has_pattern(url):
                variables.sound_component_url(url)
        except Wrong:
            self._wrong("is not a URL after the name is filled in", "", "url")


_WHO_WRITES_PATTERNS = "add it to the configuration or with `toolgate servers add`"


def of_environment(environ: Mapping[str, str], style: variables.Style = variables.SHELL) -> Callable[[str], str]:
    """Puts variables in where what is needed to look secrets up stands: that cannot be a secret itself."""

    def expand(written: str) -> str:
        expansion = Expansion(environ, style)
        try:
            found = cast(str, expansion.expand(written))
        except Wrong as error:
            raise secrets.Broken(f"a value in secrets.vault {error.findings[0].message}") from None
        if expansion.missing:
            raise secrets.Broken(_not_set(tuple(expansion.missing), style))
        return found

    return expand


def _webhook_url(value: object) -> None:
    variables.sound_http_url(values.text(value))


def _lacks(expansion: Expansion, style: variables.Style) -> list[str]:
    """What could not be put in, and what to do about it."""
    names = tuple(dict.fromkeys(name for name in expansion.missing if not name.startswith(secrets.PREFIX)))
    asked = [name for name in names if name in expansion.asked_for]
    plain = tuple(name for name in names if name not in expansion.asked_for)
    return [
        *(_not_asked(name, expansion.asked_for[name]) for name in asked),
        *([_not_set(plain, style)] if plain else []),
        *dict.fromkeys(expansion.lacking),
    ]


def _not_asked(name: str, written: str) -> str:
    """Another tool asks its user for this; we have nobody to ask when a server starts."""
    return f"{written} has no value, and toolgate does not prompt for it: set {name} in toolgate's environment"


def _not_set(missing: tuple[str, ...], style: variables.Style) -> str:
    """A default is named as a way out only where the tool whose file it is has them."""
    names, are, them = ", ".join(missing), *(("is", "it") if len(missing) == 1 else ("are", "them"))
    way_out = f", or write a default: ${{{missing[0]}:-default}}" if ":-" in style.write else ""
    return f"{names} {are} not set: set {them} in toolgate's environment{way_out}"
