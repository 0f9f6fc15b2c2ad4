"""A toolset surface: control tools, and behind them what servers offer, in the names of another surface.

The rules this file keeps: hidden is not forbidden, so any control tool can be called by its name on any toolset
surface; what a toolset surface lists under a name is what that name calls; a control tool that forwards is the call of
its true target before any policy sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec import Raw

from toolgate.auth.access import HARMLESS
from toolgate.catalog.base import View
from toolgate.config import VirtualSearch
from toolgate.core import items, jsonrpc, mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Done, Hints, Outcome, ToolInfo
from toolgate.eras import calls, tasks
from toolgate.surfaces import controls
from toolgate.surfaces.base import Surface
from toolgate.surfaces.controls import base, children
from toolgate.surfaces.controls.base import Control
from toolgate.upstreams.base import About

# What is told to clients as the protocol has it, whatever tool was called.
_OF_THE_PROTOCOL = frozenset(
    ("MISSING_CAPABILITY", "HEADER_MISMATCH", "UNSUPPORTED_VERSION", "INVALID_STATE", "METHOD_NOT_FOUND")
)
_RPC_OF_THE_PROTOCOL = frozenset((*mcp.MODERN_ONLY_ERRORS, mcp.URL_ELICITATION_REQUIRED))


class ToolsetSurface:
    """`listed` are the control tools that it shows; `instructions` say how to use them where it shows nothing else;
    `offers` is what this gateway has of all that a control tool may need."""

    def __init__(
        self,
        behind: Surface,
        listed: Sequence[Control] = (),
        instructions: str = "",
        search: VirtualSearch | None = None,
        shows_resources: bool = False,
        offers: Collection[str] = (),
    ) -> None:
        self._behind = behind
        self._offers = offers
        self._listed = {control.name: control for control in listed if not control.needs or control.needs in offers}
        self._instructions = instructions
        self._search = search
        self._shows_resources = shows_resources

    def about(self) -> About | None:
        if not self._instructions:
            return self._behind.about()
        served = {name: dict.fromkeys(mcp.CAPABILITIES[name], True) for name in ("tools", "resources", "logging")}
        return About(served, self._instructions)

    def needs(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        control = self._control(call, view)
        if not control:
            return () if _is_own_resource(call) else self._behind.needs(call, view)
        undecided = [] if call.target in self._listed else list(self._behind.undecided(call, view))
        return [*undecided, *_needs_of(control, call, view)]

    def shown(self, kind: str, servers: Collection[str]) -> Collection[str]:
        return () if self._instructions else self._behind.shown(kind, servers)

    def list(self, kind: str, view: View) -> Iterable[Raw]:
        if kind == "tools":
            yield from (control.listed() for control in self._listed.values() if _permits(view, control))
        if kind == "resources" and self._shows_resources:
            yield from children.listed_resources(lambda uri: view.permits("resources", uri, HARMLESS))
        if not self._instructions:
            found = list(self._behind.list(kind, view))
            yield from self._searchable(found, view) if kind == "tools" and self._is_hidden(found, view) else found

    def _is_hidden(self, tools: Sequence[Raw], view: View) -> bool:
        """Whether there are too many, for a client that may search them."""
        return self._is_too_much(tools) and all(_permits(view, control) for control in controls.SETS["search"])

    def _is_too_much(self, tools: Sequence[Raw]) -> bool:
        search = self._search
        if not search or not search.enabled:
            return False
        return len(tools) > search.threshold or _tokens(tools) > search.threshold_tokens

    def _searchable(self, tools: Sequence[Raw], view: View) -> Iterable[Raw]:
        """The search tool instead of all, and what it has found for this client."""
        yield from (control.listed() for control in controls.SETS["search"] if control.name not in self._listed)
        if view.activated:
            yield from (raw for raw in tools if items.read(raw).name in view.activated)

    def claims(self, call: Call, view: View) -> bool:
        return self._control(call, view) is not None or self._behind.claims(call, view)

    def undecided(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        return self._behind.undecided(call, view)

    def faults(self, kind: str, view: View) -> Iterable[tuple[str, str]]:
        return self._behind.faults(kind, view)

    def named(self, server: str, kind: str, name: str) -> str:
        return self._behind.named(server, kind, name)

    def enter(self, call: Call, view: View) -> Call:
        control = self._control(call, view)
        if control and control.forward:
            aimed = _aimed(control, call, view)
            if aimed.kind == "tools":
                base.check_offered(aimed.server, "tools", aimed.target, view)
            return aimed
        if control:
            if call.task:
                raise tasks.not_as_task(call.target)
            return msgspec.structs.replace(
                call, server=names.OWN, target=control.name, tool_info=_TOOL_INFO[control.changes]
            )
        return _own_resource(call) if _is_own_resource(call) else self._behind.enter(call, view)

    def _control(self, call: Call, view: View) -> Control | None:
        """The precedence of names: behaviour.md section 1."""
        if call.method != mcp.CALL:
            return None
        if first := controls.of_script(call.target) if call.by_script else self._listed.get(call.target):
            return first
        control = controls.find(call.target)
        is_there = control and (control.needs != "codex" or "codex" in self._offers)
        return control if is_there and not self._behind.claims(call, view) else None

    def expose(self, server: str, uri: str) -> str:
        return self._behind.expose(server, uri)

    def leave(self, call: Call, outcome: Outcome) -> Outcome:
        if call.server == names.OWN or not isinstance(outcome, Done):
            return outcome
        if outcome.is_foreign:
            raise Fault("UPSTREAM_ERROR", "The server's result has an unknown type", reach="executed")
        left = self._behind.leave(call, outcome) if call.method == mcp.CALL or not call.asked else outcome
        return base.wrapped(controls.of(call), call, left) if call.asked else left

    def refuse(self, call: Call, fault: Fault, view: View) -> Outcome:
        control = self._of(call, view)
        if not control or fault.code in _OF_THE_PROTOCOL or fault.rpc in _RPC_OF_THE_PROTOCOL:
            raise fault
        failed = control.family.fail(control, base.readable(control, call.asked or call), fault)
        if failed is None:
            raise fault
        return Done(jsonrpc.encode(failed))

    def _of(self, call: Call, view: View) -> Control | None:
        """The control tool that a call is of, whether it has been entered or not."""
        if call.asked:
            return controls.of(call)
        if call.server:
            return controls.find(call.target) if call.server == names.OWN and call.method == mcp.CALL else None
        return self._control(call, view)


def _permits(view: View, control: Control) -> bool:
    return view.permits("tools", control.name, control.hints)


def _tokens(raws: Iterable[Raw]) -> int:
    """About how many tokens of a model these are. By their length alone: a list is long, and asked for often
    (`search.tokens` would read all of it)."""
    return sum(len(memoryview(raw)) for raw in raws) // 4


def _needs_of(control: Control, call: Call, view: View) -> Iterable[tuple[str, str]]:
    if not control.forward:
        return ()
    try:
        aimed = _aimed(control, call, view)
    except Fault:
        return ()  # `enter` will say it
    return [(aimed.server, "tools")] if aimed.kind == "tools" else ()


def _is_own_resource(call: Call) -> bool:
    return call.method == "resources/read" and call.target.startswith(names.OWN_SCHEME)


def _own_resource(call: Call) -> Call:
    return msgspec.structs.replace(call, server=names.OWN, tool_info=_TOOL_INFO[False])


# What is known of the gateway's own, by whether it changes something.
_TOOL_INFO = {changes: ToolInfo(hints=Hints(readOnlyHint=not changes)) for changes in (False, True)}


def _aimed(control: Control, call: Call, view: View) -> Call:
    """The call that a control tool stands for. Raises `Fault` where it is out of shape, or no such server is there."""
    if call.task:
        raise tasks.not_as_task(call.target)
    given, forward = base.read(control, call), control.forward
    assert forward
    return msgspec.structs.replace(
        call,
        method=forward.method,
        server=base.find_server(given[forward.server], view.servers),
        target=calls.bounded(given[forward.target], forward.target),
        arguments=given.get(forward.arguments, jsonrpc.NOTHING),
        headers=None,
        asked=msgspec.structs.replace(call, target=control.name),
    )
