"""The values that everything speaks in: who asks, what is asked, and how it can end. Free of eras and transports.

A call ends in one of three outcomes, `Done`, `NeedInput` or `Accepted`; a failure is raised as `Fault`.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from toolgate.core import jsonrpc, mcp
from toolgate.core.addresses import counted
from toolgate.core.bodies import Kept
from toolgate.core.fault import Reached
from toolgate.core.notes import Notes


class Principal(msgspec.Struct, frozen=True):
    """Who a client acts for. `address` tells anonymous ones apart where something is capped for each. `client` is the
    configured client whose permissions hold, empty where none are configured; `scopes` are those of its token, None
    where it came without one; `via` is how it showed who it is, `credential` names what it showed, without being it,
    and `expires` is when that is good no more (seconds since 1970). By `counted_as`, which follows from the rest, its
    calls are counted, and take turns: who shows a key or a token is the same one wherever it comes from; on an open
    gateway each address is one."""

    id: str = "local"
    address: str = ""
    is_admin: bool = False  # was let in as an administrator; `Access.may_administer` decides
    is_here: bool = False  # without a key or token: a program on this machine, and no page of a browser
    client: str = ""
    scopes: frozenset[str] | None = None
    via: Literal["", "key", "token"] = ""
    credential: str = ""
    expires: float | None = None
    counted_as: str = ""

    def may_act_as(self, other: Principal) -> bool:
        """Whether this is the same one, wherever they are, with rights that are no less."""
        return self.id == other.id and (self.is_admin or not other.is_admin)

    def shown_anew(self, by: Principal) -> Principal:
        """The same one with what it shows now: other scopes, another key."""
        return msgspec.structs.replace(
            self, client=by.client, scopes=by.scopes, via=by.via, credential=by.credential, expires=by.expires
        )

    def __post_init__(self) -> None:
        force_setattr(self, "counted_as", self.id if self.client else f"{self.id}@{counted(self.address)}")


class Client(msgspec.Struct, frozen=True):
    """Who asks, as far as anyone below the frontends may know. `session` is empty for clients that have none,
    `revision` is None for the gateway itself, which speaks any. `capabilities` are as `asks.declared` has them, `told`
    is what modern servers hear of them, where that was written down already; `path` is the endpoint that it came to,
    under one name of it; `ask_roots` asks it outside of calls."""

    principal: Principal = Principal()
    session: str = ""
    capabilities: Mapping[str, Any] = {}
    revision: mcp.Revision | None = None
    told: Raw = jsonrpc.NOTHING
    path: str = ""
    ask_roots: AskRoots | None = None

    @property
    def era(self) -> mcp.Era | None:
        """None for the gateway itself."""
        return self.revision.era if self.revision else None

    @property
    def blamed_as(self) -> str:
        """By this a server's failures over its calls are told from those over others'; empty on an open gateway."""
        return self.principal.id if self.principal.client else ""

    @property
    def identity(self) -> tuple[str, str]:
        """Whose questions may be mixed up without harm: those of one principal and session."""
        return self.principal.id, self.session


class Ask(msgspec.Struct, frozen=True):
    """A question of a server to the client: a key that is unique within its call, a method of `mcp.ASKS`, params."""

    key: str
    method: str
    params: Raw = jsonrpc.EMPTY_OBJECT


class Answer(msgspec.Struct, frozen=True):
    """What the client said: a result, or an error."""

    result: Raw = jsonrpc.NOTHING
    error: jsonrpc.RpcError | None = None


class Asker(NamedTuple):
    """Who asks: a server, one of our policies, or we for a server at which a user is to sign in. `name` is the id of a
    server, or the name of a policy; `print` is `Upstream.print` of a server that asks."""

    kind: Literal["upstream", "policy", "sign-in"]
    name: str
    print: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Resumption(msgspec.Struct, frozen=True):
    """A later round of a call that asked: who had asked, the answers, and what goes on.

    `live` is running work that waits for the answers; else `state` is what the asker gave to be handed back.
    `round` counts the rounds that one client was led through without its own retries.
    """

    asker: Asker
    answers: Mapping[str, Answer]
    live: Resume | None = None
    state: str | None = None
    round: int = 0


class HeaderArgument(msgspec.Struct, frozen=True):
    """An argument that its server wants to see in a header as well, where there are any: `path` leads to it through
    the arguments, `header` is the name to look up by, `name` how it is written. `is_integer`: the schema says so."""

    header: str
    path: tuple[str, ...]
    name: str
    is_integer: bool = False


class Hints(msgspec.Struct, frozen=True):
    """A tool's annotations; None where it does not say."""

    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None

    @property
    def is_harmless_twice(self) -> bool:
        return bool(self.readOnlyHint or self.idempotentHint)

    @property
    def say_nothing(self) -> bool:
        """Whether the tool has no annotation on what its calls do to the world it works on."""
        return self.readOnlyHint is None and self.destructiveHint is None and self.idempotentHint is None


