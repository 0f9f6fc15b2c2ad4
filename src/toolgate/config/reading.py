"""The plain values of a configuration file → the fields of the structs, with all that is wrong on the way.

The rule this file keeps: reading never stops at the first fault, and says what is wrong by the path of its key.
What a key may hold stands in `keys`; here is what keys mean to one another: ids, types, variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import keys, values, variables
from toolgate.config.keys import Key, Later, Row
from toolgate.config.values import Finding, Kind, Wrong, did_you_mean
from toolgate.config.variables import Expansion
from toolgate.wire.names import slug

KeyPath: TypeAlias = tuple[str | int, ...]
Fields: TypeAlias = dict[str, Any]

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
    """One file while it is read. `servers` and `sections` hold the fields of the structs, fit to be made only where
    there are no `problems`; `warnings` are what does not stop anything."""

    def __init__(self, environ: Mapping[str, str], native: bool) -> None:
        self.environ = environ
        self.native = native
        self.servers: list[Fields] = []
        self.sections: dict[str, Fields] = {}
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []

    def read(self, tree: object) -> None:
        for key, value in self.table(tree, ()).items():
            self._root_key(key, value)

    def _root_key(self, key: str, value: object) -> None:
        if key == "mcpServers":
            self._read_servers(self.table(value, (key,)))
        elif key in keys.SECTIONS:
            self.sections[key] = self.fields(keys.SECTIONS[key], self.table(value, (key,)), (key,))
        elif key in keys.ROOT:
            self.later((key,), keys.ROOT[key], value)
        elif key not in keys.PASSED_OVER:
            self.unknown((key,), ("mcpServers", *keys.SECTIONS, *keys.ROOT))

    def _read_servers(self, table: dict[str, object]) -> None:
        if not self.native and "toolgate" in table:  # how another tool names this very gateway
            del table["toolgate"]
            self.warnings.append(Finding("is this gateway itself: it is passed over", path=("mcpServers", "toolgate")))
        self._check_ids(table)
        read = [_ServerReading(self, name).server(value) for name, value in table.items()]
        self.servers = [server for server in read if server]

    def _check_ids(self, names: Mapping[str, object]) -> None:
        owners: dict[str, str] = {}
        for name in names:
            path, id = ("mcpServers", name), slug(name)
            owner = owners.setdefault(id, name)
            if self.take(values.text, name, path) is _bad:
                continue
            if not id:
                self.wrong(path, "has no letter or digit to make an id of", "rename it")
            elif id == "toolgate" or id.startswith("gobby-"):
                self.wrong(path, f"has the id `{id}`, which is the gateway's own", "rename it")
            elif owner != name:
                self.wrong(path, f"has the same id `{id}` as the server {json.dumps(owner)}", "rename one of the two")

    # What every part of the file needs.

    def table(self, value: object, path: KeyPath) -> dict[str, object]:
        """A table; nothing at all (YAML: every line below is a comment) is an empty one."""
        found = self.take(values.table, {} if value is None else value, path)
        return {} if found is _bad else found

    def fields(
        self, rows: Mapping[str, Row], table: Mapping[str, object], path: KeyPath, faults: list[str] | None = None
    ) -> dict[str, Any]:
        """What the keys of `table` that work hold, in the file's words."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            row = rows.get(key)
            if row is None:
                self.unknown((*path, key), rows)
            elif isinstance(row, Later):
                self.later((*path, key), row, value, faults)
            elif (read := self.take(row.kind, value, (*path, key))) is not _bad:
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
            self.wrong((*path, *finding.path), finding.message, finding.mend)

    def wrong(self, path: KeyPath, message: str, mend: str = "") -> None:
        self.problems.append(Finding(message, mend, path))

    def warn(self, path: KeyPath, message: str, mend: str = "") -> None:
        self.warnings.append(Finding(message, mend, path))

    def unknown(self, path: KeyPath, known: Iterable[str]) -> None:
        if not self.native:
            return self.warn(path, "is unknown here and ignored")
        key = str(path[-1])
        ours = keys.MENDS.get(key, "")
        if ours in known:
            mend = f"did you mean `{ours}`?"
        else:
            mend = did_you_mean(key, known) if len(self.problems) < MOST_HINTS else ""
        self.wrong(path, "unknown key", mend or "remove it")

    def later(self, path: KeyPath, row: Later, value: object, faults: list[str] | None = None, shown: str = "") -> None:
        """A key of a later version. `faults`: of a server, which alone fails where the file is another tool's."""
        shown = shown or dotted(path[2:] if path[0] == "mcpServers" else path)
        if row.accepts(value):
            if row.hollow:
                self.warn(path, f"`{shown}` is a promise that this version of toolgate does not keep yet", row.says)
            return
        other = "" if row.accepted is msgspec.UNSET else f" other than {json.dumps(row.accepted)}"
        message = f"`{shown}`{other} is not available in this version of toolgate"
        if self.native or faults is None:
            self.wrong(path, message, "; ".join(filter(None, (row.mend, row.says))))
        elif row.grave:
            faults.append(": ".join((message, row.says or row.mend)))
        else:
            self.warn(path, f"{message} and is ignored", row.says)


