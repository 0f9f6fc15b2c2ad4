"""The admin frontend: what an operator's programs ask of a running gateway, at /admin. JSON in, JSON out.

It is the same over HTTP, over the operator's socket (`operator`), and inside a command that runs a gateway of its own.
The rule this file keeps: it changes nothing itself. What it is asked for goes the one path of every change of the
configuration (`Reloading`) and of every call and list (`gateway`), as who asks; and what it shows has no secrets in
it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from toolgate import __version__
from toolgate.auth.access import THE_OPERATOR
from toolgate.auth.credential_states import CredentialState
from toolgate.config import Server, render
from toolgate.core import jsonrpc, mcp, plain
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Call, Client, Done, NeedInput, Principal
from toolgate.frontends.active_requests import Enter
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed
from toolgate.frontends.streams import Receive, Response, gone
from toolgate.frontends.web import decisions, file_edits, inspections, openapi
from toolgate.frontends.web.agents import Agents, Board, Sessions, SessionShown, WantedBoard, WantedSessions
from toolgate.frontends.web.decisions import Decided, Waiting, WaitingCall, WantedDecision
from toolgate.frontends.web.file_edits import Planned, Saved, WantedImport, WantedSave, WantedVerdict
from toolgate.frontends.web.inspections import (
    AccessMatrix,
    AccessOfClient,
    AuditFound,
    AuditLines,
    CallsCounted,
    Configuration,
    ConfigurationFound,
    WantedCheck,
    WantedLines,
)
from toolgate.frontends.web.live import LiveTraffic
from toolgate.frontends.web.openapi import Operation
from toolgate.frontends.web.reviews import (
    AllPins,
    Approved,
    Differences,
    Reviews,
    WantedApproval,
    WantedDifferences,
)
from toolgate.gateway.confirming import Unconfirmed
from toolgate.gateway.file_edits import FileText
from toolgate.policy import scrub
from toolgate.surfaces.controls.base import find_server
from toolgate.surfaces.controls.context import GatewayInfo
from toolgate.telemetry.traffic import Portion, Wanted
from toolgate.upstreams.base import State, StoppedBy

PREFIX = "/admin"

# Fault code → the status that says it; all else is 500.
STATUSES: Mapping[str, int] = {
    "INVALID_ARGS": 400,
    "ACCESS_DENIED": 403,
    "APPROVAL_DENIED": 403,
    "APPROVAL_REQUIRED": 403,
    "INSUFFICIENT_SCOPE": 403,
    "SIGN_IN_REQUIRED": 403,
    "SERVER_NOT_FOUND": 404,
    **dict.fromkeys(mcp.MISSING, 404),
    "INVALID_STATE": 409,
    "RATE_LIMITED": 429,
    "SERVER_FAILED": 502,
    "UPSTREAM_ERROR": 502,
    "SESSION_ERROR": 502,
    "CIRCUIT_OPEN": 503,
    "SHUTTING_DOWN": 503,
    "TIMEOUT": 504,
}

Answer: TypeAlias = tuple[int, Any]


class Asked(NamedTuple):
    """One request: its body, who asks, and what its path names: a server, for example."""

    body: bytes
    by: Principal
    name: str = ""


class WantedCall(msgspec.Struct):
    """What `POST /admin/call` is given: a tool by the name that clients know, and the folder in which the operator is:
    the call is in its project."""

    tool: str
    arguments: Raw | UnsetType = UNSET
    folder: Annotated[str, Meta(pattern="^/", max_length=4096)] | None = None


class WantedList(msgspec.Struct):
    """What `POST /admin/list` is given: the path whose tools are wanted, and whether each server is asked again."""

    path: str = "/mcp"
    anew: bool = False


class WantedHook(msgspec.Struct):
    """What `POST /admin/hook` is given: the name of a file in the folder of hooks."""

    file: str


class WantedReload(msgspec.Struct):
    """What `POST /admin/reload` may be given: sentences of an answer before, to which the operator has agreed."""

    confirmed: tuple[str, ...] = ()


class Failure(msgspec.Struct, omit_defaults=True):
    """Why there is no answer: `outcome` is how far a call got."""

    error: str
    code: str = ""
    hint: str = ""
    outcome: str = ""


class Unconfirmable(Failure):
    """`unconfirmed`: what an edit takes away, in sentences that the operator may confirm."""

    unconfirmed: tuple[str, ...] = ()


class _RpcError(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class Refusal(msgspec.Struct):
    """What HTTP refuses, as a JSON-RPC error."""

    jsonrpc: str
    id: str | int | None
    error: _RpcError


class ServerState(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A server in brief. `box` is what its program may do; `calls` counts those under way or parked."""

    id: str
    name: str
    state: State | Literal["disabled"]
    error: str = ""
    hint: str = ""
    pid: int | None = None
    started: float | None = None
    revision: str = ""
    calls: int | UnsetType = UNSET
    stopped_by: StoppedBy = ""
    box: str = ""
    tools: int | UnsetType = UNSET


