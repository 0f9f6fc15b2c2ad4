"""A log line on the stream of one request is for the client of that request, whoever else calls meanwhile."""

from __future__ import annotations

import json
from typing import Any

from inmemory import Scripted, Visitor, gateway, said, tools
from virtualtime import settle


async def test_with_calls_of_several_clients_each_hears_what_its_own_stream_has() -> None:
    script = Scripted(tools_list=tools("act"), tools_call=...)
    async with gateway(scripts={"there": script}) as app:
        begun: list[Any] = []
        for _ in range(2):
            visitor = Visitor(app)
            await visitor.initialize()
            begun.append(visitor.begin("POST", json.dumps(visitor.request("tools/call", name="there__act")).encode()))
            await settle()
        ids = [each["id"] for each in script.requests if each["method"] == "tools/call"]
        assert len(ids) == 2
        (session,) = vars(app.gateway.snapshot.upstreams["there"])["_sessions"].values()

        def log(said: str, origin: int | None) -> None:
            params = {"level": "error", "data": said}
            line = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
            session.live.requests.received(json.dumps(line).encode(), origin)

        log("for one", ids[0])
        log("for two", ids[1])
        log("for nobody", None)
        log("for none of these", ids[1] + 100)
        for id in ids:
            script.say(json.dumps({"jsonrpc": "2.0", "id": id, "result": said("done")}).encode())
        heard = [
            [note["params"]["data"] for note in (await each.response()).messages if "method" in note] for each in begun
        ]
        assert heard == [["for one"], ["for two"]]
