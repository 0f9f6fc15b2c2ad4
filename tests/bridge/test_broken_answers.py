"""An answer that is no JSON: its call fails at once where it can be told whose answer it is, and nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

BROKEN = {
    "no escape": rb'{"content":[{"type":"text","text":"\q"}]}',
    "control character": b'{"content":[{"type":"text","text":"\x01"}]}',
    "no UTF-8": b'{"content":[{"type":"text","text":"\xff"}]}',
    "no number": b'{"content":[],"structuredContent":{"x":NaN}}',
    "a comma": b'{"content":[{"type":"text","text":"a"},]}',
    "too deep": b'{"content":[],"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "half a message": b'{"content":[{"type":"text","text":"a',
}
LISTED = tools("act") | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def start(visitor: Visitor) -> Any:
    call = visitor.request("tools/call", name="there__act", arguments={})
    return visitor.begin("POST", json.dumps(call).encode())


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_broken_answer_fails_its_call_at_once_and_no_other(revision: str, body: bytes) -> None:
    there = Scripted(revision, tools_list=LISTED, tools_call=...)
    async with gateway(scripts={"there": there}) as app:
        other = start(Visitor(app))
        await settle()
        waiting = there.requests[-1]["id"]
        there.answers["tools/call"] = body
        broken = await start(Visitor(app)).response()
        assert broken.error["data"]["code"] == "UPSTREAM_ERROR" and "cannot be read" in broken.error["message"]
        assert broken.error["data"]["outcome"] == "executed"
        assert not other.work.done()
        there._answer(waiting, said("fine") | {"resultType": "complete"})
        assert (await other.response()).result["content"] == said("fine")["content"]


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_broken_handshake_or_list_is_not_waited_for_either(method: str) -> None:
    there = Scripted(tools_list=LISTED)
    there.answers[method] = rb'{"x":"\q"}'
    async with gateway(scripts={"there": there}) as app:
        response = await Visitor(app).ask("tools/call", name="there__act")
        assert "cannot be read" in response.error["message"]


async def test_a_broken_question_with_the_number_of_a_call_does_not_fail_that_call() -> None:
    there = Scripted(tools_list=LISTED, tools_call=...)
    async with gateway(scripts={"there": there}) as app:
        call = start(Visitor(app))
        await settle()
        id = there.requests[-1]["id"]
        there.say(rb'{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"\q"}}' % id)
        await settle()
        assert not call.work.done()
        there.answer_last(said("fine"))
        assert (await call.response()).result["content"] == said("fine")["content"]
