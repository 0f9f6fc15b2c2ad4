"""The finder: what is indexed, and where."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.config import Server
from toolgate.core.fault import Fault
from toolgate.gateway.finder import Finder
from toolgate.search import Document, Index

SERVERS = {"notes": (Server(id="notes", name="notes", type="stdio"), "")}


def server_list(*names: str) -> ServerList:
    return ServerList({name: Raw(b'{"name":"%b","description":null}' % name.encode()) for name in names})


class ServerLists:
    """What is known of the one server's tools."""

    def __init__(self, tools: ServerList) -> None:
        self.tools = tools

    def known(self, server: str, kind: str) -> ServerList | None:
        return self.tools if kind == "tools" else None


async def names(finder: Finder, query: str, server_lists: ServerLists) -> list[str]:
    hits = await finder.find(query, SERVERS, server_lists.known, ("tools",), 10, "bm25")
    return [hit.document.name for hit in hits]


async def test_a_list_is_indexed_when_it_is_another_one_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []

    def counted(index: Index, server: str, documents: Collection[Document]) -> None:
        put.append(server)
        keep(index, server, documents)

    keep = Index.keep
    monkeypatch.setattr(Index, "keep", counted)
    finder, server_lists = Finder(), ServerLists(server_list("write_note", "delete_note"))
    assert await names(finder, "write", server_lists) == ["write_note"]
    assert await names(finder, "delete", server_lists) == ["delete_note"]
    assert put == ["notes/"]
    server_lists.tools = server_list("read_note")
    assert await names(finder, "write", server_lists) == []
    assert put == ["notes/", "notes/"]
    finder.close()


async def test_of_a_list_that_changes_what_is_gone_leaves_before_the_new_is_put_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four lists of 10,000 items each took 930 MB when they changed, and 690 before and after."""
    sizes: list[int] = []
    add = Index.add

    def noted(index: Index, server: str, document: Document, most: int) -> None:
        add(index, server, document, most)
        sizes.append(len(index))

    monkeypatch.setattr(Index, "add", noted)
    finder, server_lists = Finder(), ServerLists(server_list("one", "two", "three"))
    await names(finder, "one", server_lists)
    server_lists.tools = server_list("three", "four", "five")
    assert await names(finder, "five", server_lists) == ["five"]
    assert sizes == [1, 2, 3, 1, 2, 3]
    finder.close()


class Scopes:
    """A server whose lists differ from client to client, and which keys were dropped from the index."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.finder = Finder()
        self.dropped: list[str] = []
        self.lists = {whose: ServerLists(server_list(f"write_{whose}_now")) for whose in ("ann", "bob", "cy")}
        self.server = Server(id="notes", name="notes", type="stdio", scope="principal")
        drop = Index.drop

        def noted(index: Index, key: str) -> None:
            self.dropped.append(key)
            drop(index, key)

        monkeypatch.setattr(Index, "drop", noted)

    async def search(self, whose: str, principal: str = "") -> None:
        wanted = {"notes": (self.server, whose)}
        known = self.lists[whose].known
        hits = await self.finder.find("write", wanted, known, ("tools",), 10, "bm25", whose=principal)
        assert [hit.document.name for hit in hits] == [f"write_{whose}_now"]


async def test_what_an_abandoned_search_has_put_in_is_gone_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gateway.finder.SLICE", 0)
    scopes = Scopes(monkeypatch)
    scopes.lists["ann"] = ServerLists(server_list(*(f"write_{number}" for number in range(1000))))
    add, has_begun = Index.add, threading.Event()

    def noted(index: Index, server: str, document: Document, most: int) -> None:
        add(index, server, document, most)
        has_begun.set()

    monkeypatch.setattr(Index, "add", noted)
    search = asyncio.ensure_future(scopes.search("ann"))
    async with asyncio.timeout(30):
        while not has_begun.is_set():
            await asyncio.sleep(0)
        search.cancel()
        await asyncio.wait([search])
        del search  # its error holds all that it worked on
        while not scopes.dropped:
            await scopes.search("bob")
    assert scopes.dropped == ["notes/ann"]
    scopes.finder.close()


async def test_all_scopes_of_one_server_take_so_much_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gateway.finder.MOST_OF_SERVER", 7000)
    scopes = Scopes(monkeypatch)
    for whose in ("ann", "bob", "cy", "ann", "bob"):
        await scopes.search(whose)
    assert scopes.dropped == ["notes/ann", "notes/bob", "notes/cy"]  # two have room: who searched last keeps theirs
    scopes.finder.close()


async def test_whoever_has_most_of_the_index_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gateway.finder.MOST_OF_SERVER", 7000)
    scopes = Scopes(monkeypatch)
    await scopes.search("ann")
    for session in ("bob", "cy", "bob", "cy"):  # of one principal
        await scopes.search(session, "mallory")
    assert "notes/ann" not in scopes.dropped
    scopes.finder.close()


async def test_searches_that_push_out_each_others_lists_find_them_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gateway.finder.MOST_OF_SERVER", 1)
    monkeypatch.setattr("toolgate.gateway.finder.SLICE", 0)
    scopes = Scopes(monkeypatch)
    await asyncio.gather(*(scopes.search(whose, whose) for whose in ("ann", "bob", "cy") for _ in range(4)))
    assert len(scopes.dropped) > 3
    scopes.finder.close()


async def test_with_more_servers_than_have_room_a_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gateway.finder.MOST_INDEXED", 2)
    finder, lists = Finder(), ServerLists(server_list("write_note"))
    servers = {id: (Server(id=id, name=id, type="stdio"), "") for id in ("one", "two", "three")}
    async with asyncio.timeout(30):
        hits = await finder.find("write", servers, lists.known, ("tools",), 10, "bm25")
    assert len(hits) == 2
    finder.close()


async def test_what_was_indexed_for_a_client_goes_with_its_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    scopes = Scopes(monkeypatch)
    for whose in ("ann", "bob"):
        await scopes.search(whose)
    del scopes.lists["ann"]
    await scopes.search("bob")
    assert scopes.dropped == ["notes/ann"]
    scopes.finder.close()


async def test_what_cannot_be_searched_for_is_the_callers_fault() -> None:
    finder = Finder()
    with pytest.raises(Fault, match="Invalid arguments: Not a regular expression"):
        await finder.find("(", SERVERS, ServerLists(server_list("a")).known, ("tools",), 10, "regex")
    finder.close()


def test_the_event_loop_goes_on_while_an_index_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    is_going_on = threading.Event()
    keep = Index.keep

    def held(index: Index, server: str, documents: Collection[Document]) -> None:
        assert is_going_on.wait(30)  # set by the event loop, while this waits
        keep(index, server, documents)

    async def searched() -> list[str]:
        finder = Finder()
        search = asyncio.ensure_future(names(finder, "write", ServerLists(server_list("write_note"))))
        await asyncio.sleep(0)
        is_going_on.set()
        found = await search
        finder.close()
        return found

    monkeypatch.setattr(Index, "keep", held)
    assert asyncio.run(searched()) == ["write_note"]
