"""How many tokens the models of clients have loaded of tools, against what all tools at once would have been.

What would have been loaded is each tool that a client may use, in full; what was loaded is the list that it was told
last, and what control tools have told it of tools. Tokens are estimated (`search.tokens`). The rule this file keeps:
counting takes a thread, in which principals take turns, and each list is counted once, however many clients have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.catalog.loaded import Loaded, ToolList
from toolgate.core import items, jsonrpc, names
from toolgate.core.concurrency import FairThreads
from toolgate.search import tokens

KEY: Final = "toolgate/tokens"
"""In the `_meta` of a request: the reply is to have what the client has loaded, in its own `_meta`."""
TOKENIZER: Final = "an estimate of o200k_base"
MOST = 100  # clients whose figures are added up

Lists = Mapping[str, tuple[ServerList, Iterable[str]]]
"""By server, the whole list and the names of those of its tools that a client may use."""


class Given(msgspec.Struct, frozen=True):
    """One client's: what it has loaded, the lists of what it may use, and the server that its path is for alone."""

    loaded: Loaded | None
    lists: Lists
    only: str = ""


class _Counts(msgspec.Struct):
    would: Counter[str] = msgspec.field(default_factory=Counter[str])  # by server
    loaded: Counter[str] = msgspec.field(default_factory=Counter[str])


async def of(given: Given, shown: Mapping[str, str], turns: FairThreads, whose: str) -> Mapping[str, Any]:
    """One client's figures; `shown` are names of servers by id, `whose` turn it takes: see `Principal.counted_as`."""
    counts = await turns.in_thread(whose, lambda: _counted(given, {}))
    return {**_told(counts), "by_server": _by_server(counts, shown)}


async def of_all(given: Sequence[Given], shown: Mapping[str, str], turns: FairThreads) -> Mapping[str, Any]:
    """Those of all clients together, by path and by server, for who administers."""

    def count() -> list[tuple[str, _Counts]]:
        seen: dict[int, tuple[str, int]] = {}
        return [(each.loaded.client.path, _counted(each, seen)) for each in given if each.loaded]

    found = await turns.in_thread("", count)
    paths: dict[str, _Counts] = {}
    for path, counts in found:
        _add(paths.setdefault(path, _Counts()), counts)
    whole = _Counts()
    for counts in paths.values():
        _add(whole, counts)
    by_surface = {path: _told(counts) for path, counts in paths.items()}
    return {**_told(whole), "clients": len(found), "by_surface": by_surface, "by_server": _by_server(whole, shown)}


def _add(whole: _Counts, part: _Counts) -> None:
    whole.would.update(part.would)
    whole.loaded.update(part.loaded)


def _counted(given: Given, seen: dict[int, tuple[str, int]]) -> _Counts:
    """`seen` has each item that was counted before, by its identity: what a server has and its tokens. The items live
    as long as `given`."""
    counts = _Counts()
    for server, (server_list, allowed) in given.lists.items():
        each = _by_name(server_list)
        counts.would[server] = sum(each.get(name, 0) for name in allowed)
    if given.loaded:
        counts.loaded.update(_of_list(given.loaded.list, given, seen))
        counts.loaded.update(given.loaded.told)
    return counts


def _of_list(listed: ToolList, given: Given, seen: dict[int, tuple[str, int]]) -> Counter[str]:
    if listed.counted is None:
        found = Counter[str]()
        for raw in listed.items:
            if id(raw) not in seen:
                seen[id(raw)] = _whose(raw, given), tokens.estimate(bytes(raw))
            server, size = seen[id(raw)]
            found[server] += size
        listed.counted = found
    return listed.counted


def _by_name(server_list: ServerList) -> Mapping[str, int]:
    if "tokens" not in server_list.memo:
        server_list.memo["tokens"] = {name: tokens.estimate(bytes(raw)) for name, raw in server_list.items.items()}
    return server_list.memo["tokens"]


def _whose(raw: Raw, given: Given) -> str:
    if given.only:
        return given.only
    split = names.split_name(items.read(raw).name, given.lists)
    return split[0] if split else names.OWN


def _told(counts: _Counts) -> dict[str, Any]:
    would, loaded = counts.would.total(), counts.loaded.total()
    saved = round(100 * (1 - loaded / would), 1) if would else 0.0
    return {"would_have_loaded": would, "loaded": loaded, "saved_percent": saved, "tokenizer": TOKENIZER}


def _by_server(counts: _Counts, shown: Mapping[str, str]) -> dict[str, Any]:
    ids = [id for id in (*shown, names.OWN) if counts.would[id] or counts.loaded[id]]
    return {shown.get(id, id): {"would_have_loaded": counts.would[id], "loaded": counts.loaded[id]} for id in ids}


def size_of(result: Mapping[str, Any]) -> int:
    """The tokens of what a control tool says."""
    blocks = result.get("content", ())
    texts = (block["text"] for block in blocks if "text" in block)
    return sum(tokens.estimate(jsonrpc.read(text, str) if isinstance(text, Raw) else text) for text in texts)
