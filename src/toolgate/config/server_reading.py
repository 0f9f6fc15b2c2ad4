"""One server of a file: the plain values of its table → a `Server`.

What a key may hold stands with its field; here is what keys mean to one another: ids, types, variables. What is wrong
is the file's fault where our own file says so itself; else it fails this server alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import env_file, fields, foreign_kinds, values, variables
from toolgate.config import server_types as types
from toolgate.config.containers import File, ManifestEntry
from toolgate.config.dialect import Dialect
from toolgate.config.fields import Key
from toolgate.config.findings import BAD, Findings
from toolgate.config.problems import KeyPath, dotted
from toolgate.config.server import Overlay, Root, Server
from toolgate.config.server_types import ServerType
from toolgate.config.values import Wrong, did_you_mean
from toolgate.config.variables import Expansion, Reference
from toolgate.core.names import slug

Fields: TypeAlias = dict[str, Any]


class FileContext(msgspec.Struct, frozen=True):
    """What all servers of a file share. `secret` looks one up. With `references`, variables are not put in but written
    as a native file writes them. `templates` are the URLs that the file has at its root, by type; `defaults` is what
    holds for fields that no server and no dialect names. `put_in` gathers the variables that went in, with their
    values."""

    file: File
    dialect: Dialect
    findings: Findings
    secret: Callable[[str], str]
    references: bool = False
    inputs: Mapping[str, Reference] = {}
    templates: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}
    put_in: set[tuple[str, str]] = msgspec.field(default_factory=set[tuple[str, str]])


def read(entry: ManifestEntry, context: FileContext) -> Server | None:
    """None where something is wrong that the findings were told of."""
    return _ServerReading(entry, context).server()


class _ServerReading:
    """One server while it is read. `faults` are what fails this server alone."""

    def __init__(self, entry: ManifestEntry, context: FileContext) -> None:
        self.context = context
        self.findings = context.findings
        self.name = entry.name
        self.written = entry.table
        self.path: KeyPath = entry.path
        self.rows = context.dialect.rows or fields.rows(Server)
        self.defaults = {**context.defaults, **context.dialect.defaults, **entry.defaults}
        self.faults: list[str] = []
        self.sound_url: Callable[[str], None] | None = None  # of the type that is written

    def server(self) -> Server | None:
        before = len(self.findings.problems)
        if (table := self.findings.take(values.table, self.written, self.path)) is BAD:
            return None
        found = self.findings.fields(self.rows, table, self.path, self.faults)
        type = self._type(table, found)
        self._check_pairs(found, type)
        self.sound_url = types.TYPES[type].sound_url if type and "type" in map(self._field, found) else None
        written = found.get("args", ())
        missing = self._put_in_variables(found)
        if len(self.findings.problems) > before or type is None:
            return None
        filled = {**self.defaults, **fields.filled_in(self.rows, found)}
        pairs = enumerate(zip(written, filled.get("args", ()), strict=False))
        filled["private_args"] = tuple(index for index, (before, after) in pairs if before != after)
        if type == "http" and "type" not in filled and types.is_websocket(filled.get("url", "")):
            type = "ws"
        filled |= {"id": slug(self.name), "name": self.name, "type": type}
        self._finish(filled)
        if len(self.findings.problems) > before:
            return None
        return Server(**filled, problem="; ".join(self.faults), missing=missing)

    def _field(self, key: str) -> str:
        row = self.rows.get(key)
        return row.field if isinstance(row, Key) and row.field else key

    def _type(self, table: Mapping[str, object], found: Mapping[str, Any]) -> str | None:
        """The type of server, as written or by the key that it has."""
        present = {self._field(key) for key in table}
        written = next((found[key] for key in found if self._field(key) == "type"), None)
        if {"command", "url"} <= present and not _may_have_both(written):
            return self._wrong("has both `command` and `url`", "remove one of the two")
        if "type" in present:
            return None if written is None else self._written_type(written, present)
        if not present & {"command", "url"}:
            return self._wrong("needs `command` (a program to start) or `url` (a server to reach)")
        meant = (row.means for key, row in self.rows.items() if key in table and isinstance(row, Key) and row.means)
        return "stdio" if "command" in present else next(meant, "http")

    def _written_type(self, written: str, present: set[str]) -> str | None:
        foreign = types.FOREIGN_TYPES.get(written)
        word = foreign or written if not self.findings.strict else written
        if word not in types.TYPES:
            fix = f'write "{foreign}"' if foreign else did_you_mean(word, types.TYPES)
            return self._wrong(f"must be {values.any_of(types.TYPES)}", fix, "type")
        row = types.TYPES[word]
        if row.needs in present or (row.template and self.defaults.setdefault("url", self.context.templates[word])):
            return word
        fix = f"set it here, or `{row.template}` at the root for all {word}s" if row.template else ""
        return self._wrong(f"is of type {word} and needs `{row.needs}`", fix)

    def _wrong(self, message: str, fix: str = "", *below: str) -> None:
        self.findings.wrong((*self.path, *below), message, fix)

    def _check_pairs(self, found: dict[str, Any], type: str | None) -> None:
        """Keys that do not go together. What does not fit is taken out of `found`."""
        tell = self.findings.wrong if self.findings.strict else self.findings.warn
        owners: dict[str, str] = {}
        for key in [key for key in self.rows if key in found]:
            row = self.rows[key]
            owner = owners.setdefault(self._field(key), key)
            if type and isinstance(row, Key) and row.only and type not in row.only:
                value = found.pop(key)
                if value and value != _nothing(row, value):  # empty ones are what other tools write
                    only = "/".join(row.only)
                    tell((*self.path, key), f"is for {only} servers, and this one is {type}", "remove it")
            elif owner != key and not isinstance(found[key], dict):
                del found[key]
                tell((*self.path, key), f"cannot be combined with `{owner}`", "remove one of the two")

    def _put_in_variables(self, found: dict[str, Any]) -> tuple[str, ...]:
        """Expand what can be expanded, in place; the names of variables that are not set."""
        context = self.context
        kind = variables.References if context.references else Expansion
        known = foreign_kinds.places(context.file)
        expansion = kind(context.file.environ, context.dialect.style, context.inputs, known, context.secret)
        may_name = found.get("by_operator", True) or context.references
        for key, value in found.items():
            row = self.rows[key]
            if isinstance(row, Key) and row.has_variables and value is not None:
                found[key] = (self._expanded if may_name else self._as_written)(key, value, row, expansion)
        self.faults += expansion.lacks()
        context.put_in.update(expansion.put_in)
        return tuple(dict.fromkeys(expansion.missing))

    def _as_written(self, key: str, value: Any, row: Key, expansion: Expansion) -> Any:
        """What a tool call has named, in which nothing of the gateway's is put: that would go wherever a model has
        thought of. What wants it fails this server."""
        if not variables.has_pattern(value):
            return self._expanded(key, value, row, expansion)
        self.faults.append(f"`{key}` contains `${{`, but a tool call added the server: {_WHO_WRITES_PATTERNS}")
        return _nothing(row, value)

    def _expanded(self, key: str, value: Any, row: Key, expansion: Expansion) -> Any:
        """What comes out wrong is the file's fault where our file says so itself. Else, where a variable brought it in
        or the file is another tool's, it fails this server only, and nothing of it is kept."""
        already = len(expansion.missing) + len(expansion.unread)
        expanded: Any = value
        sound = (self.sound_url if self._field(key) == "url" else None) or row.sound
        try:
            expanded = row.put_in(expansion, value) if row.put_in else expansion.expand(value)
            is_whole = len(expansion.missing) + len(expansion.unread) == already and not self.context.references
            if sound and is_whole:
                sound(expanded)
        except Wrong as error:
            if self.findings.strict and expanded == value:
                self.findings.tell((*self.path, key), error)
            for each in error.findings:
                message = f"`{dotted((key, *each.path))}` {each.message}"
                self.faults.append(": ".join(filter(None, (message, each.fix))))
            return _nothing(row, value)
        is_literal = self.context.dialect.style is variables.LITERAL and not self.context.references
        if is_literal and row.sound and variables.has_pattern(expanded):
            self.findings.warn((*self.path, key), "contains `${`, which is passed on unchanged")
        return expanded

    def _finish(self, filled: Fields) -> None:
        """What takes several fields at once, and what variables had to go into first."""
        if written := filled.pop("envFile", None):
            self._read_env_file(written, filled)
        if compat := filled.pop("compat", None):
            self._fit_in(compat, filled)
        row = types.TYPES[filled["type"]]
        if row.template:
            self._fill_in_name(row, filled)
        if row.needs == "url" and not row.is_started and not filled.get("url"):
            self.faults.append("its `url` is empty")
        roots = filled.pop("roots", ())
        filled["roots"] = () if self.faults else tuple(Root.at(*each) for each in roots)  # there may be a gap in them
        filled["tools"] = {name: Overlay.of(each) for name, each in filled.pop("tools", {}).items()}

    def _read_env_file(self, path: str, filled: Fields) -> None:
        if self.context.references:
            return self.findings.warn((*self.path, "envFile"), "is not used", "list its variables in `env`")
        try:
            filled["env"] = {**env_file.read(self.context.file.folder / path), **filled.get("env", {})}
        except OSError:
            self.faults.append("its `envFile` cannot be read: check that it exists")

    def _fit_in(self, compat: str, filled: Fields) -> None:
        program = re.split(r"[/\\]", filled.get("command", ""))[-1].removesuffix(".exe")
        if program != "uvx" and not self.faults:
            self._wrong('is only for servers with `command` "uvx"', "give the versions in `args`", "compat")
        filled["args"] = ("--with", compat, *filled.get("args", ()))
        filled["private_args"] = tuple(2 + index for index in filled["private_args"])

    def _fill_in_name(self, row: ServerType, filled: Fields) -> None:
        """`{name}` goes in here; `{port}` is known only when the program is started."""
        url = filled["url"] = filled.get("url", "").replace("{name}", slug(self.name))
        if "{port}" in url and not filled.get("command"):
            only = f"{filled['type']}s started by toolgate"
            self._wrong(f"contains `{{port}}`, which only {only} have", "write the port", "url")
        try:
            if row.sound_url and url and not variables.has_pattern(url):
                row.sound_url(url)
        except Wrong:
            self._wrong("is not a valid URL with the name in it", "", "url")


def _may_have_both(written: str | None) -> bool:
    """Whether it is started here, and reached by its URL."""
    row = types.TYPES.get(written or "")
    return bool(row and row.is_started and row.needs == "url")


def _nothing(row: Key, value: Any) -> Any:
    return {} if row.spread else type(value)()


_WHO_WRITES_PATTERNS = "add it to the configuration or with `toolgate servers add`"
