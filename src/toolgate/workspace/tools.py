"""A tool of an internal server as a row: its arguments are a struct, which is its schema as well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from toolgate.core import jsonrpc, surrogates
from toolgate.core.fault import Fault
from toolgate.upstreams.inprocess.tools import (
    Arguments,
    EncodedResult,
    InProcessItem,
    InProcessTools,
    Object,
    ToolContext,
    text,
)
from toolgate.workspace.workspace import Workspace


class Tool(msgspec.Struct, frozen=True):
    """`takes` is the struct of its arguments, closed (`forbid_unknown_fields`), each field with a description. `work`
    returns the object that it answers with, or has it written already (`Workspace.answered`); it raises `Fault`.
    `changes`: it does more than read."""

    name: str
    description: str
    takes: type[msgspec.Struct]
    work: Callable[[Any, Workspace, ToolContext], Awaitable[Object | EncodedResult]]
    changes: bool = False


def as_server(tools: Sequence[Tool], workspace: Workspace) -> InProcessTools:
    return InProcessTools(
        {"tools": {tool.name: InProcessItem(_listed(tool), _work(tool, workspace)) for tool in tools}},
        roots_changed=workspace.roots_changed,
        left=workspace.forget,
    )


def _listed(tool: Tool) -> Object:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": _schema(tool.takes),
        "annotations": {"readOnlyHint": not tool.changes, "openWorldHint": False},
    }


def _schema(takes: type[msgspec.Struct]) -> Mapping[str, Any]:
    _, components = msgspec.json.schema_components((takes,))
    [schema] = components.values()
    return {key: value for key, value in schema.items() if key != "title"}


def _work(tool: Tool, workspace: Workspace) -> Callable[[Arguments, ToolContext], Awaitable[Object | EncodedResult]]:
    async def work(arguments: Arguments, context: ToolContext) -> Object | EncodedResult:
        try:
            given = msgspec.convert(arguments, tool.takes)
            _check_texts(arguments)
        except ValueError as error:  # `msgspec.ValidationError` is one
            takes = {"schema": _schema(tool.takes)}
            raise Fault("INVALID_ARGS", f"Invalid arguments: {error}", reach="not_sent", extra=takes) from None
        said = await tool.work(given, workspace, context)
        return said if isinstance(said, EncodedResult) else text(jsonrpc.encode(said).decode(), structuredContent=said)

    return work


def _check_texts(value: Any) -> None:
    """Raises `ValueError` for what no table keeps."""
    if isinstance(value, str):
        if "\0" in value or surrogates.is_in(value):
            raise ValueError("a text contains a NUL character or half of a character (a lone surrogate); remove it")
    elif isinstance(value, Mapping | list):
        for each in cast("list[Any]", [*value, *value.values()] if isinstance(value, Mapping) else value):
            _check_texts(each)
