"""The surface `aggregate`: everything that is permitted, under namespaced names (seed 001, behaviour.md section 1).

The rule this file keeps: what it lists it also resolves, and a name that it did not make resolves only where exactly
one server can be meant (`bare`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Raw

from toolgate.auth.access import KEPT
from toolgate.catalog.base import ServerList, View
from toolgate.catalog.server_info import SERVED
from toolgate.core import jsonrpc, mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Done, Outcome
from toolgate.surfaces import bare, uris
from toolgate.surfaces.bare import NOTHING_TAKEN, Taken
from toolgate.upstreams.base import About


class Aggregate:
    """What is `hidden` is called by its whole name, and stands in no list; a bare name never means it. `taken` is what
    is no bare name."""

    def __init__(self, hidden: Collection[str] = (), taken: Taken = NOTHING_TAKEN) -> None:
        self._hidden = hidden
        self._taken = taken

    def needs(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        kind = call.kind
        split = self._split(call.target, kind, view)
        if split and kind in mcp.BY_URI:
            return ()  # templates make more URIs than any list names: the server itself knows
        if split:
            return [(split[0], kind)]
        kinds = (kind, "resourceTemplates") if kind == "resources" else (kind,)
        return [(server, kind) for server in self._listed(view.servers) for kind in kinds]

    def shown(self, kind: str, servers: Collection[str]) -> Collection[str]:
        return self._listed(servers)

    def _listed(self, servers: Collection[str]) -> Collection[str]:
        return [server for server in servers if server not in self._hidden] if self._hidden else servers

    def about(self) -> About | None:
        return SERVED

    def claims(self, call: Call, view: View) -> bool:
        return self._split(call.target, call.kind, view) is not None

    def _split(self, target: str, kind: str, view: View) -> tuple[str, str] | None:
        """What a name says is the same for every client, whatever servers it may see."""
        split = names.split_uri if kind in mcp.BY_URI else names.split_name
        return split(target, view.servers, self._taken.servers)

    def undecided(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        return ()

    def faults(self, kind: str, view: View) -> Iterable[tuple[str, str]]:
        return ()

    def named(self, server: str, kind: str, name: str) -> str:
        return _join(kind, server, name)

    def list(self, kind: str, view: View) -> Iterable[Raw]:
        for server in self._listed(view.servers):
            server_list = view.server_list(server, kind)
            if server_list:
                yield from (raw for _, raw in exposed(server, kind, server_list).values())

    def enter(self, call: Call, view: View) -> Call:
        kind = call.kind
        split = self._split(call.target, kind, view)
        if not split:
            return self._bare(call, view)
        server, own = split
        if kind in mcp.BY_URI:
            return call.at(server, own)
        server_list = _server_list(server, kind, view)
        if own in server_list.items:
            return call.at(server, own)
        listed = exposed(server, kind, server_list)
        if call.target not in listed:
            raise _not_found(call, listed, view)
        return call.at(server, listed[call.target][0])  # a shortened one

    def expose(self, server: str, uri: str) -> str:
        return names.join_uri(server, uri)

    def refuse(self, call: Call, fault: Fault, view: View) -> Outcome:
        raise fault

    def leave(self, call: Call, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Done):
            body = uris.rewrite(call.method, outcome.body, lambda uri: _shown_uri(call.server, uri))
            return Done(body, kept=outcome.kept, frame=outcome.frame if body is outcome.body else jsonrpc.NOTHING)
        return outcome

    def _bare(self, call: Call, view: View) -> Call:
        """A server's own name, where exactly one server has it, and the client may see it there."""
        kind = call.kind
        servers = self._listed(view.servers)
        owners = bare.owners(call, self._taken.meant(call, self._listed(view.all_servers)), view)
        visible = bare.visible(call, owners, view)
        if len(owners) == len(visible) == 1:
            return call.at(owners[0], call.target)
        if len(visible) > 1:
            candidates = [_join(kind, server, call.target) for server in visible]
            noun = mcp.KINDS[kind].noun
            message = (
                f"{noun} not found: {call.target} is offered by several servers; use one of {', '.join(candidates)}"
            )
            raise Fault(mcp.KINDS[kind].missing, message, tool=call.target, extra={"candidates": candidates})
        server_lists = ((server, server_list) for server in servers if (server_list := view.server_list(server, kind)))
        listed = ((server, exposed(server, kind, server_list)) for server, server_list in server_lists)
        if len(call.target) == names.LONGEST:  # a shortened name may lack its server's whole id
            for server, found in listed:
                if call.target in found:
                    return call.at(server, found[call.target][0])
            raise _not_found(call, (), view)
        raise _not_found(call, (name for _, found in listed for name in found), view)


def _shown_uri(server: str, uri: str) -> str:
    """A URI in a result; what was cut of it is the gateway's own."""
    return uri if uri.startswith(KEPT) else names.join_uri(server, uri)


def _server_list(server: str, kind: str, view: View) -> ServerList:
    server_list = view.server_list(server, kind)
    if server_list is None:
        raise view.fault(server, kind) or Fault(
            "SERVER_FAILED", f"Server not started: {server}", server=server, reach="not_sent"
        )
    return server_list


def _join(kind: str, server: str, name: str) -> str:
    return names.join_uri(server, name) if kind in mcp.BY_URI else names.join_name(server, name)


def exposed(server: str, kind: str, server_list: ServerList) -> Mapping[str, tuple[str, Raw]]:
    """A list by the names of this surface, in order: a server's own name, and the item as it is listed here. Made once
    for each list."""
    memo = server_list.memo.get("exposed")
    if memo is None:
        key, items = mcp.KINDS[kind].key, server_list.items
        pages = kind == "tools" and uris.may_be_named(b"\n".join(items.values()))  # most lists name none
        memo = server_list.memo["exposed"] = {
            name: (own, _renamed(_shown(server, items[own]) if pages else items[own], key, own, name))
            for own, name in _joined(server, kind, items).items()
        }
    return memo


def _renamed(raw: Raw, key: str, own: str, name: str) -> Raw:
    """An item under another name. Where it is to be seen which bytes say its name, all others stay as they are."""
    item, member = bytes(raw), b'"%b"' % key.encode()
    said = b"%b:%b" % (member, jsonrpc.encode(own))
    if item.count(member) == 1 and item.count(said) == 1 and item.find(b"\\u") < 0:  # no escape spells that name, too
        return Raw(item.replace(said, b"%b:%b" % (member, jsonrpc.encode(name))))
    return Raw(jsonrpc.with_members(raw, {key: jsonrpc.encode(name)}))


def _joined(server: str, kind: str, items: Iterable[str]) -> Mapping[str, str]:
    if kind in mcp.BY_URI:
        return {uri: names.join_uri(server, uri) for uri in items}
    return names.join_names(server, items)


def _shown(server: str, tool: Raw) -> Raw:
    return uris.rewrite_tool(tool, lambda uri: names.join_uri(server, uri))


def _not_found(call: Call, exposed: Iterable[str], view: View) -> Fault:
    listed, kind = call.kind, mcp.KINDS[call.kind]
    close = names.did_you_mean(names.near(call.target, exposed))
    hint = close or f"see {mcp.LIST_OF_KIND[listed]}"
    message = f"{kind.noun} not found: {call.target}" + (f" ({hint})" if close else "")
    failed = [server for server in view.servers if view.fault(server, listed)]
    extra = {"unavailable_servers": failed} if failed else {}
    return Fault(kind.missing, message, tool=call.target, hint=hint, extra=extra)
