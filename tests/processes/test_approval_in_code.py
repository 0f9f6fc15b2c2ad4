"""A call of running code that a person has to approve: the code waits, in a process of its own, and goes on with the
answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from processes.ground import (
    LEGACY,
    MODERN,
    STREAM,
    Client,
    Json,
    child,
    gateway,
    read_events,
    real,
    settings,
    shut,
    until,
)

from toolgate.config import access
from toolgate.core.clock import SystemClock
from toolgate.core.model import Call
from toolgate.core.redaction import Redactor
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import Approvals
from toolgate.policy.validate import Validate
from toolgate.state.memory import MemoryStore

ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])
LANGUAGES = pytest.mark.parametrize("language", ["javascript", "python"])
DECISIONS = pytest.mark.parametrize("decision", ["once", "deny"])

CODE = {
    "javascript": """
        console.log('before');
        let said;
        try { said = await servers.one.echo({ say: 'hello' }) } catch (error) { said = error.code }
        return [said, 6 * 7];
    """,
    "python": """
print("before")
try:
    said = servers.one.echo(say="hello")
except ToolError as error:
    said = error.code
[said, 6 * 7]
""",
}
TOLD = {"once": ["hello", 42], "deny": ["APPROVAL_DENIED", 42]}


class Desk:
    """Where calls of `one` wait for a person, who is of this kind."""

    def __init__(self, by: Any) -> None:
        clock = SystemClock()
        self.store = MemoryStore(clock)
        self.book = Approvals(self.store, clock)
        asked = access.Approvals(by=(by,), wait=60.0)
        self.rule = Approval(_verdict, self.book, asked, Redactor(), clock, {}, [Validate().check])

    @property
    def serving(self) -> Any:
        return gateway(settings(one=child("noisy")), policies=[self.rule], store=self.store)


def _verdict(call: Call) -> access.Verdict:
    return "ask" if call.server == "one" else "allow"


def asked_for(language: str) -> Json:
    return {"name": "execute_code", "arguments": {"code": CODE[language], "language": language}}


def came(result: Json) -> Any:
    told = json.loads(result["content"][0]["text"])
    assert told["success"] and told["stdout"] == "before", told
    return json.loads(told["result"])


async def conversed(client: Client, params: Json, decision: str) -> Json:
    """The result of a call whose client's user decides so."""
    answer = {"action": "accept", "content": {"decision": decision}}
    if client.era == MODERN:
        client.capabilities = {"elicitation": {"form": {}}}
        asked = await client.ask("tools/call", params)
        [(key, question)] = asked["inputRequests"].items()
        assert '- Server: "one"' in question["params"]["message"]
        again = {"requestState": asked["requestState"], "inputResponses": {key: answer}}
        return await client.ask("tools/call", params | again)
    reader, writer = await client.start("tools/call", params, STREAM)
    try:
        async for message in read_events(reader):
            if "result" in message:
                return message["result"]
            if message.get("method") == "elicitation/create":
                await client.reply(message["id"], answer)
    finally:
        await shut(writer)
    raise AssertionError("the stream ended without a result")


@DECISIONS
@LANGUAGES
@ERAS
@real
async def test_code_goes_on_with_what_the_clients_user_decides(era: str, language: str, decision: str) -> None:
    async with Desk("client").serving as served:
        client = served.client(era)
        if era == LEGACY:
            await client.open(elicitation={})
        assert came(await conversed(client, asked_for(language), decision)) == TOLD[decision]


@DECISIONS
@LANGUAGES
@ERAS
@real
async def test_code_goes_on_with_what_an_operator_decides(era: str, language: str, decision: str) -> None:
    desk = Desk("operator")
    async with desk.serving as served:
        client = served.client(era)
        if era == LEGACY:
            await client.open()
        call = asyncio.ensure_future(client.ask("tools/call", asked_for(language)))
        await until(desk.book.requests)
        [request] = desk.book.requests()
        assert not call.done()
        if decision == "deny":
            await desk.book.deny(request, 600.0)
        else:
            await desk.book.allow(request, "once", 600.0)
        assert came(await call) == TOLD[decision]
