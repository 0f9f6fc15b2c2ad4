"""What MCP is, as tables: revisions, methods, error codes, keys. Tests and docs read the same tables."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

Era: TypeAlias = Literal["legacy", "modern"]
"""With the handshake, or without."""


def other_era(era: Era) -> Era:
    return "legacy" if era == "modern" else "modern"


# Error codes of MCP itself; all others of JSON-RPC stand in `jsonrpc`.
RESOURCE_NOT_FOUND: Final = -32002  # of the handshake revisions
URL_ELICITATION_REQUIRED: Final = -32042
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
INVALID_PARAMS: Final = -32602  # of JSON-RPC, for what the latest revision does not find
RESERVED_ERRORS: Final = range(-32099, -32019)  # by revision 2026-07-28, for itself
MODERN_ONLY_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})

# Keys of `_meta` that belong to one hop and are never passed on (protocol.md 1.1).
PREFIX: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = PREFIX + "protocolVersion"
CAPABILITIES_KEY: Final = PREFIX + "clientCapabilities"
CLIENT_INFO_KEY: Final = PREFIX + "clientInfo"
SERVER_INFO_KEY: Final = PREFIX + "serverInfo"
LOG_LEVEL_KEY: Final = PREFIX + "logLevel"
PROGRESS_KEY: Final = "progressToken"
RELATED_TASK_KEY: Final = PREFIX + "related-task"  # 2025-11-25 only; each hop has its own ids of tasks
SUBSCRIPTION_KEY: Final = PREFIX + "subscriptionId"
HOP_KEYS: Final = frozenset(
    {
        VERSION_KEY,
        CAPABILITIES_KEY,
        CLIENT_INFO_KEY,
        LOG_LEVEL_KEY,
        PROGRESS_KEY,
        SUBSCRIPTION_KEY,
        RELATED_TASK_KEY,
    }
)
LABELS: Final = frozenset(  # members of `_meta` by which clients name a call to who watches: another in each call
    {
        "traceparent",
        "tracestate",
        "claudecode/toolUseId",
        "vscode.conversationId",
        "vscode.requestId",
        "x-codex-turn-metadata",
    }
)

# Members of `_meta` about a trace (SEP-414), and the bytes of JSON that W3C has readers take of each. Beyond, libraries
# take seconds to read one.
LONGEST_OF_TRACE: Final = {"traceparent": 128, "tracestate": 1024, "baggage": 8192}

CHANGING_HEADERS: Final = frozenset(  # of HTTP, by which clients and proxies name a request: another in each
    {
        *("traceparent", "tracestate", "baggage", "uber-trace-id", "sentry-trace", "x-cloud-trace-context"),
        *("b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-amzn-trace-id"),
        *("x-datadog-trace-id", "x-datadog-parent-id", "date"),
        *("x-request-id", "request-id", "x-client-request-id", "x-correlation-id", "correlation-id"),
        *("cf-ray", "x-amz-cf-id", "x-azure-ref", "x-vercel-id", "fly-request-id", "x-request-start", "x-queue-start"),
    }
)

UI_EXTENSION: Final = PREFIX + "ui"  # MCP Apps

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


Role: TypeAlias = Literal[
    "call",  # goes to the one server that its target is of
    "task",  # the same, about a task
    "list",  # is answered from what all servers offer
    "ask",  # is made by servers, of their clients
    # What the gateway answers itself, each in its own way:
    "initialize",
    "discover",
    "ping",
    "close",
    "level",
    "tasks",
    "subscribe",
    "unsubscribe",
    "listen",
]
"""What a request is for. The frontends have a handler for each role, in each era that has such a method."""

_LEGACY: Final[frozenset[Era]] = frozenset({"legacy"})
_MODERN: Final[frozenset[Era]] = frozenset({"modern"})


class Method(msgspec.Struct, frozen=True):
    """A request that MCP defines. `kind` is the list that it returns (then the result's member that holds the items),
    or in which its target stands; `capability` is what its receiver declares who takes it; `holds` is the member of its
    result in which resources are named: `content` has blocks, `messages` messages, and `contents` resources."""

    role: Role
    kind: str = ""
    capability: str = ""
    target: str = ""  # the parameter that names the target
    holds: Literal["", "content", "messages", "contents"] = ""
    is_cached: bool = False  # whether its result says for how long, and for whom, it may be kept
    eras: frozenset[Era] = _LEGACY | _MODERN
    is_in_header: bool = False  # whether HTTP requests repeat the target in Mcp-Name (basic/transports/streamable-http)


CALL: Final = "tools/call"
TASK_GET: Final = "tasks/get"
TASK_RESULT: Final = "tasks/result"
TASK_CANCEL: Final = "tasks/cancel"
TASKS_LIST: Final = "tasks/list"
INITIALIZE: Final = "initialize"
DISCOVER: Final = "server/discover"
SET_LEVEL: Final = "logging/setLevel"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
LISTEN: Final = "subscriptions/listen"

METHODS: Final[Mapping[str, Method]] = {
    CALL: Method("call", "tools", "tools", target="name", holds="content", is_in_header=True),
    "prompts/get": Method("call", "prompts", "prompts", target="name", holds="messages", is_in_header=True),
    "resources/read": Method(
        "call", "resources", "resources", target="uri", holds="contents", is_cached=True, is_in_header=True
    ),
    "completion/complete": Method("call", "", "completions", target="ref"),  # what its `ref` names: REFERENCES
    "tools/list": Method("list", "tools", "tools"),
    "prompts/list": Method("list", "prompts", "prompts"),
    "resources/list": Method("list", "resources", "resources"),
    "resources/templates/list": Method("list", "resourceTemplates", "resources"),
    "elicitation/create": Method("ask", capability="elicitation"),
    "sampling/createMessage": Method("ask", capability="sampling"),
    "roots/list": Method("ask", capability="roots"),
    # Tasks: the experimental ones of 2025-11-25, and the extension of 2026-07-28.
    TASK_GET: Method("task", "tasks", "tasks", target="taskId", is_in_header=True),
    TASK_CANCEL: Method("task", "tasks", "tasks", target="taskId", is_in_header=True),
    TASK_RESULT: Method("task", "tasks", "tasks", target="taskId", eras=_LEGACY),
    "tasks/update": Method("task", "tasks", "tasks", target="taskId", eras=_MODERN, is_in_header=True),
    TASKS_LIST: Method("tasks", "tasks", "tasks", eras=_LEGACY),
    INITIALIZE: Method("initialize", eras=_LEGACY),
    DISCOVER: Method("discover", eras=_MODERN),
    "ping": Method("ping", eras=_LEGACY),
    "close": Method("close", eras=_LEGACY),
    SET_LEVEL: Method("level", capability="logging", eras=_LEGACY),
    SUBSCRIBE: Method("subscribe", "resources", "resources", target="uri", eras=_LEGACY),
    UNSUBSCRIBE: Method("unsubscribe", "resources", "resources", target="uri", eras=_LEGACY),
    LISTEN: Method("listen", eras=_MODERN),
}
UNDEFINED: Final = Method("call", "methods")
"""A request that MCP does not define. It names nothing that stands in a list."""


def with_role(role: Role) -> Mapping[str, Method]:
    """The methods of a role, in the order of the table."""
    return {name: method for name, method in METHODS.items() if method.role == role}


Handler = TypeVar("Handler")


def handlers(era: Era, by_role: Mapping[Role, Handler], other: Handler) -> Mapping[str, Handler]:
    """Who handles each method in an era: whoever does so for its role, `other` for what the era does not have."""
    return {name: by_role.get(method.role, other) if era in method.eras else other for name, method in METHODS.items()}


CALLS: Final = with_role("call")
LISTS: Final = with_role("list")
ASKS: Final = with_role("ask")
TASKS: Final = frozenset(with_role("task"))
TASK_LOOKS: Final = TASKS - {TASK_RESULT}  # that make a server ask nothing
NAMED: Final = {name: method.target for name, method in METHODS.items() if method.is_in_header}
TARGETED: Final = {name: method for name, method in METHODS.items() if method.target}
PLANNED: Final = frozenset(NAMED.keys() & CALLS)  # what their names mean is found once: see `gateway.plan`
CACHED: Final = frozenset(name for name, method in METHODS.items() if method.is_cached)
LIST_OF_KIND: Final = {method.kind: name for name, method in LISTS.items()}


def may_have(kind: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a server that declares this may have such a list. Tools any may have: some declare nothing, and
    most clients ask them all the same."""
    return kind == "tools" or LISTS[LIST_OF_KIND[kind]].capability in capabilities


REFERENCES: Final[Mapping[str, Method]] = {
    "ref/prompt": Method("call", "prompts", target="name"),
    "ref/resource": Method("call", "resourceTemplates", target="uri"),
}

CAPABILITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("listChanged",),
    "resources": ("listChanged", "subscribe"),
    "prompts": ("listChanged",),
    "logging": (),
    "completions": (),
}
"""What servers declare, with its parts, of what the gateway serves for all of them."""


