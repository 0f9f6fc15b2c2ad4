"""Members that a revision calls otherwise (`Revision.names`): what a peer says in our words, what we say in a peer's.

The rules this file keeps: inside, everything goes by our names, so that no other room has to know of another; a member
that means nothing in one revision never comes to mean something in another, for readers that do not mind case either;
and what has nothing renamed in it stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, mcp
from toolgate.core.jsonrpc import Members
from toolgate.core.mcp import CONTENT, Renamed, Revision
from toolgate.eras.calls import folded
from toolgate.eras.repair import Repair, each_of, kept


def reader(of: str, revision: Revision | None) -> Repair | None:
    """What puts a thing that a peer of this revision says into our words; None where it is in these already. `of` is
    the thing as in `Renamed`, or a list whose page it is, by its method."""
    return _readers(revision.names).get(of) if revision and revision.names else None


def writer(of: str, revision: Revision | None) -> Repair | None:
    """What puts such a thing into the words of a peer of this revision; None where ours are these."""
    return _writers(revision.names).get(of) if revision and revision.names else None


def read(of: str, raw: Raw | bytes, revision: Revision | None) -> Raw | bytes:
    """The thing itself, in our words."""
    repair = reader(of, revision)
    return repair(raw if isinstance(raw, Raw) else Raw(raw)) if repair else raw


def write(of: str, raw: Raw | bytes, revision: Revision | None) -> Raw | bytes:
    """The thing itself, in the peer's words."""
    repair = writer(of, revision)
    return repair(raw if isinstance(raw, Raw) else Raw(raw)) if repair else raw


@lru_cache(maxsize=64)
def _readers(names: frozenset[Renamed]) -> Mapping[str, Repair]:
    return _repairs({(each.of, each.theirs): each.ours for each in names})


@lru_cache(maxsize=64)
def _writers(names: frozenset[Renamed]) -> Mapping[str, Repair]:
    return _repairs({(each.of, each.ours): each.theirs for each in names})


_RESULTS = (*mcp.CALLS, *mcp.LISTS, *mcp.TASKS)
_WITH_CONTENT = frozenset((mcp.CALL, "prompts/get"))


def _repairs(names: Mapping[tuple[str, str], str]) -> Mapping[str, Repair]:
    """By thing, for those in which something is renamed. `names` are the new ones, by thing and old name."""

    def of(thing: str) -> Mapping[str, str]:
        return {name: new for (place, name), new in names.items() if place == thing}

    def old(thing: str, ours: str) -> str:
        """What our name for a member is called before."""
        found = of(thing)
        return next((name for name, new in found.items() if new == ours), ours) if ours not in found else ours

    repairs = {thing: _object(of(thing), {}) for thing in (*mcp.KINDS, CONTENT) if of(thing)}
    blocks = _blocks(repairs.get(CONTENT))
    for method in _RESULTS:
        inside = {old(method, ours): repair for ours, repair in blocks.items() if method in _WITH_CONTENT}
        if of(method) or inside:
            repairs[method] = _object(of(method), inside)
    whole = repairs.get(mcp.CALL)
    if whole:  # what a task has come to stands in what tells of it, or alone
        repairs[mcp.TASK_GET] = _object(of(mcp.TASK_GET), {old(mcp.TASK_GET, "result"): whole})
        repairs.setdefault(mcp.TASK_RESULT, whole)
    return repairs


def _blocks(block: Repair | None) -> Mapping[str, Repair]:
    """Where a result has blocks of content."""
    if not block:
        return {}
    messages = each_of(kept(_object({}, {"content": one_or_many(block)})))
    return {"content": each_of(block), "messages": messages}


def one_or_many(repair: Repair) -> Repair:
    """A value, or each of an array."""
    each = each_of(repair)
    return lambda raw: each(raw) if memoryview(raw)[0] == 0x5B else repair(raw)


def _object(names: Mapping[str, str], inside: Mapping[str, Repair]) -> Repair:
    """An object whose members get these new names; what stands in it by an old name is repaired, `inside`. What would
    be taken for one of the new names is left out: it means nothing where it comes from."""
    alike = frozenset(map(folded, names.values()))
    within = {name: kept(repair) for name, repair in inside.items()}
    members = _reader_of(names)

    def repair(raw: Raw) -> Raw:
        old = members(raw)
        left = [name for name in old if name in names or folded(name) not in alike]
        new = {names.get(name, name): within[name](old[name]) if name in within else old[name] for name in left}
        is_same = new.keys() == old.keys() and all(new[name] is value for name, value in old.items())
        return raw if is_same else Raw(jsonrpc.encode(new))

    return kept(repair)


_OF_TASKS = ("statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval", "pollIntervalMs", "result", "error")
_OF_CALLS = ("content", "structuredContent", "contents", "messages", "description", "completion")
_KNOWN = frozenset(("_meta", "nextCursor", *mcp.LIST_OF_KIND, *mcp.OF_RESULTS, *_OF_TASKS, *_OF_CALLS))


def _reader_of(names: Iterable[str]) -> Callable[[Raw], Members]:
    """What takes an object apart. Where there are very many values, it takes the members that MCP has for results, and
    these."""
    known = sorted(_KNOWN.union(names))
    fields = [
        (f"at_{place}", Raw, msgspec.field(default=jsonrpc.NOTHING, name=name)) for place, name in enumerate(known)
    ]
    decode = jsonrpc.Decoder(msgspec.defstruct("_Known", fields)).decode

    def read(raw: Raw) -> Members:
        if not counting.is_too_much(raw):
            return jsonrpc.members(raw)
        told = msgspec.structs.astuple(decode(raw))
        return {name: value for name, value in zip(known, told, strict=True) if value}

    return read
