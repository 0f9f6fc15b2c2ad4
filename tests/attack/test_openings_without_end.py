"""What a server says of itself when it is opened: told to each client that lists or comes, so it is bounded first."""

from __future__ import annotations

from typing import Any

import pytest
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, tools

from toolgate.config import Server
from toolgate.core import fault
from toolgate.core.fault import Fault
from toolgate.core.model import Client
from toolgate.upstreams.mcp import opening

MANY = "instr uction " * 100_000  # more than a million characters
ERAS = pytest.mark.parametrize("revision", [LATEST, MODERN])


def opens_by(revision: str, **said: Any) -> Scripted:
    script = Scripted(revision, tools_list=tools("t"))
    script.answers["initialize" if revision == LATEST else "server/discover"].update(said)
    return script


async def sizes(script: Scripted) -> dict[str, int]:
    """How much each of these tells a client, at /mcp; a healthy server stands beside."""
    async with gateway(scripts={"bad": script, "good": Scripted(tools_list=tools("u"))}) as app:
        visitor = Visitor(app)
        told = {"initialize": await visitor.initialize()}
        told |= {method: await visitor.ask(method) for method in ("tools/list",)}
        told["again"] = await Visitor(app).initialize()
        told["discover"] = await Visitor(app).ask_modern("server/discover")
        status = app.gateway.snapshot.upstreams["bad"].status()
        kept = {"status": len(status.error or "") + len(status.hint or "")}
        return {name: len(response.body) for name, response in told.items()} | kept


@pytest.mark.promise("b.attacks.openings")
async def test_a_revision_without_end_is_in_no_list() -> None:
    assert max((await sizes(opens_by(LATEST, protocolVersion=MANY[:500_000]))).values()) < 8 * 1024


async def test_nor_revisions_of_the_other_era() -> None:
    assert max((await sizes(opens_by(MODERN, supportedVersions=[MANY[:500_000]] * 2))).values()) < 8 * 1024


@ERAS
async def test_instructions_are_cut(revision: str) -> None:
    found = await sizes(opens_by(revision, instructions=MANY[:900_000]))
    assert opening.LONGEST_INSTRUCTIONS <= max(found.values()) < 2 * opening.LONGEST_INSTRUCTIONS


@ERAS
@pytest.mark.parametrize(
    "said", [{"instructions": MANY}, {"serverInfo": {"name": MANY}}, {"capabilities": {"tools": {}, "x": {"y": MANY}}}]
)
async def test_who_says_more_than_a_megabyte_is_not_opened(revision: str, said: Any) -> None:
    assert max((await sizes(opens_by(revision, **said))).values()) < 8 * 1024


@ERAS
@pytest.mark.parametrize("name", ["experimental", "extensions"])
async def test_who_says_what_takes_much_more_to_keep_than_to_send_is_not_opened(revision: str, name: str) -> None:
    script = opens_by(revision, capabilities={"tools": {}, name: {"a": [{"b": [{}]}] * 700}})
    async with gateway(scripts={"bad": script}) as app:
        listed = await Visitor(app).ask_modern("tools/list")
    assert b"more than 2,000 JSON values, which is the limit" in listed.body


@ERAS
async def test_instructions_of_usual_length_are_told_whole(revision: str) -> None:
    async with gateway(scripts={"one": opens_by(revision, instructions="Do. " * 4096)}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        assert "Do. " * 4096 in (await Visitor(app).initialize()).result["instructions"]


@ERAS
async def test_of_capabilities_only_as_much_is_kept_as_any_real_ones_take(revision: str) -> None:
    capabilities = {"experimental": {"x": {"y": "\U0001f600" + MANY[:900_000]}}, "tools": {}, "logging": {}}
    async with gateway(scripts={"bad": opens_by(revision, capabilities=capabilities)}) as app:
        assert b"bad__t" in (await Visitor(app).ask("tools/list")).body
        known = await app.gateway.snapshot.upstreams["bad"].about(Client())
    assert known.capabilities == {"tools": {}, "logging": {}}


async def test_long_words_of_a_server_are_not_kept_for_each_session_that_it_is_not_up_for() -> None:
    there = Server(id="there", name="there", type="stdio", command="memory", scope="session")
    for instructions, is_kept in (("Do. " * 4096, False), ("Do.", True)):
        script = opens_by(LATEST, instructions=instructions)
        async with gateway(there, scripts={"there": script}) as app:
            visitor = Visitor(app)
            await visitor.initialize()
            await visitor.ask("tools/list")
            upstream: Any = app.gateway.snapshot.upstreams["there"]
            [session] = upstream._sessions.values()
            assert session.about.instructions == instructions
            await upstream.stop()
            assert (session.about is not None) is is_kept
            assert b"there__t" in (await visitor.ask("tools/list")).body


def test_whatever_a_fault_quotes_it_is_bounded() -> None:
    said = Fault("SERVER_FAILED", f"it said {MANY}", hint=MANY)
    for text in (said.message, said.hint, str(said)):
        assert fault.LONGEST <= len(text) < fault.LONGEST + 100
