"""Makes `configuration-keys.md` and `toolgate.schema.json`: every key of the configuration, for people and for editors.

    python docs/make_configuration.py            write both
    python docs/make_configuration.py --print    show the page

What stands there is what the fields of `toolgate.config` say. A test holds the files against it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration-keys.md"
SCHEMA = ROOT / "docs" / "toolgate.schema.json"
sys.path[:0] = [str(ROOT / "src")]

from toolgate.config import Config, fields, render, values  # noqa: E402
from toolgate.config.fields import Change, Key, Later, Section  # noqa: E402

Struct: TypeAlias = type[msgspec.Struct]

HEAD = """# Keys of the configuration

Every key of toolgate's own configuration files, by table. [configuration.md](configuration.md) explains them with
examples.

Durations are seconds as a number, or `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"1d"`. Sizes are bytes as a number, or
`"512KB"` (thousands), `"4MiB"` (1024s), up to `GB` and `GiB`. The last column says what happens when you edit the
key while toolgate runs ([live-configuration.md](live-configuration.md)).

## In editors

`toolgate config schema > toolgate.schema.json` writes the JSON Schema of these keys; [this one](toolgate.schema.json)
is of the same version. With it, an editor completes keys, shows what they mean, and marks misspelt ones:

- TOML, in VS Code with Even Better TOML, and in other editors with taplo: the first line is
  `#:schema ./toolgate.schema.json`.
- YAML, in VS Code with Red Hat's extension: the first line is
  `# yaml-language-server: $schema=./toolgate.schema.json`.
- JSON: `"$schema": "./toolgate.schema.json"` at the root.

The schema cannot express every rule; `toolgate config check` checks all of them.
"""
CHANGES: Mapping[Change, str] = {
    "live": "applies at once",
    "restart": "restarts the server",
    "relist": "applies at once; clients are told that their lists have changed",
    "gateway": "applies after a restart of toolgate",
}
DURATIONS = (values.duration, values.duration_or_none)


def page() -> str:
    tables = (_table(*each) for each in _structs(Config))
    later = ", ".join(f"`{key}`" for key in _later())
    told = "These keys are reserved for later versions. Only their default values are accepted"
    return "\n".join([HEAD, *tables, f"## Not in this version\n\n{told}: {later}.\n"])


def schema() -> str:
    return json.dumps(render.schema(), indent=2, ensure_ascii=False) + "\n"


def _structs(
    struct: Struct, name: str = "", about: str = "", change: Change = "live"
) -> Iterator[tuple[Struct, str, str, Change]]:
    """The tables of a file, each before those in it: its name, what it says, and what a change of all of it does."""
    yield struct, name, about, change
    for key, row in fields.rows(struct).items():
        below = f"{name}.{key}".removeprefix(".")
        if isinstance(row, Section) and row.struct:
            yield from _structs(row.struct, below, row.about, row.change)
        elif isinstance(row, Key) and isinstance(row.kind, values.Kind) and row.kind.struct:
            yield from _structs(row.kind.struct, below + _several(row.kind.schema()), "", row.change)


def _several(schema: values.Schema) -> str:
    """What stands behind the name of a key that holds more than one table."""
    first = schema.get("anyOf", [schema])[0]
    if first.get("type") == "array":
        return "[]"
    return ".NAME" if isinstance(first.get("additionalProperties"), dict) else ""


def _table(struct: Struct, name: str, about: str, change: Change) -> str:
    keys = [(key, row) for key, row in fields.rows(struct).items() if isinstance(row, Key)]
    has_types = any(row.only for _, row in keys)
    columns = ["key", "for", "default", "", "when edited"]
    lines = [columns, ["---"] * len(columns), *(_row(struct, key, row, _done(name, row, change)) for key, row in keys)]
    shown = (line if has_types else line[:1] + line[2:] for line in lines)
    told = f"\n{about}\n" if about else ""
    title = f"`{name}`" if name else "The root of a file"
    return f"## {title}\n{told}\n" + "".join(f"| {' | '.join(line)} |\n" for line in shown)


def _done(name: str, row: Key, of_table: Change) -> str:
    """What an edit does. In a table that waits for a restart everything does."""
    change = row.change if row.change != "live" else of_table
    return CHANGES["restart" if name.startswith("mcpServers.") and change == "relist" else change]


def _row(struct: Struct, key: str, row: Key, done: str) -> list[str]:
    default = row.default or _default(struct, key, row)
    return [f"`{key}`", ", ".join(row.only), default, row.about.replace("|", "\\|"), done]


def _default(struct: Struct, key: str, row: Key) -> str:
    held = fields.defaults(struct).get(row.field)
    is_told = held not in (None, "", msgspec.NODEFAULT, msgspec.UNSET) and not isinstance(held, msgspec.Struct)
    if not is_told or key not in fields.keys(struct):
        return ""
    if row.kind in DURATIONS:
        return f'`"{_duration(held)}"`' if held else "`0`"
    if row.kind is values.size:
        return f'`"{held >> 20}MiB"`'
    return f"`{json.dumps(values.write(row.kind, held, False), ensure_ascii=False)}`"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and not seconds % length:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def _later() -> Iterator[str]:
    for key, row in fields.rows(Config).items():
        if isinstance(row, Later) or (isinstance(row, Section) and not row.struct):
            yield key
        elif isinstance(row, Section):
            yield from (f"{key}.{each}" for each, below in row.rows.items() if isinstance(below, Later))


if __name__ == "__main__":
    if "--print" in sys.argv[1:]:
        print(page(), end="")
    else:
        PAGE.write_text(page())
        SCHEMA.write_text(schema())