class ToolInfo(msgspec.Struct, frozen=True):
    """What a tool's listing says that matters to its calls. `schema` is that of its arguments, as the server wrote it;
    `task_support` is `optional` or `required` where the tool runs as a task; `has_output`: it promises structured
    content; `held` is why it is in quarantine, if it is. Where an overlay says otherwise, `shown`
    is what callers know the tool by, `shown_schema` the schema that they know, and `parameters` what they know its
    parameters by, by the server's names."""

    schema: bytes = b""
    listed: bytes = b""  # all that its server says of the tool
    header_arguments: tuple[HeaderArgument, ...] = ()
    task_support: str = ""
    hints: Hints = Hints()
    has_output: bool = False
    held: str = ""
    shown: str = ""
    shown_schema: bytes = b""
    parameters: Mapping[str, str] = {}

    def as_shown(self, pointer: str) -> str:
        """A JSON pointer into the arguments that the server gets, as one into those that the caller gave."""
        first, slash, rest = pointer[1:].partition("/")
        name = self.parameters.get(first.replace("~1", "/").replace("~0", "~"))
        return pointer if name is None else "/" + name.replace("~", "~0").replace("/", "~1") + slash + rest


class Made(msgspec.Struct, frozen=True, array_like=True):
    """What a task, or something that was kept of a result, was made by: the method, the server's own name of what was
    called, and the control tool that the call came through."""

    method: str
    target: str
    via: str = ""


class Call(msgspec.Struct, frozen=True):
    """The canonical request. `target` is the name (or URI) as the client wrote it until a surface has entered it;
    from then on `server` is set and `target` is the server's own name.

    `extra` and `meta` hold the members of `params` and `_meta` that we do not know; they are passed on.
    """

    method: str
    target: str
    client: Client
    arguments: Raw = jsonrpc.NOTHING
    server: str = ""
    extra: Mapping[str, Raw] = {}
    meta: Mapping[str, Raw] = {}
    headers: Mapping[str, str] | None = None  # of the client's request; a modern one repeats arguments there
    passed_on: Mapping[str, str] = {}  # headers of the client's request that some server is to get
    tool_info: ToolInfo | None = None  # of the tool, known once the target is; None where it is not listed
    asked: Call | None = None  # the call of a control tool that this one was made of
    does: Callable[[Any], Any] | None = None  # of a control tool: how that one does it, which is a call of this one
    by_script: bool = False  # a script makes it, which the control tool `asked` (until it is entered, `target`) runs
    about: Call | None = None  # the call of what made the task, or the result, that this one asks for
    reference: str = ""  # the type of `ref` in a completion: a key of `mcp.REFERENCES`
    notes: Notes | None = None
    wants_progress: bool = False
    wants_logs: bool = False
    log_level: str | None = None  # None with `wants_logs`: whatever the server thinks right
    resumption: Resumption | None = None
    task: Raw = jsonrpc.NOTHING  # the client wants a task, as it said in the way of 2025-11-25
    can_ask: bool = True  # where the call came in a question can go out, if its client knows such
    volunteered: Raw = jsonrpc.NOTHING  # answers to no question of ours, for a server alone to judge
    asked_in: Literal["", "legacy", "modern"] = ""  # the era, of a method that MCP does not define
    is_notification: bool = False  # of such a method: it has no answer
    reached: Reached | None = None  # written to by what lets it go on or sends it
    is_by_admin: bool = False  # an administrator makes it at the admin door, and not a model
    folder: str = ""  # where that administrator's command was given, an absolute path

    @property
    def kind(self) -> str:
        """The kind of list that the target stands in."""
        return (mcp.REFERENCES[self.reference] if self.reference else mcp.METHODS.get(self.method, mcp.UNDEFINED)).kind

    @property
    def shown(self) -> str:
        """What its client knows the target by, as the target's server shows it."""
        return (self.tool_info and self.tool_info.shown) or self.target

    @property
    def via(self) -> str:
        """The control tool that the call came through."""
        return self.asked.target if self.asked else ""

    @property
    def made(self) -> Made:
        return Made(self.method, self.target, self.via)

    def at(self, server: str, target: str) -> Call:
        """The same call with its true target."""
        return msgspec.structs.replace(self, server=server, target=target)