class _ServerReading:
    """One server while it is read. `faults` are what fails this server alone."""

    def __init__(self, reading: Reading, name: str) -> None:
        self.reading = reading
        self.name = name
        self.path: KeyPath = ("mcpServers", name)
        self.rows = keys.SERVER if reading.native else {**keys.SERVER, **keys.FOREIGN}
        self.faults: list[str] = []
        self.sound_url: Callable[[str], None] | None = None  # of the type that is written

    def server(self, value: object) -> Fields | None:
        """None where something is wrong that the reading was told of."""
        before = len(self.reading.problems)
        if (table := self.reading.take(values.table, value, self.path)) is _bad:
            return None
        found = self.reading.fields(self.rows, table, self.path, self.faults)
        type = self._type({self._field(key) for key in table}, found)
        self._check_pairs(table, found, type)
        self.sound_url = keys.SOUND_URLS.get(type or "") if "type" in map(self._field, found) else None
        missing = self._put_in_variables(found)
        if len(self.reading.problems) > before or type is None:
            return None
        fields = {self._field(key): value for key, value in found.items()}
        if type == "http" and "type" not in fields and variables.is_websocket(fields["url"]):
            type = "ws"
        told = {"problem": "; ".join(self.faults), "missing": missing}
        return {**fields, **told, "id": slug(self.name), "name": self.name, "type": type}

    def _field(self, key: str) -> str:
        row = self.rows.get(key)
        return row.field if isinstance(row, Key) and row.field else key

    def _type(self, present: set[str], found: Mapping[str, Any]) -> str | None:
        """The type of server, as written or by the key that it has."""
        if {"command", "url"} <= present:
            return self._wrong("has both `command` and `url`", "a server is started or reached: remove one of the two")
        if "type" in present:
            return self._written_type(next((found[key] for key in found if self._field(key) == "type"), None), present)
        if not present & {"command", "url"}:
            return self._wrong("needs `command` (a program to start) or `url` (a server to reach)")
        return "stdio" if "command" in present else "http"

    def _written_type(self, written: str | None, present: set[str]) -> str | None:
        if written is None:
            return None
        foreign = keys.FOREIGN_TYPES.get(written)
        word = foreign or written if not self.reading.native else written
        if word in keys.LATER_TYPES:
            self.reading.later((*self.path, "type"), keys.LATER_TYPE, word, self.faults, f'type = "{word}"')
            return "stdio" if "command" in present else "http"
        if word not in keys.TYPES:
            mend = f'write "{foreign}"' if foreign else did_you_mean(word, keys.TYPES)
            return self._wrong(f"must be {values.any_of(keys.TYPES)}", mend, "type")
        if keys.TYPES[word] not in present:
            return self._wrong(f"is of type {word} and needs `{keys.TYPES[word]}`")
        return word

    def _wrong(self, message: str, mend: str = "", *below: str) -> None:
        self.reading.wrong((*self.path, *below), message, mend)

    def _check_pairs(self, table: Mapping[str, object], found: dict[str, Any], type: str | None) -> None:
        """Keys that do not go together. What does not fit the type is taken out of `found`."""
        if {"timeout", "timeoutMs"} <= table.keys():
            self._wrong("stands beside `timeout`", "remove one of the two", "timeoutMs")
        for key in list(found) if type else ():
            row = self.rows[key]
            if not isinstance(row, Key) or not row.only or type in row.only:
                continue
            if found.pop(key):  # empty ones are what other tools write
                tell = self.reading.wrong if self.reading.native else self.reading.warn
                tell((*self.path, key), f"is for {'/'.join(row.only)} servers, and this one is {type}", "remove it")

    def _put_in_variables(self, found: dict[str, Any]) -> tuple[str, ...]:
        """Expand what can be expanded, in place; the names of variables that are not set."""
        expansion = Expansion(self.reading.environ)
        for key, value in found.items():
            row = self.rows[key]
            if isinstance(row, Key) and row.sound and value is not None:
                found[key] = self._expanded(key, value, row, expansion)
        missing = tuple(dict.fromkeys(expansion.missing))
        if missing:
            self.faults.append(_not_set(missing))
        return missing

    def _expanded(self, key: str, value: Any, row: Key, expansion: Expansion) -> Any:
        """What comes out wrong is the file's fault where our file says so itself. Else, where a variable brought it in
        or the file is another tool's, it fails this server only, and nothing of it is kept."""
        already, expanded = len(expansion.missing), value
        sound = (self.sound_url if self._field(key) == "url" else None) or row.sound
        try:
            expanded = expansion.expand(value)
            if sound and len(expansion.missing) == already:
                sound(expanded)
        except Wrong as error:
            if self.reading.native and expanded == value:
                self.reading.tell((*self.path, key), error)
            for each in error.findings:
                self.faults.append(
                    ": ".join(filter(None, (f"`{dotted((key, *each.path))}` {each.message}", each.mend)))
                )
            return type(value)()
        return expanded


def _not_set(missing: tuple[str, ...]) -> str:
    names = ", ".join(missing)
    return (
        f"{names} {'is' if len(missing) == 1 else 'are'} not set: set {'it' if len(missing) == 1 else 'them'} in the "
        f"environment of toolgate, or write a default: ${{{missing[0]}:-default}}"
    )
