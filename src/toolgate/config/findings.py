"""Everything that is wrong with one file, gathered while it is read.

The rule this file keeps: reading never stops at the first fault, and says what is wrong by the path of its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from toolgate.config import values
from toolgate.config.fields import Key, Later, Rows
from toolgate.config.problems import KeyPath, dotted
from toolgate.config.values import Finding, Read, Wrong, did_you_mean

MOST_HINTS = 20  # per file; whoever has more unknown keys than that has named the wrong file
BAD = object()  # in place of a value of which the findings were told

# Other tools' words, corrected in our files.
FIXES = {
    "transport": "type",
    "transportType": "type",
    "httpUrl": "url",
    "serverUrl": "url",
    "disabled": "enabled",
    "mcp_servers": "mcpServers",
    "servers": "mcpServers",
    "context_servers": "mcpServers",
    "environment": "env",
    "envs": "env",
    "cmd": "command",
    "uri": "url",
    "startup_timeout_sec": "start_timeout",
    "tool_timeout_sec": "timeout",
    "http_headers": "headers",
}


class Findings:
    """`problems` refuse the file; `warnings` do not stop anything. In a file that is not `strict`, as other tools' are
    not, what is unknown is a warning."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []

    def table(self, value: object, path: KeyPath) -> dict[str, object]:
        """A table; nothing at all (YAML: every line below is a comment) is an empty one."""
        found = self.take(values.table, {} if value is None else value, path)
        return {} if found is BAD else found

    def fields(
        self, rows: Rows, table: Mapping[str, object], path: KeyPath, faults: list[str] | None = None
    ) -> dict[str, Any]:
        """What the keys of `table` that work hold, in the file's words. `faults`: see `later`."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key not in rows:
                self.unknown((*path, key), rows)
                continue
            row = rows[key]
            later = row if isinstance(row, Later) else row.later(value) if isinstance(row, Key) and row.later else None
            if later:
                self.later((*path, key), later, value, faults)
            elif isinstance(row, Key):
                read = self.take(row.kind, value, (*path, key))
                if read is not BAD and read is not msgspec.UNSET:
                    found[key] = read
        return found

    def take(self, kind: Read, value: object, path: KeyPath) -> Any:
        """The value as it was read, or `BAD`."""
        try:
            return kind(value)
        except Wrong as error:
            self.tell(path, error)
            return BAD

    def tell(self, path: KeyPath, error: Wrong) -> None:
        for finding in error.findings:
            self.wrong((*path, *finding.path), finding.message, finding.fix)

    def wrong(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(Finding(message, fix, path))

    def warn(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.warnings.append(Finding(message, fix, path))

    def unknown(self, path: KeyPath, known: Iterable[str]) -> None:
        if not self.strict:
            return self.warn(path, "is unknown and ignored")
        key = str(path[-1])
        ours = FIXES.get(key, "")
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
        if self.strict or faults is None:
            self.wrong(path, message, "; ".join(filter(None, (row.fix, row.says))))
        elif row.grave:
            faults.append(": ".join((message, row.says or row.fix)))
        else:
            self.warn(path, f"{message} and is ignored", row.says)
