"""The gateway as a registry of its own servers, for programs that read `/v0.1` of MCP registries.

    GET /v0.1/servers                         the servers that who asks may use, a page at a time
    GET /v0.1/servers/NAME/versions           one of them
    GET /v0.1/servers/NAME/versions/VERSION   the same; VERSION may be `latest`

Each is listed as what it is to others: an endpoint of this gateway. The rule this file keeps: what starts a server
here, and with which variables, is told to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote

from toolgate import __version__
from toolgate.config import Server
from toolgate.core import jsonrpc, names
from toolgate.frontends.guards import ENDPOINT, SERVERS, Guards, Refused, Scope, connection_of, not_allowed
from toolgate.frontends.streams import Receive, Response
from toolgate.frontends.web.endpoints import Endpoint, described, endpoint_of
from toolgate.gateway.gateway import Gateway

PREFIX = "/v0.1/servers"
USUAL, MOST = 30, 100  # servers on a page
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_one = re.compile(r"/(.+?)/versions(?:/([^/]+))?")

Items = dict[str, Mapping[str, Any]]  # by name, in that order


class Registry:
    def __init__(self, gateway: Gateway, guards: Guards) -> None:
        self._gateway = gateway
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`."""
        request = await self._guards.admit({**scope, "path": ENDPOINT}, receive, connection_of(scope))
        if scope["method"] not in ("GET", "HEAD"):
            raise not_allowed("GET")
        snapshot = self._gateway.snapshot
        seen = snapshot.routes[ENDPOINT].seen_by(self._gateway.access.rules(request.principal))
        endpoint = endpoint_of(scope, snapshot.config)
        items: Items = {endpoint.name(SERVERS + id): self._item(snapshot.servers[id], endpoint) for id in _own(seen)}
        place = str(scope["path"]).removeprefix(PREFIX).rstrip("/")
        said = _one_of(items, place) if place else _page(items, _query(scope))
        status, body = (200, said) if said else (404, {"error": "Server not found"})
        await response.whole(status, jsonrpc.encode(body), [(b"cache-control", b"private, max-age=60")])

    def _item(self, server: Server, endpoint: Endpoint) -> Mapping[str, Any]:
        since = datetime.fromtimestamp(self._gateway.gateway_info.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = SERVERS + server.id
        listed = {
            "$schema": _SCHEMA,
            "name": endpoint.name(path),
            "title": server.name[:100],
            "description": described(server.description, server.name),
            "version": __version__,
            "remotes": [endpoint.remote(path)],
        }
        times = {"publishedAt": since, "updatedAt": since, "isLatest": True}
        return {"server": listed, "_meta": {_OFFICIAL: {"status": "active", **times}}}


def _own(seen: Mapping[str, str]) -> list[str]:
    return sorted(id for id in seen if id not in names.INTERNAL)


def _query(scope: Scope) -> Mapping[str, str]:
    given = parse_qs(bytes(scope.get("query_string", b"")).decode("latin-1"))
    return {name: values[0] for name, values in given.items()}


def _page(items: Items, query: Mapping[str, str]) -> Mapping[str, Any]:
    """A cursor is the name of the last one that was told: it holds whatever comes and goes. Raises `Refused`."""
    limit = query.get("limit", str(USUAL))
    if not re.fullmatch(r"\d{1,4}", limit) or not 1 <= int(limit) <= MOST:
        raise Refused(400, f"limit must be from 1 to {MOST}")
    words, since, version = query.get("search", "").lower(), query.get("updated_since", ""), query.get("version", "")
    wanted = [
        name
        for name, item in sorted(items.items())
        if words in name.lower()
        and version in ("", "latest", item["server"]["version"])
        and (not since or item["_meta"][_OFFICIAL]["updatedAt"] >= since)
        and name > query.get("cursor", "")
    ]
    shown = wanted[: int(limit)]
    more = {"nextCursor": shown[-1]} if len(wanted) > len(shown) else {}
    return {"servers": [items[name] for name in shown], "metadata": {"count": len(shown), **more}}


def _one_of(items: Items, place: str) -> Mapping[str, Any] | None:
    """A name has a slash in it, which is written as %2F, and may be read as a slash before it comes here."""
    found = _one.fullmatch(place)
    item = items.get(unquote(found[1])) if found else None
    if not found or not item:
        return None
    if found[2] is None:
        return {"servers": [item], "metadata": {"count": 1}}
    return item if unquote(found[2]) in ("latest", item["server"]["version"]) else None
