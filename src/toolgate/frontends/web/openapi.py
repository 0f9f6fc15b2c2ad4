"""What a table of operations says of itself: an OpenAPI 3.1 document, made of the types that they read and answer.

The rule this file keeps: nothing is written down twice. What a body may be is the type that it is decoded into, and
what an answer is the type that is encoded.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

import msgspec

REFERENCE = "#/components/schemas/{name}"
_JSON, _EVENTS = "application/json", "text/event-stream"
_parameter = re.compile(r"{(\w+)}")

Work: TypeAlias = Callable[..., Any]


class Operation(NamedTuple):
    """What answers a method at a path. The first sentence of what `work` says of itself is its summary; `body` is what
    it reads, and `answers` what it answers by status, beside the failures that all operations share; of a stream, what
    each of its events is."""

    work: Work
    answers: Mapping[int, Any]
    body: Any = None
    needs_body: bool = True
    is_stream: bool = False


Paths: TypeAlias = Mapping[str, Mapping[str, Operation]]


def document(
    title: str, version: str, prefix: str, paths: Paths, failures: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    """`paths` are those behind `prefix`, with `{name}` for a parameter."""
    operations = [each for methods in paths.values() for each in methods.values()]
    answers = [answer for each in operations for answer in each.answers.values()]
    bodies = [each.body for each in operations if each.body is not None]
    wanted = [*dict.fromkeys([*answers, *bodies, *(answer for each in failures.values() for answer in each)])]
    found, components = msgspec.json.schema_components(wanted, ref_template=REFERENCE)
    schemas = dict(zip(wanted, found, strict=True))
    shared = {str(status): _response(status, each, schemas) for status, each in sorted(failures.items())}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "security": [{"key": []}],
        "paths": {
            prefix + path: {
                "parameters": [_path_parameter(name) for name in _parameter.findall(path)],
                **{method.lower(): _written(each, schemas, shared) for method, each in methods.items()},
            }
            for path, methods in paths.items()
        },
        "components": {
            "schemas": components,
            "responses": shared,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An administrator's key"}},
        },
    }


def _path_parameter(name: str) -> Mapping[str, Any]:
    # Names of servers may be anything, but a part of a path has no slash and is never empty.
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _written(operation: Operation, schemas: Mapping[Any, Any], shared: Mapping[str, Any]) -> Mapping[str, Any]:
    said = inspect.getdoc(operation.work) or ""
    summary, _, more = " ".join(said.split()).partition(". ")
    whole: dict[str, Any] = {"operationId": operation.work.__name__, "summary": summary.rstrip(".")}
    if more:
        whole["description"] = more
    if operation.body is not None:
        content = {_JSON: {"schema": schemas[operation.body]}}
        whole["requestBody"] = {"required": operation.needs_body, "content": content}
    kind = _EVENTS if operation.is_stream else _JSON
    own = {str(status): _response(status, (answer,), schemas, kind) for status, answer in operation.answers.items()}
    referred = {each: {"$ref": f"#/components/responses/{each}"} for each in shared}
    whole["responses"] = {**referred, **own}
    return whole


def _response(status: int, types: Sequence[Any], schemas: Mapping[Any, Any], kind: str = _JSON) -> Mapping[str, Any]:
    found = [schemas[each] for each in types]
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    return {"description": HTTPStatus(status).phrase, "content": {kind: {"schema": schema}}}
