"""A folder that a person was asked about is the one that Codex works in: whoever named it cannot put another in its
place while the person decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from codex_double import CodexDouble
from inmemory import Visitor, gateway
from virtualtime import FakeClock, VirtualTimeLoop, settle

from toolgate.app import App
from toolgate.config import Config
from toolgate.config.settings import Codex
from toolgate.policy.approvals import Approvals, StoredRequest
from toolgate.state.memory import MemoryStore
from toolgate.workspace import codex, codex_folder


class Deciding:
    """A gateway whose operator is asked before Codex works."""

    def __init__(self, app: App, double: CodexDouble, book: Approvals) -> None:
        self._app, self.double, self._book = app, double, book

    def begin(self, **arguments: Any) -> asyncio.Future[dict[str, Any]]:
        async def told() -> dict[str, Any]:
            asked = Visitor(self._app, "/mcp/daemon").ask("tools/call", name="codex", arguments=arguments)
            answer = (await asked).last
            return json.loads(answer["result"]["content"][0]["text"]) if "result" in answer else answer["error"]

        return asyncio.ensure_future(told())

    async def asked(self) -> StoredRequest:
        await settle()
        (request,) = [each for each in self._book.requests() if each.state == "undecided"]
        return request

    async def allow(self, request: StoredRequest) -> None:
        await self._book.allow(request, "once", 60)

    def folders(self) -> list[str]:
        """Of all that Codex was told."""
        return [each["params"]["cwd"] for each in self.double.requests if "cwd" in each.get("params", {})]


@asynccontextmanager
async def deciding(calls: str = "ask") -> AsyncGenerator[Deciding]:
    clock, double = FakeClock(), CodexDouble()
    store = MemoryStore(clock)
    config = Config(codex=Codex(enabled=True, calls=cast(Any, calls)))
    async with gateway(config=config, store=store, links_of={codex.NAME: cast(Any, double)}) as app:
        yield Deciding(app, double, Approvals(store, clock))


@pytest.fixture
def named(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "above" / "named").mkdir(parents=True)
    return tmp_path / "above" / "named"


def a_link(named: Path) -> None:
    named.rmdir()
    named.symlink_to(named.parents[1] / "private")


def a_link_above(named: Path) -> None:
    (named.parents[1] / "private" / "named").mkdir()
    named.parent.rename(named.parents[1] / "elsewhere")
    named.parent.symlink_to(named.parents[1] / "private")


def another_folder(named: Path) -> None:
    named.rename(named.parent / "before")
    (named.parents[1] / "private").rename(named)


def nothing(named: Path) -> None:
    named.rmdir()


REPLACED = "not the folder that was asked about"


async def test_a_folder_is_looked_at_in_a_thread_each_time(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk may not answer."""
    where: list[bool] = []
    look = codex_folder.looked_at

    def looked_at(cwd: str) -> codex_folder.Folder:
        where.append(VirtualTimeLoop.is_aside)
        return look(cwd)

    monkeypatch.setattr(codex_folder, "looked_at", looked_at)
    async with deciding() as room:
        call = room.begin(prompt="say x", cwd=str(named))
        await room.allow(await room.asked())
        assert (await call)["success"] is True
    assert len(where) >= 4 and all(where)


@pytest.mark.parametrize(
    ("swap", "refusal"),
    [
        (a_link, REPLACED),
        (a_link_above, REPLACED),
        (another_folder, REPLACED),
        (nothing, "must be a folder that exists"),
    ],
)
async def test_a_folder_that_was_replaced_while_a_person_decided_is_refused(
    swap: Callable[[Path], None], refusal: str, named: Path
) -> None:
    async with deciding() as room:
        call = room.begin(prompt="say x", cwd=str(named))
        request = await room.asked()
        assert json.loads(request.shown)["cwd"] == str(named)

        swap(named)
        await room.allow(request)

        told = await call
        assert told["success"] is False and refusal in told["error"]
        assert room.folders() == []


async def test_what_is_shown_and_sent_is_one_path_without_links(named: Path) -> None:
    link = named.parent / "link"
    link.symlink_to(named)
    async with deciding() as room:
        call = room.begin(prompt="say x", cwd=str(link))
        request = await room.asked()
        link.unlink()
        link.symlink_to(named.parents[1] / "private")
        await room.allow(request)

        assert (await call)["success"] is True
        assert json.loads(request.shown)["cwd"] == str(named) and {*room.folders()} == {str(named)}


async def test_the_folder_of_a_thread_is_shown_as_it_is_when_it_goes_on(named: Path) -> None:
    async with deciding() as room:
        call = room.begin(prompt="say x", cwd=str(named))
        await room.allow(await room.asked())
        thread = (await call)["thread_id"]
        a_link(named)

        call = room.begin(prompt="say y", thread_id=thread)
        request = await room.asked()
        await room.allow(request)

        private = str(named.parents[1] / "private")
        assert (await call)["cwd"] == json.loads(request.shown)["cwd"] == private
        assert room.folders()[-1] == private


async def test_a_decision_on_a_folder_is_none_on_another_at_its_place(named: Path) -> None:
    async with deciding() as room:
        first = room.begin(prompt="say x", cwd=str(named))
        request = await room.asked()
        first.cancel()
        await settle()
        await room.allow(request)
        another_folder(named)

        again = room.begin(prompt="say x", cwd=str(named))
        assert (await room.asked()).id != request.id
        again.cancel()
        await asyncio.gather(first, again, return_exceptions=True)
        assert room.folders() == []


async def test_a_folder_that_is_replaced_while_codex_starts_is_refused(
    named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deciding("allow") as room:
        connected = room.double.connected

        def swapped(*pipe: Any) -> None:
            a_link(named)
            connected(*pipe)

        monkeypatch.setattr(room.double, "connected", swapped)
        told = await room.begin(prompt="say x", cwd=str(named))

        assert REPLACED in told["error"] and room.folders() == []
