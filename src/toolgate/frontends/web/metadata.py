"""What the gateway says to anybody who wants a token for it (RFC 9728)."""

from __future__ import annotations

from collections.abc import Collection

from toolgate.auth.resource import Resource
from toolgate.core import jsonrpc
from toolgate.frontends.cors import VARY
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed
from toolgate.frontends.streams import Receive, Response


class Metadata:
    """`beside` are paths that take tokens, beside the endpoints."""

    def __init__(self, resource: Resource, guards: Guards, beside: Collection[str]) -> None:
        self._resource = resource
        self._guards = guards
        self._beside = beside

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`."""
        self._guards.check(scope)
        found = self._resource.metadata(scope["path"], self._beside)
        if not found:
            raise Refused(404, "Not found: tokens are not used at this path")
        if scope["method"] not in ("GET", "HEAD"):
            raise not_allowed("GET")
        varies = () if response.headers else (VARY,)  # it is kept on its way, and has that for some pages already
        await response.whole(200, jsonrpc.encode(found), [(b"cache-control", b"max-age=300"), *varies])