class Notification(msgspec.Struct, frozen=True):
    """A message of MCP that has no answer. `lists` have changed when it comes; a modern client asks for it by `filter`,
    of servers that declare `capability`."""

    lists: tuple[str, ...] = ()
    filter: str = ""
    capability: str = ""


INITIALIZED: Final = "notifications/initialized"
PROGRESSED: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"
UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
LOGGED: Final = "notifications/message"
ELICITED: Final = "notifications/elicitation/complete"
TASK_CHANGED: Final = "notifications/tasks"
TASK_STATUS: Final = "notifications/tasks/status"

NOTIFICATIONS: Final[Mapping[str, Notification]] = {
    "notifications/tools/list_changed": Notification(("tools",), "toolsListChanged", "tools"),
    "notifications/prompts/list_changed": Notification(("prompts",), "promptsListChanged", "prompts"),
    "notifications/resources/list_changed": Notification(
        ("resources", "resourceTemplates"), "resourcesListChanged", "resources"
    ),
    **dict.fromkeys((PROGRESSED, CANCELLED, INITIALIZED, UPDATED, ACKNOWLEDGED, ROOTS_CHANGED), Notification()),
    **dict.fromkeys((LOGGED, ELICITED, TASK_CHANGED, TASK_STATUS), Notification()),
}
LIST_CHANGED: Final = {name: each.lists for name, each in NOTIFICATIONS.items() if each.lists}
LIST_FILTERS: Final = {each.filter: (each.capability, name) for name, each in NOTIFICATIONS.items() if each.filter}
WATCH_FILTERS: Final = {"resourceSubscriptions": SUBSCRIBE, "taskIds": TASK_GET}
"""The members of a subscription's filter that name something, and the method by which that is watched."""

