"""A server has its question answered by a client's model, and asks for the context of other servers with it: behind a
gateway each of them is of "this server" to the client."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, gateway, sampling

from toolgate.core import jsonrpc, mcp
from toolgate.core.asks import relayed_capabilities
from toolgate.core.model import Ask
from toolgate.eras.questions import write_question


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("wanted", ["allServers", "thisServer", "none", 5])
async def test_no_server_gets_the_context_of_others(revision: str, kind: Any, wanted: Any, path: str) -> None:
    async def asks(scene: Scene) -> str:
        method, params = sampling()
        return (await scene.ask((method, {**params, "includeContext": wanted})))["content"]["text"]

    heard: list[Any] = []

    def answered(params: Any) -> Any:
        heard.append(params)
        return {"role": "assistant", "content": {"type": "text", "text": "said"}, "model": "m"}

    async with gateway(there=kind({"asks": asks})) as rig:
        client = await rig.client(revision, path=path)
        name = "asks" if path.endswith("there") else "there__asks"
        reply = await client.converse("tools/call", {"sampling/createMessage": answered}, name=name)
        assert reply.text == "said"
        assert heard and all("includeContext" not in each for each in heard)


@pytest.mark.parametrize("name", ["includeContext", "IncludeContext", "include_context", "INCLUDECONTEXT"])
@pytest.mark.parametrize("revision", mcp.REVISIONS.values(), ids=list(mcp.REVISIONS))
def test_no_spelling_of_it_goes_on(name: str, revision: mcp.Revision) -> None:
    params = {"messages": [], "maxTokens": 1, name: "allServers", "x-more": 1}
    written = write_question(Ask("a", "sampling/createMessage", Raw(jsonrpc.encode(params))), revision)
    assert name not in written and written["x-more"] == Raw(b"1")


def test_no_server_is_told_that_it_could_be_had() -> None:
    told = relayed_capabilities({"sampling": {"context": {}, "tools": {}}})
    assert told == {"sampling": {"tools": {}}}
