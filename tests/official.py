"""The official schema of every revision, held against single messages.

`check` raises `AssertionError` that names the revision, the definition and what is wrong. Besides the schema it keeps a
few rules that the specification has in words only, since the schemas allow unknown members.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs

from toolgate.core import surrogates

FOLDER = Path(__file__).parent / "spec"
MODERN = "2026-07-28"
TASKS = "tasks-extension"  # of 2026-07-28
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

EXTENSION = "example/"  # what methods of an extension, and types of results, begin with

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

Json = dict[str, Any]

RESULTS = {
    "initialize": "InitializeResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "completion/complete": "CompleteResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "elicitation/create": "ElicitResult",
    "sampling/createMessage": "CreateMessageResult",
    "roots/list": "ListRootsResult",
}

WITH_TASKS = {  # of 2025-11-25
    "tasks/get": "GetTaskResult",
    "tasks/result": "CallToolResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/list": "ListTasksResult",
}
OF_EXTENSION = {
    "tasks/get": ("GetTaskRequest", "GetTaskResult"),
    "tasks/update": ("UpdateTaskRequest", "UpdateTaskResult"),
    "tasks/cancel": ("CancelTaskRequest", "CancelTaskResult"),
    "notifications/tasks": ("TaskStatusNotification", ""),
}


def check(message: Mapping[str, Any], revision: str, answers: str = "") -> None:
    """Hold one message against its revision. `answers` is the method of the request that a response answers. What an
    extension says is no revision's."""
    if message.get("method", answers).startswith(EXTENSION):
        return
    if revision == MODERN and message.get("method") in OF_EXTENSION:
        _hold(message, TASKS, OF_EXTENSION[message["method"]][0])
    elif "method" in message:
        _hold(message, revision, _of_method(revision, message["method"]))
    elif "error" in message:
        _hold(message, revision, _known(revision, "JSONRPCErrorResponse", "JSONRPCError"))
    else:
        _hold(message, revision, _known(revision, "JSONRPCResultResponse", "JSONRPCResponse"))
        _hold(message["result"], *_of_result(revision, message["result"], answers))
    for rule in _RULES:
        rule(message, revision)


@functools.cache
def _schema(revision: str) -> Json:
    return json.loads((FOLDER / f"{revision}.schema.json").read_text())


def _definitions(revision: str) -> Json:
    schema = _schema(revision)
    return schema.get("$defs") or schema["definitions"]


@functools.cache
def _validator(revision: str, name: str) -> Any:
    schema = _schema(revision)
    place = "$defs" if "$defs" in schema else "definitions"
    return jsonschema_rs.validator_for({**schema, "$ref": f"#/{place}/{name}"}, validate_formats=True)


def _hold(value: Any, revision: str, name: str) -> None:
    readable = json.loads(surrogates.replaced(json.dumps(value).encode()))  # which the validator is not for
    errors = _validator(revision, name).iter_errors(readable)
    found = [f"{list(error.instance_path)}: {error.message}" for error in errors]
    assert not found, f"no {name} of {revision}: {'; '.join(found)}\n{json.dumps(value)[:2000]}"


@functools.cache
def _of_method(revision: str, method: str) -> str:
    for name, definition in _definitions(revision).items():
        if definition.get("properties", {}).get("method", {}).get("const") == method:
            return name
    raise AssertionError(f"{revision} knows no {method}")


def requests(revision: str) -> list[str]:
    """The methods of a client's requests."""
    definitions = _definitions(revision)
    names = [each["$ref"].rpartition("/")[2] for each in definitions["ClientRequest"]["anyOf"]]
    return [definitions[name]["properties"]["method"]["const"] for name in names]


def knows(revision: str, name: str) -> bool:
    """Whether a revision has this method or definition."""
    methods = (each.get("properties", {}).get("method", {}).get("const") for each in _definitions(revision).values())
    return name in _definitions(revision) or name in methods


def _known(revision: str, *names: str) -> str:
    return next(name for name in names if name in _definitions(revision))


def _of_result(revision: str, result: Json, method: str) -> tuple[str, str]:
    assert method, f"a response to no request: {result}"
    if str(result.get("resultType", "")).startswith(EXTENSION):
        return revision, "Result"
    if revision == MODERN and result.get("resultType") == "input_required":
        return MODERN, "InputRequiredResult"
    if revision == MODERN and result.get("resultType") == "task":
        return TASKS, "CreateTaskResult"
    if revision == MODERN and method in OF_EXTENSION:
        return TASKS, OF_EXTENSION[method][1]
    if revision == "2025-11-25" and "task" in result:
        return revision, "CreateTaskResult"
    return revision, WITH_TASKS[method] if method in WITH_TASKS else RESULTS[method]


# What the schemas leave open.


def _asks(message: Mapping[str, Any]) -> list[tuple[str, Json]]:
    """The questions of a server in this message, in either era."""
    if message.get("method") in ("elicitation/create", "sampling/createMessage", "roots/list"):
        return [(message["method"], message.get("params", {}))]
    requests = message.get("result", {}).get("inputRequests", {})
    return [(ask["method"], ask.get("params", {})) for ask in requests.values()]


def _members_of_other_revisions(message: Mapping[str, Any], revision: str) -> None:
    """An unknown member may pass, but these mean something, and not here."""
    if revision != MODERN and "method" in message and "id" not in message:
        meta = message.get("params", {}).get("_meta", {})
        assert SUBSCRIPTION not in meta, f"{revision} knows no subscription ids: {message}"
    for method, params in _asks(message):
        if revision == MODERN:
            assert not {"elicitationId", "task"} & params.keys(), f"{method} of another revision: {params}"
        elif method == "elicitation/create" and revision < "2025-11-25":
            assert "mode" not in params and "url" not in params, f"{revision} knows forms only: {params}"


def _something_is_required(message: Mapping[str, Any], revision: str) -> None:
    """An `input_required` asks, or hands out a state, or both (basic/patterns/mrtr)."""
    result = message.get("result", {})
    if revision == MODERN and result.get("resultType") == "input_required":
        assert result.get("inputRequests") or "requestState" in result, f"nothing is required: {result}"


def _no_foreign_error_codes(message: Mapping[str, Any], revision: str) -> None:
    code = message.get("error", {}).get("code")
    foreign = (-32002, -32042) if revision == MODERN else (-32020, -32021, -32022)
    assert code not in foreign, f"{code} is no error of {revision}: {message}"


_RULES = (_members_of_other_revisions, _something_is_required, _no_foreign_error_codes)