TASKS_EXTENSION: Final = PREFIX + "tasks"
TASK_ENDS: Final = frozenset({"completed", "failed", "cancelled"})


Missing: TypeAlias = Literal["TOOL_NOT_FOUND", "PROMPT_NOT_FOUND", "RESOURCE_NOT_FOUND"]
MISSING: Final[tuple[Missing, ...]] = get_args(Missing)
"""The string codes (behaviour.md section 5) for things that cannot be found."""


class Kind(msgspec.Struct, frozen=True):
    """Something that servers list, and all that is known of it beside its methods. `noun` and `title` are what one and
    many of them are called; `section` is the key of `mcp_permissions` that they stand under, by which searches ask for
    them, too; `key` is the member of an item that identifies it: a name, or a URI; `attribute` is the one of spans that
    names what a call is of."""

    noun: str
    title: str
    missing: Missing
    section: str
    key: Literal["name", "uri", "uriTemplate"] = "name"
    attribute: str = ""


KINDS: Final[dict[str, Kind]] = {
    "tools": Kind("Tool", "Tools", "TOOL_NOT_FOUND", "tools"),
    "resources": Kind("Resource", "Resources", "RESOURCE_NOT_FOUND", "resources", "uri", "mcp.resource.uri"),
    "resourceTemplates": Kind("Resource", "Templates of resources", "RESOURCE_NOT_FOUND", "resources", "uriTemplate"),
    "prompts": Kind("Prompt", "Prompts", "PROMPT_NOT_FOUND", "prompts", attribute="gen_ai.prompt.name"),
}
BY_URI: Final = frozenset(name for name, kind in KINDS.items() if kind.key != "name")
SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    kind.section: tuple(name for name, each in KINDS.items() if each.section == kind.section) for kind in KINDS.values()
}
"""The kinds by the key of their section. All of one are known by names, or all by URIs."""


_CAPABILITIES = frozenset(("experimental", "extensions", *CAPABILITIES, "tasks"))


