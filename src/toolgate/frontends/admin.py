"""The admin door: what an operator's programs ask of a running gateway, at /admin. JSON in, JSON out.

The rule this file keeps: it changes nothing itself. What it is asked for goes the one path of every change of the
configuration (`ports.Editor`), and what it shows has no secrets in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import showing
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed
from toolgate.frontends.streams import Receive, Response
from toolgate.gateway import Gateway
from toolgate.model import Fault, Principal
from toolgate.ports import Editor
from toolgate.wire import jsonrpc

PREFIX = "/admin"

# Fault code → the status that says it; all else is 500.
STATUSES: Mapping[str, int] = {"INVALID_ARGS": 400, "ACCESS_DENIED": 403, "SERVER_NOT_FOUND": 404}

Answer: TypeAlias = tuple[int, Any]


class Admin:
    """`guards` are those of the door that it stands in."""

    def __init__(self, gateway: Gateway, editor: Editor, guards: Guards) -> None:
        self._gateway = gateway
        self._editor = editor
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused` for what is no business of who asks."""
        request = await self._guards.admit_admin(scope, receive)
        work = self._find(scope, request.principal)
        try:
            status, said = await work(await self._guards.read(request))
        except Fault as fault:
            said = {"error": fault.message, "code": fault.code} | ({"hint": fault.hint} if fault.hint else {})
            status = STATUSES.get(fault.code, 500)
        await response.whole(status, self._gateway.redactor.body(jsonrpc.encode(said)))

    def _find(self, scope: Scope, by: Principal) -> Callable[[bytes], Awaitable[Answer]]:
        method, path = str(scope["method"]), str(scope["path"]).rstrip("/").removeprefix(PREFIX)
        name = path.removeprefix("/servers/")
        found: Mapping[str, Callable[[bytes], Awaitable[Answer]]] = {}
        if path == "/servers":
            found = {"GET": self._servers, "POST": lambda body: self._add(body, by)}
        elif name and name != path:
            found = {"GET": lambda _: self._server(name), "DELETE": lambda _: self._remove(name, by)}
        elif path == "/reload":
            found = {"POST": self._reload}
        if not found:
            raise Refused(404, f"There are {PREFIX}/servers, {PREFIX}/servers/NAME and {PREFIX}/reload")
        if method not in found:
            raise not_allowed(", ".join(found))
        return found[method]

    async def _servers(self, _body: bytes) -> Answer:
        return 200, {"servers": [self._shown(id) for id in self._gateway.snapshot.upstreams]}

    async def _server(self, name: str) -> Answer:
        return 200, self._shown(self._gateway.server_id(name))

    def _shown(self, id: str) -> Mapping[str, Any]:
        snapshot = self._gateway.snapshot
        status, server = snapshot.upstreams[id].status(), snapshot.servers[id]
        return {
            "id": id,
            "name": server.name,
            **{key: value for key, value in msgspec.structs.asdict(status).items() if value not in ("", None)},
            "config": showing.server(server, masked=True),
        }

    async def _add(self, body: bytes, by: Principal) -> Answer:
        try:
            table = msgspec.json.decode(body, type=dict[str, Any])
        except jsonrpc.UNREADABLE as error:
            raise Fault("INVALID_ARGS", f"The body must be a JSON object: {error}") from None
        name = table.pop("name", None)
        if not isinstance(name, str):
            raise Fault("INVALID_ARGS", "`name` is missing: the server's name, beside its other keys")
        id = await self._editor.add(name, table, by)
        return 201, {"id": id, "name": name}

    async def _remove(self, name: str, by: Principal) -> Answer:
        await self._editor.remove(self._gateway.snapshot.servers[self._gateway.server_id(name)].name, by)
        return 200, {"removed": name}

    async def _reload(self, _body: bytes) -> Answer:
        await self._editor.read_again()
        return 200, {"servers": list(self._gateway.snapshot.upstreams)}
