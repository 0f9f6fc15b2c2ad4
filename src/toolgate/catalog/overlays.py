"""Overlays: what an operator changes of a server's tools, on the way out to clients and on the way back.

The rules this file keeps: an item without an overlay keeps its bytes, of the others only what is changed is written
anew; what is fixed or hidden is so whatever a caller sends and whatever the schema says; results are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from toolgate.catalog.base import Change, ServerList
from toolgate.config import Overlay, Parameter
from toolgate.config.shapes import EVERY
from toolgate.core import jsonrpc, names, spelling, templates
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Call
from toolgate.core.spelling import as_a_lenient_reader

Overlays: TypeAlias = Mapping[str, Overlay]  # of one server, by its own names of its tools

MOST_UNKNOWN = 1000  # parameters of a call that are looked at and not in its tool's schema, where some are refused

_TRUE = Raw(b"true")  # a schema, too


class Shown(msgspec.Struct, frozen=True):
    """A server's tools by the names that they are shown under, how each leads back, and what of the overlays is in
    vain."""

    items: Mapping[str, Raw]
    changes: Mapping[str, Change] = {}
    warnings: tuple[str, ...] = ()


def show(items: Mapping[str, Raw], overlays: Overlays) -> Shown:
    """The tools of a server as an operator wants them shown. Of two that come to one name, the first has it."""
    shown: dict[str, Raw] = {}
    changes: dict[str, Change] = {}
    warnings = [f"{name}: no such tool" for name in overlays if name != EVERY and name not in items]
    if EVERY in overlays and overlays[EVERY].name:
        warnings.append(f"{EVERY}: several tools cannot share one name, so each keeps its own")
    for own, raw in items.items():
        overlay = overlays.get(own) or overlays.get(EVERY)
        if overlay and overlay.hidden:
            continue
        tool = _Tool(own, raw, overlay or Overlay(), is_named=own in overlays)
        if tool.name in shown:
            warnings.append(f"{own}: another tool is shown as {tool.name}, so this one is not listed")
            continue
        shown[tool.name], change = tool.shown(), tool.change()
        if shown[tool.name] is not raw or change.touches_arguments:
            changes[tool.name] = change
        warnings += [f"{own}: {warning}" for warning in tool.warnings()]
    return Shown(shown, changes, tuple(warnings))


def hides(server_list: ServerList, own: str) -> bool:
    """Whether an operator has hidden a tool that its server lists."""
    shown = server_list.whole or server_list
    if not server_list.is_overlaid or own not in server_list.own:
        return False
    known: set[str] | None = shown.memo.get("own names")
    if known is None:
        known = shown.memo["own names"] = {
            shown.changes[name].own if name in shown.changes else name for name in shown.items
        }
    return own not in known


def apply(server_list: ServerList, overlays: Overlays, held: Mapping[str, str] | None = None) -> ServerList:
    """A list of tools as it is shown; without overlays as its server lists it. `held` are those in quarantine, by own
    names, and why; None where there is no such thing: else nothing but what is listed can be called."""
    if not overlays and held is None and not server_list.is_overlaid:
        return server_list
    whole = _applied(server_list, server_list.own, overlays, held)
    if not held:
        return whole
    free = {name: raw for name, raw in server_list.own.items() if name not in held}
    shown = _applied(server_list, free, {name: each for name, each in overlays.items() if name not in held}, held)
    return msgspec.structs.replace(shown, whole=whole)


def _applied(
    server_list: ServerList, items: Mapping[str, Raw], overlays: Overlays, held: Mapping[str, str] | None
) -> ServerList:
    shown = show(items, overlays) if overlays else Shown(items)
    return ServerList(
        shown.items,
        server_list.fetched,
        server_list.until,
        server_list.is_public,
        listed=server_list.own if overlays or held is not None else None,
        changes=shown.changes,
        warnings=shown.warnings,
        held=held or {},
        ignored=server_list.ignored,
    )


def find(server_list: ServerList, call: Call) -> Change:
    """How the tool of a call leads back to the server's own. Raises `Fault` for one that is not shown: on a server with
    overlays nothing else can be called, since it may be what is hidden."""
    name = call.target
    if name in server_list.items:
        return server_list.changes.get(name) or Change(name)
    close = names.did_you_mean(names.near(name, server_list.items))
    hint = close or "see tools/list"
    message = f"Tool not found: {name}" + (f" ({hint})" if close else "")
    raise Fault("TOOL_NOT_FOUND", message, server=call.server, tool=name, hint=hint, reach="not_sent")


def enter(call: Call, change: Change) -> Call:
    """The call by its server's own names. Raises `Fault` for arguments that a caller cannot give."""
    if not change.touches_arguments:
        return call.at(call.server, change.own)
    try:
        given = jsonrpc.members(call.arguments)
    except jsonrpc.UNREADABLE as error:
        raise _invalid(call, str(error)) from None
    if change.refused and len(given) > MOST_UNKNOWN:  # a set of them would take as long as to read them
        count = len(given) - sum(map(given.__contains__, change.known))
        if count > MOST_UNKNOWN:
            most = f"its overlay passes at most {MOST_UNKNOWN:,} of these on"
            raise _invalid(call, f"{count:,} parameters that {call.target} does not have; {most}")
    if change.refused and (unknown := given.keys() - change.known):
        if spelling.are_too_long(unknown):
            raise _invalid(call, f"{call.target} has no parameters with names that are so long")
        refused = [name for name in given if name in unknown and same_parameter(name) in change.refused]
        if refused:
            raise _invalid(call, f"{call.target} has no parameter {', '.join(refused)}")
    own = {change.renamed.get(name, name): value for name, value in given.items()}
    own = {**own, **{name: value for name, value in change.defaults.items() if name not in own}, **change.fixed}
    arguments = call.arguments if own == given else Raw(jsonrpc.encode(own))
    return msgspec.structs.replace(call, target=change.own, arguments=arguments)


