"""Whether the gateway works, for whoever keeps it running: a load balancer, a container's health check, systemd.

    GET /healthz   it answers at all
    GET /readyz    it takes calls (200), or ends and takes no new ones (503)

The rule this file keeps: anybody may ask, by any host name, since a probe has no key and knows an address only; so
anybody learns nothing but that. Which servers have failed is told to who may see them. A server that has failed makes
the gateway no less ready: its other servers answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolgate.core import jsonrpc, names
from toolgate.frontends.guards import ENDPOINT, Guards, Refused, Scope, connection_of, not_allowed
from toolgate.frontends.streams import Receive, Response
from toolgate.gateway.gateway import Gateway

ALIVE, READY = "/healthz", "/readyz"
_ANEW = ((b"cache-control", b"no-store"),)


class Health:
    def __init__(self, gateway: Gateway, guards: Guards) -> None:
        self._gateway = gateway
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`."""
        path = str(scope["path"]).rstrip("/")
        if path not in (ALIVE, READY):
            raise Refused(404, f"Not found: {scope['path']}")
        if scope["method"] not in ("GET", "HEAD"):
            raise not_allowed("GET")
        if path == ALIVE:
            await response.whole(200, b"ok\n", _ANEW, b"text/plain")
            return
        is_ready = self._gateway.phase == "serving"
        said = {"ready": is_ready, **({} if is_ready else {"why": "the gateway is shutting down"})}
        said |= await self._seen(scope, receive)
        await response.whole(200 if is_ready else 503, jsonrpc.encode(said), _ANEW)

    async def _seen(self, scope: Scope, receive: Receive) -> Mapping[str, Any]:
        """The servers that have failed, for who has shown who it is, or is on an open gateway."""
        try:
            request = await self._guards.admit({**scope, "path": ENDPOINT}, receive, connection_of(scope))
        except Refused:
            return {}
        snapshot = self._gateway.snapshot
        seen = snapshot.routes[ENDPOINT].seen_by(self._gateway.access.rules(request.principal))
        states = {id: snapshot.upstreams[id].status().state for id in seen if id not in names.INTERNAL}
        return {"failed": sorted(snapshot.servers[id].name for id, state in states.items() if state == "failed")}
