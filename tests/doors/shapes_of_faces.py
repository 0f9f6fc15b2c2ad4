"""What readers of registries and of server cards may count on in what the gateway says of itself, written down for
these tests from the facts of the API of registries (2025-12-01) and of the draft of server cards (July 2026). Closed: a
member that neither knows is a fault."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}


def _object(needed: str = "", **members: Any) -> dict[str, Any]:
    return {"type": "object", "required": needed.split(), "properties": members, "additionalProperties": False}


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _text(most: int, least: int = 0) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": most}


NAME = {**_text(200, 3), "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"}
URL = {"type": "string", "pattern": r"^https?://[^\s]+$"}
WHEN = {"type": "string", "format": "date-time"}
HEADER = _object("name", name=TEXT, description=TEXT, isRequired={"type": "boolean"}, isSecret={"type": "boolean"})
REMOTE: dict[str, Any] = {
    "type": {"enum": ["streamable-http", "sse"]},
    "url": URL,
    "headers": _list(HEADER),
}
SERVER: dict[str, Any] = {
    "$schema": URL,
    "name": NAME,
    "title": _text(100, 1),
    "description": _text(100, 1),
    "version": {**_text(255), "not": {"const": "latest"}},
    "websiteUrl": URL,
}

CARD = _object(
    "$schema name description version",
    **SERVER,
    remotes=_list(_object("type url", **REMOTE, supportedProtocolVersions=_list(TEXT))),
)
CARD["properties"]["$schema"] = {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"}

OFFICIAL = _object(
    status={"enum": ["active", "deprecated", "deleted"]},
    statusMessage=_text(500),
    statusChangedAt=WHEN,
    publishedAt=WHEN,
    updatedAt=WHEN,
    isLatest={"type": "boolean"},
)
RESPONSE = _object(
    "server",
    server=_object("name description version", **SERVER, remotes=_list(_object("type url", **REMOTE))),
    _meta=_object(**{"io.modelcontextprotocol.registry/official": OFFICIAL}),
)
LIST = _object("servers", servers=_list(RESPONSE), metadata=_object(nextCursor=TEXT, count={"type": "integer"}))