def declares_more(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server's capabilities name something that we do not know, so that it may have methods of its own."""
    named = cast("Mapping[str, Any]", capabilities.get("extensions") or {})
    more = (set(capabilities) - _CAPABILITIES) | (set(named) - {TASKS_EXTENSION, UI_EXTENSION})
    return bool(more or capabilities.get("experimental"))


# Revisions.


CONTENT: Final = "content"


class Renamed(msgspec.Struct, frozen=True):
    """A member that a revision calls otherwise than we do. `of` says where it stands: in an item of a list (`tools`,
    one of `KINDS`), in a block of content (`CONTENT`), or in the result of a request of clients (its method). `ours` is
    what the first revision that has it calls it, and everybody inside. What says how a result is to be read
    (`resultType`, `inputRequests`, `requestState`, `task`, `taskId`) belongs to the era, and has no other name."""

    of: str
    ours: str
    theirs: str


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of MCP, and each thing in which it differs from another. Nobody compares revisions, or names one:
    code that needs a difference asks for its field. What differs in shape is written by `eras`, by these fields; what
    differs in a name only is written, and read, by `names` alone."""

    date: str
    era: Era
    has_batches: bool = False  # many messages in one array
    has_version_header: bool = False  # each request over HTTP says the revision
    primes_streams: bool = False  # a stream may begin with an event that says nothing, to resume by
    has_header_arguments: bool = False  # a call over HTTP repeats some in headers
    tasks: Literal["", "experimental", "extension"] = ""  # asked for with a call, or made as the server decides
    takes_any_schema: bool = False  # of a tool; else of objects only, without `true` and `false`, and results alike
    takes_schema_of_others: bool = False  # of arguments that have no name; else only whether there may be any
    content: frozenset[str] = frozenset()  # kinds of content blocks that not all revisions have
    notifications: frozenset[str] = frozenset()  # that not all revisions have
    asks: frozenset[str] = frozenset({"roots", "sampling"})  # capabilities by which a client can be asked
    has_parts_of_asks: bool = False  # the members of these capabilities mean something
    question_members: frozenset[str] = frozenset()  # parameters of questions that not all revisions have
    has_choices_with_titles: bool = False  # in forms, and fields of which many can be chosen
    has_messages_of_blocks: bool = False  # a message that a model is given may have many blocks of content
    resource_missing: int = RESOURCE_NOT_FOUND  # the error code that says so
    names: frozenset[Renamed] = frozenset()  # that differ from ours


def _revision(before: Revision, date: str, **differences: Any) -> Revision:
    return msgspec.structs.replace(before, date=date, **differences)


_2024_11_05 = Revision(date="2024-11-05", era="legacy")
_2025_03_26 = _revision(_2024_11_05, "2025-03-26", has_batches=True, content=frozenset({"audio"}))
_2025_06_18 = _revision(
    _2025_03_26,
    "2025-06-18",
    has_batches=False,
    has_version_header=True,
    content=_2025_03_26.content | {"resource_link"},
    asks=_2025_03_26.asks | {"elicitation"},
)
_2025_11_25 = _revision(
    _2025_06_18,
    "2025-11-25",
    primes_streams=True,
    tasks="experimental",
    takes_schema_of_others=True,
    content=_2025_06_18.content | {"tool_use", "tool_result"},
    notifications=frozenset({ELICITED}),
    has_parts_of_asks=True,
    question_members=frozenset({"mode", "tools", "toolChoice", "elicitationId"}),
    has_choices_with_titles=True,
    has_messages_of_blocks=True,
)
_2026_07_28 = _revision(
    _2025_11_25,
    "2026-07-28",
    era="modern",
    has_header_arguments=True,
    tasks="extension",
    takes_any_schema=True,
    question_members=_2025_11_25.question_members - {"elicitationId"},
    resource_missing=INVALID_PARAMS,
)

REVISIONS: Final[Mapping[str, Revision]] = {
    each.date: each for each in (_2024_11_05, _2025_03_26, _2025_06_18, _2025_11_25, _2026_07_28)
}
"""By date, from the oldest to the newest."""
UNSTATED: Final = _2025_03_26
"""What is spoken where a request over HTTP does not say it, and no session has."""
QUESTION_MEMBERS: Final = frozenset({"task"}).union(*(each.question_members for each in REVISIONS.values()))
"""Parameters of questions that some revision does not have; of any other hop than its own none has `task`."""
_OF_RESULTS = frozenset(
    ("resultType", "inputRequests", "requestState", "ttlMs", "cacheScope", "task", "taskId", "status", "isError")
)
OF_RESULTS: Final = _OF_RESULTS.union(
    name.theirs for each in REVISIONS.values() for name in each.names if name.ours in _OF_RESULTS
)
"""Members of results that are looked at whatever else these hold, by all their names."""


def dates(era: Era) -> tuple[str, ...]:
    """Of the revisions of an era, from the oldest to the newest."""
    return tuple(each.date for each in REVISIONS.values() if each.era == era)


def newest(era: Era, of: Container[object] = REVISIONS) -> Revision | None:
    """The newest revision of an era whose date is among these."""
    return next((each for each in reversed(REVISIONS.values()) if each.era == era and each.date in of), None)


def revision(era: Era, date: object) -> Revision | None:
    """The revision of this date; None where there is none in this era."""
    found = REVISIONS.get(date) if isinstance(date, str) else None
    return found if found and found.era == era else None


def stated(version: str | None) -> Revision | None:
    """The handshake revision that a request over HTTP says in its header, if we know it."""
    found = UNSTATED if version is None else REVISIONS.get(version)
    return found if found and found.era == "legacy" else None


def is_modern(date: str) -> bool:
    """Whether a revision, which we may not know, is without the handshake."""
    return date[:2] == "20" and date >= _2026_07_28.date


LATEST: Final[Mapping[Era, Revision]] = {each.era: each for each in REVISIONS.values()}
