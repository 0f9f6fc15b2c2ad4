"""What MCP is, as tables: revisions, methods, error codes, keys. Tests and docs read the same tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

MODERN: Final = "2026-07-28"
HANDSHAKE_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_HANDSHAKE: Final = HANDSHAKE_REVISIONS[-1]
REVISION_WITHOUT_HEADER: Final = "2025-03-26"  # what a legacy request without MCP-Protocol-Version speaks
REVISION_WITH_BATCHES: Final = "2025-03-26"
REVISION_WITH_PRIMING: Final = "2025-11-25"  # from here on a stream may begin with an event that says nothing

Era: TypeAlias = Literal["legacy", "modern"]


def era_of(revision: str) -> Era:
    """The era of a revision: with the handshake, or without."""
    return "modern" if revision >= MODERN else "legacy"


def other_era(era: Era) -> Era:
    return "legacy" if era == "modern" else "modern"


# Error codes of MCP itself; those of JSON-RPC stand in `jsonrpc`.
RESOURCE_NOT_FOUND: Final = -32002  # up to 2025-11-25; -32602 since
URL_ELICITATION_REQUIRED: Final = -32042  # 2025-11-25 only
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
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

UI_EXTENSION: Final = PREFIX + "ui"  # MCP Apps

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class CallMethod(msgspec.Struct, frozen=True):
    """A request that goes to one server: which parameter names the target, and in which kind of list it stands."""

    target: str
    kind: str


CALL: Final = "tools/call"
CALLS: Final[dict[str, CallMethod]] = {
    CALL: CallMethod("name", "tools"),
    "prompts/get": CallMethod("name", "prompts"),
    "resources/read": CallMethod("uri", "resources"),
    "completion/complete": CallMethod("ref", ""),  # what its `ref` names: REFERENCES
}
REFERENCES: Final[dict[str, CallMethod]] = {
    "ref/prompt": CallMethod("name", "prompts"),
    "ref/resource": CallMethod("uri", "resourceTemplates"),
}

# Tasks: the experimental ones of 2025-11-25, and the extension of 2026-07-28.
TASKS_EXTENSION: Final = PREFIX + "tasks"
TASKS_SINCE: Final = "2025-11-25"  # the only handshake revision that knows them
TASK_GET: Final = "tasks/get"
TASK_RESULT: Final = "tasks/result"
TASK_CANCEL: Final = "tasks/cancel"
TASK_UPDATE: Final = "tasks/update"
TASKS_LIST: Final = "tasks/list"
TASK_CHANGED: Final = "notifications/tasks"
TASK_STATUS: Final = "notifications/tasks/status"
_TASK = CallMethod("taskId", "tasks")
TASK_CALLS: Final = {TASK_GET: _TASK, TASK_UPDATE: _TASK, TASK_CANCEL: _TASK}  # those of the extension
TASK_CALLS_BEFORE: Final = {TASK_GET: _TASK, TASK_RESULT: _TASK, TASK_CANCEL: _TASK}
TASKS: Final = frozenset({*TASK_CALLS, *TASK_CALLS_BEFORE})
TASK_LOOKS: Final = frozenset({TASK_GET, TASK_UPDATE, TASK_CANCEL})  # that make a server ask nothing
TASK_ENDS: Final = frozenset({"completed", "failed", "cancelled"})

# Whose target an HTTP request repeats in the header Mcp-Name (basic/transports/streamable-http; Tasks extension).
NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    TASK_CALLS, "taskId"
)


class Kind(msgspec.Struct, frozen=True):
    """Something that servers list: what it is called, and the string code (behaviour.md section 5) for one that cannot
    be found."""

    noun: str
    missing: Literal["TOOL_NOT_FOUND", "PROMPT_NOT_FOUND", "RESOURCE_NOT_FOUND"]


KINDS: Final[dict[str, Kind]] = {
    "tools": Kind("Tool", "TOOL_NOT_FOUND"),
    "prompts": Kind("Prompt", "PROMPT_NOT_FOUND"),
    "resources": Kind("Resource", "RESOURCE_NOT_FOUND"),
    "resourceTemplates": Kind("Resource", "RESOURCE_NOT_FOUND"),
}


class ListMethod(msgspec.Struct, frozen=True):
    """A request that is answered from what all servers offer."""

    kind: str  # the result's member that holds the items
    key: str  # the item's member that identifies it
    capability: str


LISTS: Final[dict[str, ListMethod]] = {
    "tools/list": ListMethod("tools", "name", "tools"),
    "prompts/list": ListMethod("prompts", "name", "prompts"),
    "resources/list": ListMethod("resources", "uri", "resources"),
    "resources/templates/list": ListMethod("resourceTemplates", "uriTemplate", "resources"),
}
LIST_OF_KIND: Final = {entry.kind: method for method, entry in LISTS.items()}


class AskMethod(msgspec.Struct, frozen=True):
    """A request that a server makes of its client: the capability it needs."""

    capability: str


ASKS: Final[dict[str, AskMethod]] = {
    "elicitation/create": AskMethod("elicitation"),
    "sampling/createMessage": AskMethod("sampling"),
    "roots/list": AskMethod("roots"),
}

# What opens a conversation, sets it up and belongs to all calls.
INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"
DISCOVER: Final = "server/discover"
SET_LEVEL: Final = "logging/setLevel"
PROGRESSED: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"

# Subscriptions: the legacy requests, the modern one, and what it filters by (capability, lists that may change).
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
LISTEN: Final = "subscriptions/listen"
UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
LOGGED: Final = "notifications/message"
ELICITED: Final = "notifications/elicitation/complete"
LIST_FILTERS: Final = {
    "toolsListChanged": ("tools", "notifications/tools/list_changed"),
    "promptsListChanged": ("prompts", "notifications/prompts/list_changed"),
    "resourcesListChanged": ("resources", "notifications/resources/list_changed"),
}
# All that names something of one server.
TARGETED: Final = CALLS | TASK_CALLS | TASK_CALLS_BEFORE | {SUBSCRIBE: CallMethod("uri", "resources")}

UNDEFINED: Final = CallMethod("", "methods")
"""A request that MCP does not define. It names nothing that stands in a list."""

# What is defined, by whichever revision: the rest may be an extension's.
DEFINED: Final = frozenset(
    (*TARGETED, *LISTS, *ASKS, TASKS_LIST, INITIALIZE, DISCOVER, SET_LEVEL, UNSUBSCRIBE, LISTEN, "ping", "close")
)
DEFINED_NOTIFICATIONS: Final = frozenset(
    (
        *(method for _, method in LIST_FILTERS.values()),
        *(PROGRESSED, CANCELLED, INITIALIZED, UPDATED, ACKNOWLEDGED, ROOTS_CHANGED, LOGGED, ELICITED),
        *(TASK_CHANGED, TASK_STATUS),
    )
)
_CAPABILITIES = frozenset(
    ("tools", "prompts", "resources", "completions", "logging", "tasks", "experimental", "extensions")
)


def declares_more(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server's capabilities name something that we do not know, so that it may have methods of its own."""
    named = cast("Mapping[str, Any]", capabilities.get("extensions") or {})
    more = (set(capabilities) - _CAPABILITIES) | (set(named) - {TASKS_EXTENSION, UI_EXTENSION})
    return bool(more or capabilities.get("experimental"))


LIST_CHANGED: Final = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resourceTemplates"),
}
