"""An HTTP server without sessions may be another program from one request to the next: what it speaks is found anew."""

from __future__ import annotations

import json

import pytest
from processes.ground import failure, gateway, real, settings, until
from processes.scripted_http import Request, ScriptedServer, serving

from toolgate.upstreams.mcp import revision_check

REFUSED = "no request of this revision"
ODD = "400 Bad Request"


class Deployed(ScriptedServer):
    """Of one revision at a time: it refuses what is of another, by HTTP. `refuses` are methods that it refuses in its
    own."""

    def __init__(self, modern: bool, refuses: tuple[str, ...] = ()) -> None:
        super().__init__(self._answer, modern=modern)
        self.refuses = refuses

    async def _answer(self, request: Request) -> None:
        request.whole(request.answer("modern" if self._modern else "legacy"))

    def becomes(self, modern: bool) -> None:
        self._modern = modern

    def asked(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)

    async def _respond(self, request: Request) -> None:
        is_modern = request.headers.get("mcp-protocol-version") == "2026-07-28"
        is_refused = request.method in self.refuses or (is_modern != self._modern and "id" in request.message)
        if is_refused and (self._modern or request.method != "initialize"):
            error = {"code": -32600, "message": REFUSED}
            request.whole(json.dumps({"jsonrpc": "2.0", "id": request.id, "error": error}).encode(), ODD)
        else:
            await super()._respond(request)


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("modern", [True, False])
@real
async def test_one_that_speaks_another_revision_is_spoken_to_in_that_after_one_refusal(modern: bool, era: str) -> None:
    async with serving(Deployed(modern)) as there, gateway(settings(one={"url": url(there)})) as served:
        client = served.client(era)
        before, after = ("modern", "legacy") if modern else ("legacy", "modern")
        assert await client.call("one__act") == before
        there.becomes(not modern)
        assert REFUSED in (await failure(client.call("one__act"))).message
        await until(lambda: served.status("one").state == "failed")
        assert await client.call("one__act") == after


@real
async def test_one_that_refuses_pings_as_well_is_opened_once_more_and_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision_check, "BETWEEN", 0.0)
    refusing = Deployed(False, ("ping", "tools/call"))
    async with serving(refusing) as there, gateway(settings(one={"url": url(there)})) as served:
        client = served.client()
        assert REFUSED in (await failure(client.call("one__act"))).message
        await until(lambda: served.status("one").state == "failed")
        for _ in range(3):
            assert REFUSED in (await failure(client.call("one__act"))).message
        assert (there.asked("ping"), there.asked("initialize")) == (1, 2)


@real
async def test_one_that_refuses_what_is_in_a_request_stays_as_it_is() -> None:
    async with serving(Deployed(False, ("tools/call",))) as there, gateway(settings(one={"url": url(there)})) as served:
        for _ in range(3):
            assert REFUSED in (await failure(served.client().call("one__act"))).message
        await until(lambda: there.asked("ping"))
        assert (there.asked("ping"), there.asked("initialize")) == (1, 1)


def url(server: ScriptedServer) -> str:
    return f"http://127.0.0.1:{server.port}/mcp"
