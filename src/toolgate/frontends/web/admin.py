"""The admin frontend: what an operator's programs ask of a running gateway, at /admin. JSON in, JSON out.

It is the same over HTTP, over the operator's socket (`operator`), and inside a command that runs a gateway of its own.
The rule this file keeps: it changes nothing itself. What it is asked for goes the one path of every change of the
configuration (`Reloading`) and of every call and list (`gateway`), as who asks; and what it shows has no secrets in
it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolgate.auth.access import THE_OPERATOR
from toolgate.config import Server, render
from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Call, Client, Done, NeedInput, Principal
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed
from toolgate.frontends.streams import Receive, Response, gone
from toolgate.gateway.confirming import Unconfirmed
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.reload import Reloading
from toolgate.policy import scrub
from toolgate.surfaces.controls.base import find_server
from toolgate.surfaces.controls.context import GatewayInfo

PREFIX = "/admin"

# Fault code → the status that says it; all else is 500.
STATUSES: Mapping[str, int] = {
    "INVALID_ARGS": 400,
    "ACCESS_DENIED": 403,
    "SERVER_NOT_FOUND": 404,
    "TOOL_NOT_FOUND": 404,
    "SHUTTING_DOWN": 503,
}

Answer: TypeAlias = tuple[int, Any]


class Asked(NamedTuple):
    """One request: its body, who asks, and the server that its path names."""

    body: bytes
    by: Principal
    name: str = ""


class _Called(msgspec.Struct):
    """What `POST /admin/call` is given: a tool by the name that clients know, and the folder in which the operator is:
    the call is in its project."""

    tool: str
    arguments: Raw = Raw(b"{}")
    folder: Annotated[str, Meta(pattern="^/", max_length=4096)] | None = None


class _Listed(msgspec.Struct):
    """What `POST /admin/list` is given: the path whose tools are wanted, and whether each server is asked again."""

    path: str = "/mcp"
    anew: bool = False


class _Hook(msgspec.Struct):
    """What `POST /admin/hook` is given: the name of a file in the folder of hooks."""

    file: str


class _Reloaded(msgspec.Struct):
    """What `POST /admin/reload` may be given: sentences of an answer before, to which the operator has agreed."""

    confirmed: tuple[str, ...] = ()


class Admin:
    """`guards` are those of the frontend that it stands in."""

    def __init__(self, gateway: Gateway, editor: Reloading, guards: Guards) -> None:
        self._gateway = gateway
        self._editor = editor
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused` for what is no business of who asks. Who goes away is not worked for any longer."""
        request = await self._guards.admit_admin(scope, receive, PREFIX)
        work, name = _find(str(scope["method"]), str(scope["path"]))
        asked = Asked(await self._guards.read(request), request.principal, name)
        answer = asyncio.get_running_loop().create_task(self._answered(work, asked))
        left = asyncio.get_running_loop().create_task(gone(receive))
        try:
            await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await response.whole(*answer.result())
        finally:
            left.cancel()
            answer.cancel()

    async def ask(self, method: str, path: str, body: bytes, by: Principal) -> tuple[int, bytes]:
        """The same inside this process: status and body of the answer. Raises `Refused`."""
        work, name = _find(method, path)
        return await self._answered(work, Asked(body, by, name))

    async def _answered(self, work: Work, asked: Asked) -> tuple[int, bytes]:
        try:
            status, said = await work(self, asked)
        except Fault as fault:
            shown = scrub.fault(fault, self._gateway.redactor)
            said = _written(shown)
            status = STATUSES.get(fault.code, 500)
        return status, said if isinstance(said, bytes) else self._gateway.redactor.body(jsonrpc.encode(said))

    # The gateway.

    async def status(self, _: Asked) -> Answer:
        gateway_info: GatewayInfo = self._gateway.gateway_info
        config, port = self._gateway.snapshot.config, self._gateway.gateway_info.port()
        shown = {
            "version": gateway_info.version,
            "pid": gateway_info.pid,
            "state": self._gateway.phase,
            "started": gateway_info.started,
            "uptime": gateway_info.wall() - gateway_info.started,
            "configuration": gateway_info.source,
            "problem": gateway_info.problem(),
            "host": config.http.host,
            "port": port,
            "url": config.http.url(config.http.host, port) if port else "",
            "code": gateway_info.code() or None,
            "tokens": await self._gateway.tokens(),
        }
        servers = [self._brief(server) for server in config.servers]
        return 200, {**{key: value for key, value in shown.items() if value not in ("", None)}, "servers": servers}

    async def reload(self, asked: Asked) -> Answer:
        wanted: _Reloaded = _read(asked.body or b"{}", _Reloaded)
        try:
            await self._editor.read_again(wanted.confirmed)
        except Unconfirmed as waiting:
            return 409, {"error": str(waiting), "unconfirmed": waiting.losses}
        return 200, {"servers": [server.id for server in self._gateway.snapshot.config.servers if server.enabled]}

    async def hook(self, asked: Asked) -> Answer:
        """What a program's hook prints, once what it has put into the folder of hooks was read."""
        said = await self._gateway.workspace.hooks.answer(_read(asked.body, _Hook).file)
        return (200, said) if said else (404, {"error": "not a file in the folder of hooks"})

    # Servers.

    async def servers(self, _: Asked) -> Answer:
        return 200, {"servers": [self._shown(server) for server in self._gateway.snapshot.config.servers]}

    async def server(self, asked: Asked) -> Answer:
        return 200, self._shown(self._named(asked.name))

    def _named(self, name: str) -> Server:
        """A server as configured, one that is disabled too. Raises `Fault`."""
        known = {server.id: server for server in self._gateway.snapshot.config.servers}
        return known[find_server(name, {id: server.name for id, server in known.items()})]

    def _shown(self, server: Server) -> Mapping[str, Any]:
        return {
            "id": server.id,
            "name": server.name,
            **self._state(server),
            **_box(server),
            "config": render.server(server, masked=True),
        }

    def _brief(self, server: Server) -> Mapping[str, Any]:
        """Without what is long: its stderr, its configuration."""
        state = {key: value for key, value in self._state(server).items() if key != "stderr"}
        known = self._gateway.snapshot.catalog.known(server.id, "tools", Client())
        tools = {"tools": len(known.items)} if known else {}
        return {"id": server.id, "name": server.name, **state, **tools, **_box(server)}

    def _state(self, server: Server) -> Mapping[str, Any]:
        upstream = self._gateway.snapshot.upstreams.get(server.id)
        if not upstream:
            return {"state": "disabled"}
        status = scrub.status(upstream.status(), self._gateway.redactor.of(server.id))
        return {key: value for key, value in msgspec.structs.asdict(status).items() if value not in ("", None)}

    async def add(self, asked: Asked) -> Answer:
        try:
            table = msgspec.json.decode(asked.body, type=dict[str, Any])
        except jsonrpc.UNREADABLE as error:
            raise Fault("INVALID_ARGS", f"The body must be a JSON object: {error}") from None
        name = table.pop("name", None)
        if not isinstance(name, str):
            raise Fault("INVALID_ARGS", "`name`, the server's name, is missing")
        id = await self._editor.add(name, table, asked.by)
        return 201, {"id": id, "name": name}

    async def remove(self, asked: Asked) -> Answer:
        await self._editor.remove(self._named(asked.name).name, asked.by)
        return 200, {"removed": asked.name}

    async def check(self, asked: Asked) -> Answer:
        """Start a server, where it is not up, and have it list all that it has anew: what it lists is kept."""
        server, snapshot = self._named(asked.name), self._gateway.snapshot
        if not server.enabled:
            return 200, self._shown(server)
        wanted = [(server.id, kind) for kind in mcp.LIST_OF_KIND]
        view = await snapshot.catalog.view({server.id: server.name}, wanted, Client(asked.by), anew=True)
        server_list, fault = view.server_list(server.id, "tools"), view.fault(server.id, "tools")
        found: dict[str, Any] = dict(self._shown(server))
        if fault:
            found["fault"] = _written(scrub.fault(fault, self._gateway.redactor))
        if server_list:
            found["tools"] = [*server_list.own.values()]
            found["ignored"] = server_list.ignored
        return 200, found

    # What clients do.

    async def list(self, asked: Asked) -> Answer:
        """The tools of a path as its clients get them, and of each server what is known."""
        wanted, snapshot = _read(asked.body, _Listed), self._gateway.snapshot
        if wanted.anew:
            lists = [(id, kind) for id in snapshot.upstreams for kind in mcp.LIST_OF_KIND]
            names = {id: server.name for id, server in snapshot.servers.items()}
            await snapshot.catalog.view(names, lists, Client(asked.by), anew=True)
        listing = await self._gateway.lists.view("tools", self._gateway.route(wanted.path), Client(asked.by))
        servers: list[Mapping[str, Any]] = []
        for server in self._gateway.snapshot.config.servers:
            known = self._gateway.snapshot.catalog.known(server.id, "tools", Client(asked.by))
            servers.append({**self._brief(server), "listed": [*known.items.values()] if known else []})
        said = {"listing": listing.members(), "servers": servers}
        return 200, {**said, "is_whole": not listing.failures and not listing.pending}

    async def syncs(self, _: Asked) -> Answer:
        """How far those files of tasks are that are read or written now, in words, by the folder of their project."""
        return 200, {str(folder): said for folder, said in self._gateway.workspace.workspace.syncs.items()}

    async def call(self, asked: Asked) -> Answer:
        """One tool called; its result as its server gave it, or what it asks of its user, who is not there."""
        wanted = _read(asked.body, _Called)
        route = self._gateway.route("/mcp")
        call = Call(
            "tools/call",
            wanted.tool,
            Client(asked.by, path=route.path),
            wanted.arguments,
            reached=Reached(),
            is_by_admin=True,
            folder=wanted.folder if wanted.folder and asked.by == THE_OPERATOR else "",
        )
        outcome = await self._gateway.handle(call, route)
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
            return 200, {"asks": [ask.method for ask in outcome.asks]}
        assert isinstance(outcome, Done)
        return 200, b'{"result":%b}' % bytes(outcome.body)


