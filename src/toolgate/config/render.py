"""A configuration → native tables, for people and for files, by the keys of its structs; and their JSON Schema.

The rule this file keeps: what may be a secret is masked, and what is masked can still be read as a native file.
With `masked=False` a table is what the server was configured with, for those that keep it in a file.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from toolgate.config import fields
from toolgate.config.server import Server
from toolgate.config.settings import Config

Table: TypeAlias = dict[str, Any]


def config(found: Config) -> Table:
    """Everything that holds, as a native file says it, with every default that is not empty; masked."""
    table = fields.written(found, masked=True)
    return {**table, "mcpServers": table.pop("mcpServers", {})}


def server(found: Server, masked: bool = False, whole: bool = False) -> Table:
    """One server. `whole`: with what is as by default."""
    return fields.written(found, masked, brief=not whole)


def schema() -> Table:
    """The JSON Schema (draft 7, which most editors have) of a file of toolgate's own. What it cannot say, such as what
    keys mean to one another, is left to reading: what it refuses, reading refuses."""
    root = fields.schema(Config)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The configuration of toolgate",
        **root,
        "properties": {"$schema": {"type": "string"}, **root["properties"]},
    }
