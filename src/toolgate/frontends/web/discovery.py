"""What the gateway says of its endpoints before anybody connects: a server card for each, and the catalog of cards.

    GET PATH/server-card               the card of the endpoint at PATH
    GET /.well-known/ai-catalog.json   where the cards are

As drafted in SEP-2127 and the repository modelcontextprotocol/experimental-ext-server-card. The rule this file keeps:
anybody may read that there is a gateway; which servers stand behind it is told to those alone who may know of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from toolgate import __version__
from toolgate.auth.access import Rules
from toolgate.core import jsonrpc, mcp, names
from toolgate.frontends.cors import VARY
from toolgate.frontends.guards import ENDPOINT, SERVERS, Guards, Refused, Scope, connection_of, not_allowed
from toolgate.frontends.streams import HeaderList, Receive, Response
from toolgate.frontends.web.endpoints import LONGEST_DESCRIPTION, Endpoint, described, endpoint_of
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.snapshot import Route

CARD = "/server-card"  # behind the path of an endpoint
CATALOG = "/.well-known/ai-catalog.json"
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_CARD_TYPE = "application/mcp-server-card+json"
_CORS: HeaderList = (
    (b"access-control-allow-origin", b"*"),  # who may ask at all, the guards have decided
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match"),
    (b"access-control-expose-headers", b"ETag"),
)


class Discovery:
    def __init__(self, gateway: Gateway, guards: Guards) -> None:
        self._gateway = gateway
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`."""
        headers, _ = self._guards.check(scope)
        if scope["method"] not in ("GET", "HEAD"):
            raise not_allowed("GET")
        path = str(scope["path"])
        if path == CATALOG:
            said, kind, is_public = await self._catalog(scope, receive), b"application/ai-catalog+json", False
        elif path.endswith(CARD):
            said, is_public = await self._card(scope, receive, path.removesuffix(CARD))
            kind = _CARD_TYPE.encode()
        else:
            raise Refused(404, f"Not found: {path}")
        body = jsonrpc.encode(said)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        cache = b"public, max-age=3600" if is_public else b"private, max-age=60"
        # A page of another web server on this machine may ask, and reads nothing.
        cors = _CORS if headers.get("origin") in (None, *self._guards.allowed_origins) else ()
        more = ((b"cache-control", cache), (b"etag", tag.encode()), VARY, *cors)
        if tag in headers.get("if-none-match", ""):
            await response.whole(304, b"", more)
        else:
            await response.whole(200, body, more, kind)

    async def _card(self, scope: Scope, receive: Receive, path: str) -> tuple[Mapping[str, Any], bool]:
        """And whether anybody may have it: that of the gateway as a whole, which says nothing of its servers."""
        config = self._gateway.snapshot.config
        if path == ENDPOINT:
            return self._written(endpoint_of(scope, config), path, "toolgate", "MCP servers behind one endpoint"), True
        request = await self._guards.admit({**scope, "path": path}, receive, connection_of(scope))
        route = request.route
        if route.is_strict:
            (id,) = route.servers
            server = self._gateway.snapshot.servers[id]
            title, about = server.name, server.description
        else:
            title, about = f"toolgate: {route.path.removeprefix(ENDPOINT + '/')}", "MCP servers behind one endpoint"
        return self._written(endpoint_of(scope, config), route.path, title, about), False

    def _written(self, endpoint: Endpoint, path: str, title: str, about: str) -> Mapping[str, Any]:
        return {
            "$schema": _SCHEMA,
            "name": endpoint.name(path),
            "title": title[:LONGEST_DESCRIPTION],
            "description": described(about, title),
            "version": __version__,
            "remotes": [{**endpoint.remote(path), "supportedProtocolVersions": list(mcp.REVISIONS)}],
        }

    async def _catalog(self, scope: Scope, receive: Receive) -> Mapping[str, Any]:
        """Who is nobody learns of the gateway as a whole."""
        endpoint = endpoint_of(scope, self._gateway.snapshot.config)
        try:
            request = await self._guards.admit({**scope, "path": ENDPOINT}, receive, connection_of(scope))
            paths = [ENDPOINT, *self._paths(request.route, self._gateway.access.rules(request.principal))]
        except Refused as refused:
            if refused.status not in (401, 403):
                raise
            paths = [ENDPOINT]
        return {
            "specVersion": "1.0",
            "entries": [
                {"identifier": endpoint.urn(path), "type": _CARD_TYPE, "url": endpoint.base + path + CARD}
                for path in paths
            ],
        }

    def _paths(self, route: Route, rules: Rules | None) -> list[str]:
        return [SERVERS + id for id in route.seen_by(rules) if id not in names.INTERNAL]