class Done(msgspec.Struct, frozen=True):
    """The result object, as bytes. `typed` is a body that modern clients get as it is, since its server has written
    into it all that they must find there: this one, unless it was changed since. `is_foreign`: it has a `resultType`
    that we do not know. `is_scrubbed`: secrets are taken out of it already; `is_cut`: it is within its limits, and in
    its client's names, already. While it is held, a large one counts, and `frame` is an object of those of its members
    that eras look at."""

    body: Raw | bytes
    is_foreign: bool = False
    is_scrubbed: bool = False
    is_cut: bool = False
    kept: Kept | None = None
    frame: Raw = jsonrpc.NOTHING
    typed: Raw | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The server took the call as a task; `body` is its handle."""

    body: Raw | bytes


class Required(msgspec.Struct, frozen=True):
    """Questions of somebody who keeps nothing meanwhile: with the answers it wants its `state` back, if it gave one."""

    asks: tuple[Ask, ...]
    state: str | None = None


class NeedInput(msgspec.Struct, frozen=True):
    """The call goes on when these are answered through `resume`."""

    asks: tuple[Ask, ...]
    resume: Resume


Outcome: TypeAlias = Done | NeedInput | Accepted


class Resume(Protocol):
    """What goes on when its questions are answered. Its holder owns it: `next` to the end, or `cancel`."""

    @property
    def asker(self) -> Asker: ...

    @property
    def is_live(self) -> bool:
        """Whether something runs and waits for the answers. If not, the call can be made again with `state`."""
        ...

    @property
    def state(self) -> str | None: ...

    @property
    def origin(self) -> Resume:
        """The innermost one, without what the gateway puts around it."""
        ...

    def open_asks(self) -> tuple[Ask, ...]:
        """The questions that have no answer yet."""
        ...

    def answer(self, key: str, answer: Answer) -> None:
        """Answer one question; an unknown or answered key is ignored."""

    def report(self, key: str, params: Raw) -> None:
        """Tell the asker of progress with one question, where it can be told. `params` have no token."""

    async def settled(self, key: str) -> None:
        """Return when nobody wants an answer to this question any more: withdrawn, answered, or all is over."""

    async def next(self) -> Outcome:
        """The next outcome: further questions, or the end. Raises `Fault`."""
        ...

    def cancel(self) -> None:
        """End it; the working side is told. Safe to call more than once."""


class Event(msgspec.Struct, frozen=True):
    """A notification that belongs to no call. `scope` is whose connection to the server it concerns
    (`Upstream.scope`); `params` are those of the server's own notification, where it is passed on. `era`: it came over
    the connection for clients of that era, beside which there is one for the others."""

    server: str
    kind: Literal["list_changed", "opened", "updated", "elicited", "log", "task", "task_status", "scope_ended"]
    scope: str = ""
    lists: tuple[str, ...] = ()
    uri: str = ""  # of a task: its id
    params: Raw = jsonrpc.EMPTY_OBJECT
    whose: tuple[str, str] | None = None  # the client (`Client.identity`) that alone it concerns
    clients: frozenset[str] | None = None  # the configured clients that alone it concerns
    era: mcp.Era | None = None
    made: Made | None = None  # what a task was made by, where the server's maker is told
    print: str = ""  # of a task's server: `Upstream.print`

    def is_for(self, client: Client) -> bool:
        """Whether it concerns this client, of those that share the connection."""
        return self.whose in (None, client.identity) and self.era in (None, client.era)


# What it returns is done when there is room for more: until then nothing more is to be read of who said it.
EventSink: TypeAlias = Callable[[Event], Future[None] | None]

# Whom it asks says by the first whether that is still wanted; None is no answer in time.
AskRoots: TypeAlias = Callable[[Callable[[], bool]], Awaitable[Answer | None]]
