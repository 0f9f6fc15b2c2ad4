"""Bare names: what a server itself calls a thing, said without the server's name.

The rules this file keeps: a name that says whose it is, or is one of the gateway's own, is nobody else's bare name,
whether what it names is there, permitted or not; and what keeps a client from one server's thing (permissions,
quarantine, an overlay, a server that fails) never makes its name mean that of another server. What a client may not see
is counted, and not told: the name is refused as one that nobody has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from toolgate.catalog.base import ServerList, View
from toolgate.core import mcp, names
from toolgate.core.model import Call
from toolgate.surfaces import uris


class Taken(msgspec.Struct, frozen=True):
    """What is no bare name. `servers` are the configured names of all servers by id, disabled ones too; `tools` are
    the names of the gateway's own tools as slugs, whether this gateway has them or not."""

    servers: Mapping[str, str] = {}
    tools: frozenset[str] = frozenset()

    def meant(self, call: Call, servers: Collection[str]) -> Collection[str]:
        """Those of these servers that a name may mean where it is bare."""
        if names.says_whose(call.target, self.servers, is_uri=call.kind in mcp.BY_URI):
            return ()
        is_own = call.kind == "tools" and names.is_one_of(self.tools, call.target)
        if is_own:
            return [server for server in servers if server == names.TASKS]
        return [server for server in servers if server != names.SCRIPTS]  # a script that comes takes nobody's name


NOTHING_TAKEN = Taken()


def owners(call: Call, servers: Collection[str], view: View) -> Sequence[str]:
    """Those of these servers that have what is called so, by all that is known on the route, of a client that may see
    it or not. A URI is also of those with a template that makes it and begins with its scheme: none that lists it takes
    it from them. Of one that nobody has so, those with any template that makes it."""
    name = call.target
    found = [server for server in servers if any(_has(each, name) for each in _lists(server, call.kind, view))]
    if call.kind != "resources":
        return found
    scheme = name[: name.find(":") + 1]
    own = [server for server in servers if server in found or _makes(server, name, view, scheme)]
    return own or [server for server in servers if _makes(server, name, view, "")]


def visible(call: Call, found: Sequence[str], view: View) -> Sequence[str]:
    """Those owners whose thing of this name the client may see."""
    return [server for server in found if server in view.servers and _is_seen(call, server, view)]


def _is_seen(call: Call, server: str, view: View) -> bool:
    listed = view.server_list(server, call.kind)
    if listed and call.target in listed.items:
        return True
    templates = view.server_list(server, "resourceTemplates") if call.kind == "resources" else None
    return templates is not None and any(_is_made_by(template, call.target, view) for template in templates.items)


def known(server_list: ServerList) -> set[str]:
    """All names that a server has for its things, with those that operators have changed or that are held back."""
    return {*server_list.items, *server_list.own, *(server_list.whole.items if server_list.whole else ())}


def _lists(server: str, kind: str, view: View) -> Iterator[ServerList]:
    if found := view.remembered(server, kind):
        yield found
    if server in view.servers and (seen := view.server_list(server, kind)) and seen is not found:
        yield seen


def _has(server_list: ServerList, name: str) -> bool:
    is_held = server_list.whole is not None and name in server_list.whole.items
    return is_held or name in server_list.items or name in server_list.own


def _makes(server: str, uri: str, view: View, begin: str) -> bool:
    """Whether a server has a template that makes it, and begins so."""
    templates = chain.from_iterable(each.items for each in _lists(server, "resourceTemplates", view))
    return any(template.startswith(begin) and _is_made_by(template, uri, view) for template in templates)


def _is_made_by(template: str, uri: str, view: View) -> bool:
    found = view.made.get(template)
    return uris.is_made_by(template, uri) if found is None else found