class ServerShown(ServerState, kw_only=True):
    """A server with the last of its stderr, and as it is configured."""

    stderr: str = ""
    config: Mapping[str, Any]


class ServerChecked(ServerShown, kw_only=True):
    """A server and what it lists; `ignored` says what of that is left out, and why."""

    fault: Failure | None = None
    tools: tuple[Raw, ...] | UnsetType = UNSET  # type: ignore[assignment]
    ignored: tuple[str, ...] | UnsetType = UNSET


class ServerListed(ServerState, kw_only=True):
    """A server in brief, and its tools as it lists them."""

    listed: tuple[Raw, ...]


class About(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The gateway: `started` in seconds since 1970, `problem` with the configuration as it stands, where an older one
    is served, `code` what runs code of clients, `tokens` what models have loaded of tools, `credentials`
    those that end or fail."""

    version: str
    pid: int
    state: str
    started: float
    uptime: float
    configuration: str = ""
    problem: str = ""
    host: str
    port: int | None = None
    url: str = ""
    code: Mapping[str, str] = {}
    tokens: Mapping[str, Any]
    credentials: Sequence[CredentialState] = ()
    servers: tuple[ServerState, ...]


class Servers(msgspec.Struct):
    servers: tuple[ServerShown, ...]


class Reloaded(msgspec.Struct):
    """The servers that are served now, by their ids."""

    servers: tuple[str, ...]


class WantedPackage(msgspec.Struct):
    """A command that starts a package of an exact version: `npx -y NAME@VERSION …` or `uvx NAME==VERSION …`."""

    command: str
    args: tuple[str, ...]


class KeptPackage(msgspec.Struct):
    package_hash: str


class Added(msgspec.Struct):
    id: str
    name: str


class Removed(msgspec.Struct):
    removed: str


class Listed(msgspec.Struct):
    """What clients get at a path, and what is known of each server; not `is_whole` where a server did not answer."""

    listing: Mapping[str, Any]
    servers: tuple[ServerListed, ...]
    is_whole: bool


class Called(msgspec.Struct, omit_defaults=True):
    """The result of a call as its server gave it, or the methods by which it asks its user."""

    result: Raw | UnsetType = UNSET
    asks: tuple[str, ...] | UnsetType = UNSET


class Linked(msgspec.Struct):
    """A link that opens the operator's pages once, and for how many seconds."""

    url: str
    seconds: float


MakeLink: TypeAlias = Callable[[Principal], Linked]


class Admin:
    """`guards` are those of the frontend that it stands in; `link` makes a link to the pages; within `enter` a request
    ends as soon as who asks would not be let in any more."""

    def __init__(self, deps: FrontendDeps, guards: Guards, link: MakeLink, live: LiveTraffic, enter: Enter) -> None:
        self._gateway = deps.gateway
        self._editor = deps.editor
        self._deciding = deps.deciding
        self._audit, self._usage = deps.audit, deps.usage
        self._agents = Agents(deps.gateway)
        self._reviews = Reviews(deps.pins, deps.audit, asyncio.Lock())
        self._verifying = asyncio.Lock()  # it reads the whole file
        self._guards = guards
        self._link = link
        self._live = live
        self._enter = enter
        self._at_work: set[asyncio.Task[Any]] = set()

    def under_way(self) -> list[asyncio.Task[Any]]:
        """The work for what programs and pages of the operator's have asked; streams do not end."""
        return list(self._at_work)

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused` for what is no business of who asks, `Unauthorized` where that is nobody any more. Who goes
        away is not worked for any longer."""
        request = await self._guards.admit_admin(scope, receive, PREFIX)
        operation, name = _find(str(scope["method"]), str(scope["path"]))
        with self._enter(request.principal):
            asked = Asked(await self._guards.read(request), request.principal, name)
            self._guards.check_administrator(asked.by)  # a body may be long in coming
            await self._carried_out(operation, asked, receive, response)

    async def _carried_out(self, operation: Operation, asked: Asked, receive: Receive, response: Response) -> None:
        if operation.is_stream:
            await self._streamed(operation, asked, receive, response)
            return
        answer = asyncio.get_running_loop().create_task(self._answered(operation, asked))
        left = asyncio.get_running_loop().create_task(gone(receive))
        try:
            await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await response.whole(*answer.result())
        finally:
            left.cancel()
            answer.cancel()

    async def _streamed(self, operation: Operation, asked: Asked, receive: Receive, response: Response) -> None:
        try:
            await operation.work(self, asked, receive, response)
        except Fault as fault:
            await response.whole(*self._failed(fault))

    async def ask(self, method: str, path: str, body: bytes, by: Principal) -> tuple[int, bytes]:
        """The same inside this process, by a path in which names are quoted: status and body of the answer, which is no
        stream. Raises `Refused`."""
        operation, name = _find(method, path)
        assert not operation.is_stream
        return await self._answered(operation, Asked(body, by, unquote(name)))

    async def _answered(self, operation: Operation, asked: Asked) -> tuple[int, bytes]:
        work = asyncio.current_task()
        assert work
        self._at_work.add(work)
        try:
            status, said = await operation.work(self, asked)
        except Fault as fault:
            return self._failed(fault)
        except asyncio.CancelledError:
            if not (given_up := self._gateway.given_up()):
                raise
            return self._failed(given_up)
        finally:
            self._at_work.discard(work)
        return status, said if isinstance(said, bytes) else self._gateway.redactor.body(jsonrpc.encode(said))

    def _check(self, asked: Asked) -> Callable[[], None]:
        """For what waits behind other changes: they may have taken the right to it away."""
        return partial(self._guards.check_administrator, asked.by)

    def _failed(self, fault: Fault) -> tuple[int, bytes]:
        said = jsonrpc.encode(_written(scrub.fault(fault, self._gateway.redactor)))
        return STATUSES.get(fault.code, 500), self._gateway.redactor.body(said)

    # The gateway.

    async def openapi(self, _: Asked) -> Answer:
        """This document."""
        return 200, described()

    async def status(self, _: Asked) -> Answer:
        """The gateway and its servers in brief."""
        gateway_info: GatewayInfo = self._gateway.gateway_info
        config, port = self._gateway.snapshot.config, self._gateway.gateway_info.port()
        return 200, About(
            version=gateway_info.version,
            pid=gateway_info.pid,
            state=self._gateway.phase,
            started=gateway_info.started,
            uptime=gateway_info.wall() - gateway_info.started,
            configuration=gateway_info.source,
            problem=gateway_info.problem(),
            host=config.http.host,
            port=port,
            url=config.http.url(config.http.host, port) if port else "",
            code=gateway_info.code(),
            tokens=await self._gateway.tokens(),
            credentials=gateway_info.credentials(),
            servers=tuple(ServerState(**self._brief(server)) for server in config.servers),
        )

    async def reload(self, asked: Asked) -> Answer:
        """Read the configuration again. What it takes away of guards must be confirmed."""
        wanted: WantedReload = _read(asked.body or b"{}", WantedReload)
        try:
            await self._editor.read_again(wanted.confirmed, self._check(asked))
        except Unconfirmed as waiting:
            return _to_confirm(waiting)
        servers = self._gateway.snapshot.config.servers
        return 200, Reloaded(tuple(server.id for server in servers if server.enabled))

    async def link(self, asked: Asked) -> Answer:
        """Make a link that opens the operator's pages once, as who asks for it."""
        return 201, self._link(asked.by)

    async def hook(self, asked: Asked) -> Answer:
        """What a program's hook prints, once what it has put into the folder of hooks was read."""
        said = await self._gateway.workspace.hooks.answer(_read(asked.body, WantedHook).file)
        return (200, said) if said else (404, Failure("not a file in the folder of hooks"))

    # Servers.

    async def servers(self, _: Asked) -> Answer:
        """All servers, as configured and as they are."""
        config = self._gateway.snapshot.config
        return 200, Servers(tuple(ServerShown(**self._shown(server)) for server in config.servers))

    async def server(self, asked: Asked) -> Answer:
        """One server, by its id or name."""
        return 200, ServerShown(**self._shown(self._named(asked.name)))

    def _named(self, name: str) -> Server:
        """A server as configured, one that is disabled too. Raises `Fault`."""
        known = {server.id: server for server in self._gateway.snapshot.config.servers}
        return known[find_server(name, {id: server.name for id, server in known.items()})]

    def _shown(self, server: Server) -> Mapping[str, Any]:
        """The members of `ServerShown`."""
        return {**self._state(server), "config": render.server(server, masked=True)}

    def _brief(self, server: Server) -> Mapping[str, Any]:
        """Those of `ServerState`: without what is long, its stderr and its configuration."""
        state = {key: value for key, value in self._state(server).items() if key != "stderr"}
        known = self._gateway.snapshot.catalog.known(server.id, "tools", Client())
        return {**state, "tools": len(known.items) if known else UNSET}

    def _state(self, server: Server) -> Mapping[str, Any]:
        named, confines = {"id": server.id, "name": server.name}, server.confines
        upstream = self._gateway.snapshot.upstreams.get(server.id)
        if not upstream:
            return {**named, "box": confines.words() if confines else "", "state": "disabled"}
        status = scrub.status(upstream.status(), self._gateway.redactor.of(server.id))
        left_out = ("words", "parts", "says")
        told = {key: value for key, value in msgspec.structs.asdict(status).items() if key not in left_out}
        box = confines.words(status.parts) if confines else ""
        return {**named, "box": box, **told, "stderr": status.stderr}

    async def add(self, asked: Asked) -> Answer:
        """Add a server: its keys as in the configuration, and its `name`."""
        try:
            table = plain.read(asked.body, dict[str, Any])
        except jsonrpc.UNREADABLE as error:
            raise Fault("INVALID_ARGS", f"The body must be a JSON object: {error}") from None
        name = table.pop("name", None)
        if not isinstance(name, str):
            raise Fault("INVALID_ARGS", "`name`, the server's name, is missing")
        id = await self._editor.add(name, table, asked.by, self._check(asked))
        return 201, Added(id, name)

    async def keep(self, asked: Asked) -> Answer:
        """Keep the file of a package that `npx` or `uvx` would fetch: its hash is a server's `package_hash`."""
        wanted: WantedPackage = _read(asked.body, WantedPackage)
        return 200, KeptPackage(await self._gateway.keep_package((wanted.command, *wanted.args), asked.by))

    async def remove(self, asked: Asked) -> Answer:
        """Remove a server that was added; one of the configuration file is removed there."""
        await self._editor.remove(self._named(asked.name).name, asked.by, self._check(asked))
        return 200, Removed(asked.name)

    async def check(self, asked: Asked) -> Answer:
        """Start a server, where it is not up, and have it list all that it has anew: what it lists is kept."""
        server, snapshot = self._named(asked.name), self._gateway.snapshot
        if not server.enabled:
            return 200, ServerChecked(**self._shown(server))
        wanted = [(server.id, kind) for kind in mcp.LIST_OF_KIND]
        view = await snapshot.catalog.view({server.id: server.name}, wanted, Client(asked.by), anew=True)
        await snapshot.catalog.reviewed()
        server_list, fault = view.server_list(server.id, "tools"), view.fault(server.id, "tools")
        return 200, ServerChecked(
            **self._shown(server),
            fault=_written(scrub.fault(fault, self._gateway.redactor)) if fault else None,
            tools=tuple(server_list.own.values()) if server_list else UNSET,
            ignored=tuple(server_list.ignored) if server_list else UNSET,
        )

    async def stop(self, asked: Asked) -> Answer:
        """Stop a server. Its calls in progress fail, and the next one starts it."""
        server = self._named(asked.name)
        if upstream := self._gateway.snapshot.upstreams.get(server.id):
            await upstream.stop()
        return 200, ServerShown(**self._shown(server))

    # What waits for a person.

    async def approvals(self, _: Asked) -> Answer:
        """Calls that wait for an operator, those decided and not used, and tools that are called without asking."""
        return 200, decisions.waiting(self._deciding)

    async def approval(self, asked: Asked) -> Answer:
        """One call that waits."""
        return 200, await decisions.one(self._deciding, asked.name, self._gateway.in_turns.of(0), asked.by)

    async def decide(self, asked: Asked) -> Answer:
        """Allow a call, with other arguments or for longer, or deny it."""
        wanted: WantedDecision = _read(asked.body, WantedDecision)
        ttl = self._gateway.snapshot.config.approvals.ttl
        return 200, await decisions.decide(self._deciding, asked.name, wanted, ttl, asked.by)

    async def revoke(self, asked: Asked) -> Answer:
        """Have a tool ask again."""
        return 200, await decisions.revoke(self._deciding, asked.name, asked.by)

    async def pins(self, _: Asked) -> Answer:
        """Of each server, the tools that are not as they were when they were trusted."""
        return 200, await self._reviews.all(self._gateway.snapshot.config)

    async def differences(self, asked: Asked) -> Answer:
        """How the pending tools of one server differ from what was trusted."""
        wanted: WantedDifferences = _read(asked.body or b"{}", WantedDifferences)
        return 200, await self._reviews.differences(self._named(asked.name), wanted.tool)

    async def approve(self, asked: Asked) -> Answer:
        """Trust tools as they were seen."""
        wanted: WantedApproval = _read(asked.body, WantedApproval)
        return 200, await self._reviews.approve(self._named(asked.name), wanted, asked.by)

    # What an operator looks at.

    async def access(self, _: Asked) -> Answer:
        """What each client may use of each server."""
        return 200, await inspections.matrix(self._gateway)

    async def access_of(self, asked: Asked) -> Answer:
        """What one client may do with each tool that is known."""
        return 200, await inspections.of_client(self._gateway, asked.name)

    async def rule(self, asked: Asked) -> Answer:
        """Allow a tool for a client, ask for it or turn it off, in the configuration file."""
        wanted: WantedVerdict = _read(asked.body, WantedVerdict)
        hints = inspections.hints_of(self._gateway, wanted.server, wanted.tool)
        return await _confirmed(file_edits.rule(self._editor, asked.name, wanted, hints, asked.by, self._check(asked)))

    async def audit(self, asked: Asked) -> Answer:
        """The last lines of the audit, or those before a cursor."""
        return 200, await inspections.audit_lines(self._audit, _read(asked.body or b"{}", WantedLines))

    async def verify(self, _: Asked) -> Answer:
        """Look whether each line of the audit is as it was written."""
        async with self._verifying:
            return 200, await inspections.audit_found(self._audit)

    async def configuration(self, _: Asked) -> Answer:
        """What is served, with each default and without secrets."""
        return 200, inspections.configuration(self._gateway)

    async def check_configuration(self, asked: Asked) -> Answer:
        """Say what is wrong with a configuration before it is saved. Nothing is started, served or kept."""
        return 200, await inspections.checked(_read(asked.body, WantedCheck))

    async def usage(self, _: Asked) -> Answer:
        """How many calls there were since the gateway counts, and the slowest tools."""
        return 200, inspections.calls_counted(self._gateway, self._usage)

    async def file(self, _: Asked) -> Answer:
        """The configuration file as it stands, with masks for what is secret in it."""
        return 200, await file_edits.text(self._editor)

    async def save(self, asked: Asked) -> Answer:
        """Write the configuration file and serve it. What it takes away of guards must be confirmed."""
        wanted: WantedSave = _read(asked.body, WantedSave)
        return await _confirmed(file_edits.save(self._editor, wanted, asked.by, self._check(asked)))

    async def import_servers(self, asked: Asked) -> Answer:
        """Say what would be added of another program's file and what that would run, or add what was said."""
        wanted: WantedImport = _read(asked.body, WantedImport)
        return await _confirmed(file_edits.plan_or_import(self._editor, wanted, asked.by, self._check(asked)))

    async def board(self, asked: Asked) -> Answer:
        """The tasks of a project by what can be done with them."""
        return 200, await self._agents.board(_read(asked.body or b"{}", WantedBoard), asked.by)

    async def task(self, asked: Asked) -> Answer:
        """One task in full, with what it waits for."""
        return 200, await self._agents.task(asked.name, asked.by)

    async def sessions(self, asked: Asked) -> Answer:
        """The sessions of who asks, as agents' programs told of them, the one with the latest sign first."""
        return 200, await self._agents.sessions(_read(asked.body or b"{}", WantedSessions), asked.by)

    async def session(self, asked: Asked) -> Answer:
        """One of them, with what it hands over."""
        return 200, await self._agents.session(asked.name, asked.by)

    # What clients do.

    async def traffic(self, asked: Asked, receive: Receive, response: Response) -> None:
        """Calls as they end, in portions, until the client leaves."""
        wanted, by = _read(asked.body or b"{}", Wanted), asked.by
        await self._live.stream(wanted, by, lambda: self._guards.is_administrator(by), receive, response)

    async def list(self, asked: Asked) -> Answer:
        """The tools of a path as its clients get them, and of each server what is known."""
        wanted, snapshot = _read(asked.body, WantedList), self._gateway.snapshot
        if wanted.anew:
            lists = [(id, kind) for id in snapshot.upstreams for kind in mcp.LIST_OF_KIND]
            names = {id: server.name for id, server in snapshot.servers.items()}
            await snapshot.catalog.view(names, lists, Client(asked.by), anew=True)
        listing = await self._gateway.lists.view("tools", self._gateway.route(wanted.path), Client(asked.by))
        servers: list[ServerListed] = []
        for server in self._gateway.snapshot.config.servers:
            known = self._gateway.snapshot.catalog.known(server.id, "tools", Client(asked.by))
            servers.append(ServerListed(**self._brief(server), listed=tuple(known.items.values()) if known else ()))
        return 200, Listed(listing.members(), tuple(servers), not listing.failures and not listing.pending)

    async def syncs(self, _: Asked) -> Answer:
        """How far those files of tasks are that are read or written now, in words, by the folder of their project."""
        return 200, {str(folder): said for folder, said in self._gateway.workspace.workspace.syncs.items()}

    async def call(self, asked: Asked) -> Answer:
        """One tool called; its result as its server gave it, or what it asks of its user, who is not there."""
        wanted = _read(asked.body, WantedCall)
        route = self._gateway.route("/mcp")
        call = Call(
            "tools/call",
            wanted.tool,
            Client(asked.by, path=route.path),
            wanted.arguments or Raw(b"{}"),
            reached=Reached(),
            is_by_admin=True,
            folder=wanted.folder if wanted.folder and asked.by == THE_OPERATOR else "",
        )
        outcome = await self._gateway.handle(call, route)
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
            if not outcome.asks:
                raise Fault("UPSTREAM_ERROR", f"{wanted.tool} asks to be called again, which only a client does")
            return 200, Called(asks=tuple(ask.method for ask in outcome.asks))
        assert isinstance(outcome, Done)
        return 200, b'{"result":%b}' % bytes(outcome.body)


# Behind PREFIX, by method. `{name}` is that of a server or client, or the id of what waits.
ROUTES: Mapping[str, Mapping[str, Operation]] = {
    "/status": {"GET": Operation(Admin.status, {200: About})},
    "/call": {"POST": Operation(Admin.call, {200: Called}, WantedCall)},
    "/traffic": {"POST": Operation(Admin.traffic, {200: Portion}, Wanted, needs_body=False, is_stream=True)},
    "/list": {"POST": Operation(Admin.list, {200: Listed}, WantedList)},
    "/servers": {
        "GET": Operation(Admin.servers, {200: Servers}),
        "POST": Operation(Admin.add, {201: Added}, dict[str, Any]),
    },
    "/packages": {"POST": Operation(Admin.keep, {200: KeptPackage}, WantedPackage)},
    "/servers/{name}": {
        "GET": Operation(Admin.server, {200: ServerShown}),
        "DELETE": Operation(Admin.remove, {200: Removed}),
    },
    "/servers/{name}/check": {"POST": Operation(Admin.check, {200: ServerChecked})},
    "/servers/{name}/stop": {"POST": Operation(Admin.stop, {200: ServerShown})},
    "/approvals": {"GET": Operation(Admin.approvals, {200: Waiting})},
    "/approvals/{name}": {
        "GET": Operation(Admin.approval, {200: WaitingCall}),
        "POST": Operation(Admin.decide, {200: Decided}, WantedDecision),
    },
    "/grants/{name}": {"DELETE": Operation(Admin.revoke, {200: Decided})},
    "/pins": {"GET": Operation(Admin.pins, {200: AllPins})},
    "/pins/{name}": {"POST": Operation(Admin.approve, {200: Approved}, WantedApproval)},
    "/pins/{name}/diff": {
        "POST": Operation(Admin.differences, {200: Differences}, WantedDifferences, needs_body=False)
    },
    "/access": {"GET": Operation(Admin.access, {200: AccessMatrix})},
    "/access/{name}": {
        "GET": Operation(Admin.access_of, {200: AccessOfClient}),
        "POST": Operation(Admin.rule, {200: Saved, 409: Unconfirmable}, WantedVerdict),
    },
    "/audit": {"POST": Operation(Admin.audit, {200: AuditLines}, WantedLines, needs_body=False)},
    "/audit/verify": {"POST": Operation(Admin.verify, {200: AuditFound})},
    "/usage": {"GET": Operation(Admin.usage, {200: CallsCounted})},
    "/tasks": {"POST": Operation(Admin.board, {200: Board}, WantedBoard, needs_body=False)},
    "/tasks/{name}": {"GET": Operation(Admin.task, {200: dict[str, Any]})},
    "/sessions": {"POST": Operation(Admin.sessions, {200: Sessions}, WantedSessions, needs_body=False)},
    "/sessions/{name}": {"GET": Operation(Admin.session, {200: SessionShown})},
    "/configuration": {"GET": Operation(Admin.configuration, {200: Configuration})},
    "/configuration/check": {"POST": Operation(Admin.check_configuration, {200: ConfigurationFound}, WantedCheck)},
    "/configuration/file": {
        "GET": Operation(Admin.file, {200: FileText}),
        "PUT": Operation(Admin.save, {200: Saved, 409: Unconfirmable}, WantedSave),
    },
    "/import": {"POST": Operation(Admin.import_servers, {200: Planned, 409: Unconfirmable}, WantedImport)},
    "/reload": {
        "POST": Operation(Admin.reload, {200: Reloaded, 409: Unconfirmable}, WantedReload, needs_body=False),
    },
    "/hook": {"POST": Operation(Admin.hook, {200: Any}, WantedHook)},
    "/syncs": {"GET": Operation(Admin.syncs, {200: dict[str, str]})},
    "/links": {"POST": Operation(Admin.link, {201: Linked})},
    "/openapi.json": {"GET": Operation(Admin.openapi, {200: dict[str, Any]})},
}
_of_one = re.compile(r"(/(?:servers|approvals|grants|access|pins|tasks|sessions)/)([^/]+)(.*)", re.DOTALL)

# Status → what is answered with it, whatever was asked.
_FAILURES: Mapping[int, Sequence[Any]] = {
    **dict.fromkeys((*STATUSES.values(), 500), (Failure,)),
    **dict.fromkeys((400, 403, 404), (Failure, Refusal)),
    **dict.fromkeys((401, 405, 413, 415), (Refusal,)),
}


def described() -> dict[str, Any]:
    """The admin API as an OpenAPI document."""
    return openapi.document("toolgate: admin API", __version__, PREFIX, ROUTES, _FAILURES)


async def _confirmed(edit: Awaitable[Any]) -> Answer:
    """An edit of the file, or what must be confirmed before it."""
    try:
        return 200, await edit
    except Unconfirmed as waiting:
        return _to_confirm(waiting)


def _to_confirm(waiting: Unconfirmed) -> Answer:
    return 409, Unconfirmable(str(waiting), unconfirmed=tuple(waiting.losses))


def _find(method: str, path: str) -> tuple[Operation, str]:
    """What answers, and what the path names. Raises `Refused`."""
    path, name = path.rstrip("/").removeprefix(PREFIX), ""
    if found := _of_one.fullmatch(path):
        before, name, behind = found.groups()
        path = f"{before}{{name}}{behind}"
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


def _written(fault: Fault) -> Failure:
    return Failure(fault.message, fault.code, fault.hint, fault.reach or "")
