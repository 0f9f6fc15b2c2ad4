"""Names as permissions write them: any spelling of a server, and behind it the server's own name of a thing.

The rule this file keeps: whatever a permission says that can mean nothing is told, since it may be a slip: what was to
be off stays open by it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any

from toolgate.config.access import KnownClient, Permissions
from toolgate.core import mcp, names


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


_OURS = (names.OWN, *names.INTERNAL)
_BY_URI = frozenset(section for section, kinds in mcp.SECTIONS.items() if mcp.BY_URI.issuperset(kinds))


def strangers(
    clients: tuple[KnownClient, ...], step_up: Iterable[str], servers: Container[str]
) -> Iterator[tuple[str, str, str]]:
    """(key, what is said there, its fix) of what names no server that is configured. `step_up` are the patterns of
    `auth.step_up`, `servers` ids."""
    found = [(f"clients.{client.id}.{key}", name, owner) for client in clients for key, name, owner in _owners(client)]
    found += (("auth.step_up", name, owner) for name, owner in _of_things(step_up))
    for key, name, owner in found:
        if owner is None:
            begun = f"SERVER+{name}" if key.rpartition(".")[2] in _BY_URI else f"SERVER__{name}"
            yield key, f"`{name}` matches no server, so it has no effect", f"write `{begun}`"
        elif owner not in servers and owner not in _OURS:
            told = f"{_quoted(name)} refers to a server that is not configured"
            yield key, told, "correct the name, or add the server"


def vain(
    clients: tuple[KnownClient, ...], step_up: Iterable[str], servers: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """The same of patterns that fit no name which one of these servers could have, and of names that no server writes
    so."""
    known = (*servers, *_OURS)
    for client in clients:
        permissions, begin = client.permissions, f"clients.{client.id}.mcp_permissions"
        for name in permissions.servers:
            if "*" in name and not any(names.fits(name.split("*"), each) for each in known):
                yield f"{begin}.servers", f"{_quoted(name)} matches no server, so it has no effect", _FIX_SERVER
        for section, said in permissions.things.items():
            if section not in _BY_URI:
                yield from _vain(f"{begin}.{section}", said, known, section)
            else:
                odd = ((name, why) for name in said if (why := _odd_anywhere(name)))
                yield from ((f"{begin}.{section}", f"{_quoted(name)} {why}", _FIX_ODD) for name, why in odd)
    yield from _vain("auth.step_up", step_up, known, "tools")


def _vain(key: str, patterns: Iterable[str], known: Collection[str], kind: str) -> Iterator[tuple[str, str, str]]:
    for name in patterns:
        owner, separator, rest = named(name).partition(names.SEPARATOR)
        if "*" in owner and not any(_may_begin(named(name), each + names.SEPARATOR) for each in known):
            yield key, f"{_quoted(name)} matches none of the servers' {kind}, so it has no effect", _FIX_PATTERN
        elif (separator or "*" in owner) and (odd := _odd(rest if separator else owner, kind)):
            yield key, f"{_quoted(name)} {odd}", _FIX_ODD


_FIX_SERVER = "correct the pattern: `*` matches any text, and server ids have lower-case letters, digits and `-`"
_FIX_PATTERN = "write `SERVER__` and then the tool, such as `files__delete_*`; or `*__delete_*` for all servers"
_FIX_ODD = "write the name as its server does; only `*` is a wildcard"


def _may_begin(pattern: str, beginning: str) -> bool:
    """Whether a pattern fits any name that begins so."""
    at = _skipped(pattern, {0})
    for each in beginning:
        at = _skipped(
            pattern, {place if pattern[place] == "*" else place + 1 for place in at if _takes(pattern, place, each)}
        )
    return bool(at)


def _takes(pattern: str, place: int, each: str) -> bool:
    return place < len(pattern) and pattern[place] in ("*", each)


def _skipped(pattern: str, at: Iterable[int]) -> set[int]:
    """With the places behind stars, which may stand for nothing."""
    found = set(at)
    for place in sorted(found):
        while place < len(pattern) and pattern[place] == "*":
            place += 1
            found.add(place)
    return found


def _odd(name: str, kind: str) -> str:
    """Why it is a slip rather than a name; empty where it may be one. MCP has tools' names in ASCII."""
    if found := re.search(r"[?\[\]{}]", name):
        return f"contains `{found[0]}`, which is not a wildcard and appears in no tool name"
    if kind == "tools" and not name.isascii():
        return _strange(next(each for each in name if not each.isascii()))
    return _odd_anywhere(name)


def _odd_anywhere(name: str) -> str:
    if name != name.strip():
        return "starts or ends with a space"
    strange = (each for each in name if unicodedata.normalize("NFKC", each) != each or not each.isprintable())
    return next(map(_strange, strange), "")


def _strange(each: str) -> str:
    return f"contains {unicodedata.name(each, f'U+{ord(each):04X}')}, which looks like another letter or is invisible"


def _quoted(name: str) -> str:
    """So that what cannot be seen is."""
    plain = name == name.strip() and name.isascii() and name.isprintable()
    return f"`{name}`" if plain else f"`{json.dumps(name)}`"


def unmet(clients: tuple[KnownClient, ...], server: str, tools: Collection[str]) -> Iterator[str]:
    """What permissions say of tools of a server, and means none of those that it lists, which are its own names."""
    listed = [form for tool in tools for form in {server + names.SEPARATOR + tool, names.join_name(server, tool)}]
    for client in clients:
        for name, owner in _of_things(client.permissions.tools):
            if owner == server and not any(re.fullmatch(_as_regex(named(name)), each) for each in listed):
                yield f"clients.{client.id}.mcp_permissions.tools: `{name}` matches none of its tools: correct the name"


def _as_regex(pattern: str) -> str:
    return "(?s:.*)".join(map(re.escape, pattern.split("*")))


def idle(clients: tuple[KnownClient, ...]) -> Iterator[tuple[str, str, str]]:
    """The same of clients that may use nothing although nothing says that this is meant."""
    for client in clients:
        if client.servers is None and not _opens(client.permissions):
            fix = 'write `mcp_server_access = "all"` or a list of servers'
            yield f"clients.{client.id}", "its permissions allow no server, so it cannot use anything", fix


def _opens(permissions: Permissions) -> bool:
    return any(verdict != "off" for verdict in permissions.verdicts)


def _owners(client: KnownClient) -> Iterator[tuple[str, str, str | None]]:
    """(key, name, id of its server); None where there is none in it. What may be any server's is passed over."""
    if isinstance(client.servers, tuple):
        yield from (("mcp_server_access", name, server(name)) for name in client.servers)
    permissions = client.permissions
    yield from (("mcp_permissions.servers", name, server(name)) for name in permissions.servers if "*" not in name)
    for section, said in permissions.things.items():
        owners = _of_uris(said) if section in _BY_URI else _of_things(said)
        yield from ((f"mcp_permissions.{section}", *each) for each in owners)


def _of_things(verdicts: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for name in verdicts:
        owner, separator, _ = named(name).partition(names.SEPARATOR)
        if "*" not in owner:
            yield name, owner if separator else None


def _of_uris(verdicts: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    for name in verdicts:
        scheme, join, _ = split_uri(name)
        if join or not name.startswith("*"):
            yield name, _id_of(scheme, join) if join else None


def _id_of(scheme: str, join: str) -> str:
    """A scheme begins with a letter, an id need not: see `names.join_uri`."""
    owner = scheme.removeprefix("ui://")
    return owner[1:] if join == "+" and re.match("s+[0-9]", owner) else owner
