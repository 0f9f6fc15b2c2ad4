"""Names as permissions write them: any spelling of a server, and behind it the server's own name of a thing.

The rule this file keeps: whatever a permission says of a server that is not there is told, since it may be a slip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from toolgate.config.access import KnownClient, Permissions
from toolgate.wire import names


def server(name: str) -> str:
    return name if "*" in name else names.slug(name)


def named(name: str) -> str:
    """`my_server__tool` → `my-server__tool`, whatever spelling of its server a name begins with."""
    owner, separator, rest = name.partition(names.SEPARATOR)
    return name if not separator or "*" in owner else names.slug(owner) + separator + rest


_of_server = re.compile(r"(ui://)?([^+*/:]*?)(\+|__)(.*)", re.DOTALL)


def split_uri(name: str) -> tuple[str, str, str]:
    """(beginning, what joins, URI) of a resource's name, its server in one spelling; nothing joins where none is
    named."""
    found = _of_server.fullmatch(name)
    if not found:
        return "", "", name
    owner = names.slug(found[2])
    if found[3] == names.SEPARATOR:
        return owner, names.SEPARATOR, found[4]
    scheme = owner if not owner[:1].isdigit() else "s" + owner
    if found[4].startswith("ui://"):  # as a server itself has it
        return "ui://" + scheme, "+", found[4][len("ui://") :]
    return (found[1] or "") + scheme, "+", found[4]


def strangers(clients: tuple[KnownClient, ...], servers: Container[str]) -> Iterator[tuple[str, str, str]]:
    """(key, what is said there, its mend) of what names no server that is configured. `servers` are ids."""
    for client in clients:
        for key, name, owner in _owners(client):
            if owner is None:
                begun = f"SERVER+{name}" if key.endswith("resources") else f"SERVER__{name}"
                yield f"clients.{client.id}.{key}", f"`{name}` names no server, so it does nothing", f"write `{begun}`"
            elif owner not in servers and owner != names.OWN:
                told = f"`{name}` is of a server that is not configured"
                yield f"clients.{client.id}.{key}", told, "correct the name, or add the server"


def unmet(clients: tuple[KnownClient, ...], server: str, tools: Collection[str]) -> Iterator[str]:
    """What permissions say of tools of a server, and means none of those that it lists, which are its own names."""
    listed = [form for tool in tools for form in {server + names.SEPARATOR + tool, names.join_name(server, tool)}]
    for client in clients:
        for name, owner in _of_things(client.permissions.tools):
            if owner == server and not any(re.fullmatch(_as_regex(named(name)), each) for each in listed):
                yield f"clients.{client.id}.mcp_permissions.tools: `{name}` means none of its tools: correct the name"


def _as_regex(pattern: str) -> str:
    return "(?s:.*)".join(map(re.escape, pattern.split("*")))


def idle(clients: tuple[KnownClient, ...]) -> Iterator[tuple[str, str, str]]:
    """The same of clients that may use nothing although nothing says that this is meant."""
    for client in clients:
        if client.servers is None and not _opens(client.permissions):
            mend = 'write `mcp_server_access = "all"` or a list of servers'
            yield f"clients.{client.id}", "its permissions open no server, so it may use nothing", mend


def _opens(permissions: Permissions) -> bool:
    named = (permissions.servers, permissions.tools, permissions.resources, permissions.prompts)
    said = (permissions.everything, *(verdict for table in named for verdict in table.values()))
    return any(verdict in ("allow", "ask") for verdict in said)


def _owners(client: KnownClient) -> Iterator[tuple[str, str, str | None]]:
    """(key, name, id of its server); None where there is none in it. What may be any server's is passed over."""
    if isinstance(client.servers, tuple):
        yield from (("mcp_server_access", name, server(name)) for name in client.servers)
    permissions = client.permissions
    yield from (("mcp_permissions.servers", name, server(name)) for name in permissions.servers if "*" not in name)
    for kind in ("tools", "prompts"):
        yield from ((f"mcp_permissions.{kind}", *each) for each in _of_things(getattr(permissions, kind)))
    yield from (("mcp_permissions.resources", *each) for each in _of_resources(permissions))


def _of_things(verdicts: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    for name in verdicts:
        owner, separator, _ = named(name).partition(names.SEPARATOR)
        if "*" not in owner:
            yield name, owner if separator else None


def _of_resources(permissions: Permissions) -> Iterator[tuple[str, str | None]]:
    for name in permissions.resources:
        scheme, join, _ = split_uri(name)
        if join or not name.startswith("*"):
            yield name, _id_of(scheme, join) if join else None


def _id_of(scheme: str, join: str) -> str:
    """A scheme begins with a letter, an id need not: see `names.join_uri`."""
    owner = scheme.removeprefix("ui://")
    return owner[1:] if join == "+" and re.match("s+[0-9]", owner) else owner