def _invalid(call: Call, what: str) -> Fault:
    hint = "see its inputSchema in tools/list"
    message = f"Invalid arguments: {what}"
    return Fault("INVALID_ARGS", message, server=call.server, tool=call.target, hint=hint, reach="not_sent")


class _Tool:
    """One tool with its overlay. `is_named`: the overlay is for this tool alone, so that what it names should exist."""

    def __init__(self, own: str, raw: Raw, overlay: Overlay, is_named: bool) -> None:
        self._own = own
        self._raw = raw
        self._overlay = overlay
        self._is_named = is_named
        self._parameters = overlay.parameters
        self._schema = _object(jsonrpc.members(raw).get("inputSchema")) if overlay.parameters else {}
        self._properties = _object(self._schema.get("properties"))
        self.name = (is_named and overlay.name) or own
        shown = {own: self._parameter(own).name or own for own in self._properties if not self._is_withheld(own)}
        self._clash = len(set(shown.values())) < len(shown)
        # What callers know the parameters by, by the server's own names; what is withheld is not in it.
        self._names = dict(zip(shown, shown, strict=True)) if self._clash else shown

    def _parameter(self, own: str) -> Parameter:
        return self._parameters.get(own) or _UNCHANGED

    def _is_withheld(self, own: str) -> bool:
        return _is_withheld(self._parameter(own))

    def shown(self) -> Raw:
        new = self._texts() | self._input_schema()
        return Raw(jsonrpc.with_members(self._raw, new)) if new else self._raw

    def _texts(self) -> dict[str, bytes]:
        overlay = self._overlay
        told = {"name": self.name, "title": overlay.title, "description": overlay.description}
        if self.name == self._own:
            del told["name"]
        new = {key: jsonrpc.encode(text) for key, text in told.items() if text is not None}
        annotations = jsonrpc.members(self._raw).get("annotations") if "title" in new else None
        if "title" in _object(annotations):  # where it stood before 2025-06-18
            new["annotations"] = jsonrpc.with_members(annotations or b"{}", {"title": new["title"]})
        return new

    def _input_schema(self) -> dict[str, bytes]:
        if not self._parameters.keys() & self._properties.keys():
            return {}
        properties = {
            self._names[own]: _property(raw, self._parameter(own))
            for own, raw in self._properties.items()
            if own in self._names
        }
        schema = self._schema | {"properties": Raw(jsonrpc.encode(properties))}
        required = self._required()
        kept = [self._names.get(own, own) for own in required if not self._has_value(own)]
        if kept != required:
            schema["required"] = Raw(jsonrpc.encode(kept))
        if required and not kept:
            del schema["required"]  # draft 4 forbids an empty one
        return {"inputSchema": jsonrpc.encode(schema)}

    def _required(self) -> list[str]:
        try:
            return jsonrpc.read(self._schema.get("required", b"[]"), type=list[str])
        except jsonrpc.UNREADABLE:
            return []

    def _has_value(self, own: str) -> bool:
        """Whether callers need not give it, though its server does require it."""
        return self._is_withheld(own) or self._parameter(own).default is not UNSET

    def change(self) -> Change:
        # What an overlay of all the rest sends, it sends to those tools only that have such a parameter.
        sent = {own: each for own, each in self._parameters.items() if self._is_named or own in self._properties}
        away = {own for own in self._parameters if self._is_withheld(own) or self._names.get(own, own) != own}
        return Change(
            self._own,
            renamed={shown: own for own, shown in self._names.items() if shown != own},
            refused=frozenset(same_parameter(own) for own in away),
            known=frozenset(self._names.values()),
            defaults=_values({own: each.default for own, each in sent.items() if each.fixed is UNSET}),
            fixed=_values({own: each.fixed for own, each in sent.items()}),
        )

    def warnings(self) -> list[str]:
        if not self._is_named:
            return []
        found = [
            f"no parameter {own} at the top level of its schema, so only `fixed`, `default` and `hidden` apply"
            for own in self._parameters
            if own not in self._properties
        ]
        if self._clash:
            found.append("two parameters would share one name, so all keep their own")
        found += [
            f"{own} is hidden and required but has no value: calls will fail"
            for own in self._required()
            if (each := self._parameter(own)).hidden and each.fixed is UNSET and each.default is UNSET
        ]
        return found


def same_parameter(name: str) -> str:
    """What a server may take a parameter's name for: some mind neither case, width, `_`, nor what cannot be seen, and
    some end at a zero."""
    return templates.same(as_a_lenient_reader(name.partition("\0")[0]))


_UNCHANGED = Parameter()


def _is_withheld(parameter: Parameter) -> bool:
    """Whether callers neither see it nor may give it."""
    return parameter.hidden or parameter.fixed is not UNSET


def _values(values: Mapping[str, Any]) -> dict[str, Raw]:
    return {name: Raw(jsonrpc.encode(value)) for name, value in values.items() if value is not UNSET}


def _property(raw: Raw, parameter: Parameter) -> Raw:
    """A parameter's schema with what an overlay says of it. One that is out of shape says nothing."""
    description = UNSET if parameter.description is None else parameter.description
    new = _values({"description": description, "default": parameter.default})
    try:
        return Raw(jsonrpc.with_members(b"{}" if raw == _TRUE else raw, new)) if new else raw
    except jsonrpc.UNREADABLE:
        return raw


def _object(raw: Raw | bytes | None) -> Members:
    """The members of an object; none of anything else."""
    try:
        return jsonrpc.members(raw or b"{}")
    except jsonrpc.UNREADABLE:
        return {}
