"""Clauses of revision 2026-07-28 that no other conversation holds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from inmemory import GREETER, MODERN, Refusal, Scripted, Visitor, tools
from inmemory import gateway as seen
from official import LEGACY
from peers import LegacyServer, ModernServer, RpcError, Scene, gateway
from virtualtime import settle

BOTH = pytest.mark.parametrize("server", [LegacyServer, ModernServer])


@pytest.mark.promise("spec.2026.capabilities.required")
async def test_a_server_that_lacks_a_capability_of_its_client_names_it() -> None:
    needed = {"requiredCapabilities": {"sampling": {}}}

    async def refuses(scene: Scene) -> str:
        raise RpcError(-32021, "Sampling is needed", needed)

    async with gateway(new=ModernServer({"t": refuses})) as rig:
        reply = await rig.modern(capabilities={}).call("new__t")
        assert (reply.status, reply.error["code"], reply.error["data"]) == (400, -32021, needed)


@pytest.mark.promise("spec.2026.versions.era-kept")
@BOTH
async def test_the_era_of_a_server_is_asked_for_once(server: Any) -> None:
    async def t(scene: Scene) -> str:
        return "ok"

    there = server({"t": t})
    async with gateway(there=there) as rig:
        for _ in range(3):
            await rig.modern().call("there__t")
        asked = [len(there.requests(method)) for method in ("initialize", "server/discover")]
        assert len(there.connections) == 1 and max(asked) == 1


@pytest.mark.promise("spec.2026.versions.mismatch-up")
async def test_a_modern_server_of_another_revision_is_told_with_both_versions() -> None:
    script = Scripted(tools_list=tools("t"))
    for method in ("initialize", "server/discover"):
        script.answers[method] = Refusal(-32022, "Unsupported version", {"supported": ["2031-01-01"]})
    async with seen(scripts={"docs": script}) as app:
        error = (await Visitor(app).ask("tools/list")).error
        assert "2031-01-01" in error["message"] and MODERN in error["message"]
        assert len(script.requests) == 1


@pytest.mark.promise("spec.2026.sse.buffering", "spec.2026.sse.related")
async def test_a_stream_is_not_buffered_and_ends_with_the_response() -> None:
    async with seen(GREETER) as app:
        meta = Visitor(app).modern_request("x")["params"]["_meta"] | {"progressToken": 7}
        response = await Visitor(app).ask_modern("tools/call", name="greeter__count", _meta=meta)
        assert response.is_stream and response.headers["x-accel-buffering"] == "no"
        *notes, last = response.messages
        assert notes and all(note["params"]["progressToken"] == 7 for note in notes)
        assert last["result"]["resultType"] == "complete"


@pytest.mark.promise("spec.2026.cancel.late")
@BOTH
async def test_an_answer_to_a_cancelled_request_reaches_nobody(server: Any) -> None:
    go_on = asyncio.Event()

    async def slow(scene: Scene) -> str:
        await go_on.wait()
        return "too late"

    async def quick(scene: Scene) -> str:
        return "quick"

    there = server({"slow": slow, "quick": quick}, ignores_cancellation=True)
    async with gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__slow")
        await there.got("tools/call")
        await call.gone()
        go_on.set()
        await settle()
        assert not call.is_answered
        assert (await client.call("there__quick")).text == "quick"


@pytest.mark.promise("spec.2026.progress.increases")
@BOTH
@pytest.mark.parametrize("revision", [LEGACY[-1], MODERN])
async def test_progress_never_goes_back(server: Any, revision: str) -> None:
    async def wavers(scene: Scene) -> str:
        for progress in (1, 2, 2, 1.5, 3):
            scene.progress(progress)
        return "ok"

    async with gateway(there=server({"wavers": wavers})) as rig:
        reply = await (await rig.client(revision)).call("there__wavers", meta={"progressToken": "p"})
        assert [note["progress"] for note in reply.notes("notifications/progress")] == [1, 2, 3]


@pytest.mark.promise("spec.2026.caching.hints")
async def test_discovery_says_how_long_it_holds() -> None:
    async with seen() as app:
        result = (await Visitor(app).ask_modern("server/discover")).result
        assert result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private")


@pytest.mark.promise("spec.2026.tools.same-list")
async def test_a_list_depends_neither_on_the_connection_nor_on_what_was_asked_before() -> None:
    scripts = {name: Scripted(tools_list=tools("a", "b")) for name in ("one", "two")}
    async with seen(GREETER, scripts=scripts) as app:
        first = (await Visitor(app).ask_modern("tools/list")).result["tools"]
        visitor = Visitor(app)
        await visitor.ask_modern("tools/call", name="greeter__greet", arguments={"name": "Ada"})
        await visitor.ask_modern("resources/list")
        assert (await visitor.ask_modern("tools/list")).result["tools"] == first
        assert (await Visitor(app, "/mcp/aggregate").ask_modern("tools/list")).result["tools"] == first


@pytest.mark.promise("spec.2026.http.invalid-status")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "application/json, text/event-stream"])
async def test_an_early_error_keeps_its_status_whatever_is_accepted(accept: str) -> None:
    async with seen(GREETER) as app:
        response = await Visitor(app, accept=accept).ask_modern("tools/call", name="greeter__nope")
        assert (response.status, response.is_stream) == (400, False)
        assert json.loads(response.body)["error"]["code"] == -32602