def _box(server: Server) -> Mapping[str, str]:
    """What its program may do, in words, if it is in a box."""
    confines = server.confines
    return {"box": confines.words} if confines else {}


Work: TypeAlias = Callable[[Admin, Asked], Awaitable[Answer]]

# Behind PREFIX, by method. NAME is any server's.
ROUTES: Mapping[str, Mapping[str, Work]] = {
    "/status": {"GET": Admin.status},
    "/call": {"POST": Admin.call},
    "/list": {"POST": Admin.list},
    "/servers": {"GET": Admin.servers, "POST": Admin.add},
    "/servers/NAME": {"GET": Admin.server, "DELETE": Admin.remove},
    "/servers/NAME/check": {"POST": Admin.check},
    "/reload": {"POST": Admin.reload},
    "/hook": {"POST": Admin.hook},
    "/syncs": {"GET": Admin.syncs},
}
_of_a_server = re.compile(r"(/servers/)([^/]+)(.*)", re.DOTALL)


def _find(method: str, path: str) -> tuple[Work, str]:
    """What answers, and the server that the path names. Raises `Refused`."""
    path, name = path.rstrip("/").removeprefix(PREFIX), ""
    if found := _of_a_server.fullmatch(path):
        before, name, behind = found.groups()
        path = f"{before}NAME{behind}"
    methods = ROUTES.get(path)
    if not methods:
        *paths, last = (f"{PREFIX}{each}" for each in ROUTES)
        raise Refused(404, f"Available: {', '.join(paths)} and {last}")
    if method not in methods:
        raise not_allowed(", ".join(methods))
    return methods[method], name


def _read(body: bytes, type: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=type)
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid body: {error}", reach="not_sent") from None


def _written(fault: Fault) -> dict[str, Any]:
    """A fault as the answer has it; the error that a server sent itself stands in `upstream`."""
    said = {"error": fault.message, "code": fault.code, "hint": fault.hint, "outcome": fault.reach or ""}
    return {key: value for key, value in said.items() if value}
