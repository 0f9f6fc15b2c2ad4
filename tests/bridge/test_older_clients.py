"""What a client's revision does not know never reaches it, whole conversations through."""

from __future__ import annotations

from typing import Any

import pytest
from peers import EVERYTHING, LATEST, MODERN, LegacyServer, ModernServer, Scene, form, gateway, link, sampling

SEVERAL = {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}}


async def colours(scene: Scene) -> Any:
    question = form()
    question[1]["requestedSchema"] = {"type": "object", "properties": {"like": SEVERAL}}
    answer = await scene.ask(question)
    return " ".join(answer["content"]["like"]) if answer["action"] == "accept" else answer["action"]


@pytest.mark.promise("b.rulings.13-members", "spec.legacy.messages.schema")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_one_of_several_choices_is_what_an_older_client_is_asked_for(server: Any) -> None:
    async with gateway(there=server({"colours": colours})) as rig:
        old = await rig.legacy("2025-06-18")
        accepted = {"action": "accept", "content": {"like": "g"}}
        reply = await old.converse("tools/call", {"elicitation/create": accepted}, name="there__colours")
        shown = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
        assert old.asked[0]["params"]["requestedSchema"]["properties"] == {"like": shown}
        assert reply.text == "g"

        new = await rig.legacy(LATEST)
        accepted = {"action": "accept", "content": {"like": ["g", "r"]}}
        reply = await new.converse("tools/call", {"elicitation/create": accepted}, name="there__colours")
        assert new.asked[0]["params"]["requestedSchema"]["properties"] == {"like": SEVERAL}
        assert reply.text == "g r"


@pytest.mark.promise("spec.2026.mrtr.declared", "spec.legacy.elicitation.decline")
@pytest.mark.parametrize(
    "revision, question", [("2024-11-05", form()), ("2025-03-26", form()), ("2025-03-26", link())], ids=str
)
async def test_what_a_revision_does_not_have_is_not_asked_whatever_its_client_declares(
    revision: str, question: Any
) -> None:
    async def asks(scene: Scene) -> str:
        return (await scene.ask(question))["action"]

    async with gateway(there=LegacyServer({"asks": asks})) as rig:
        client = await rig.legacy(revision, capabilities=EVERYTHING)
        reply = await client.call("there__asks")
        assert "did not declare the capability elicitation" in reply.error["message"]
        assert not client.asked


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_conversation_of_several_blocks_reaches_an_older_client_as_several_messages(server: Any) -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    async def samples(scene: Scene) -> str:
        question = sampling(messages=[{"role": "user", "content": blocks}])
        return (await scene.ask(question))["content"]["text"]

    async with gateway(there=server({"samples": samples})) as rig:
        client = await rig.legacy("2025-03-26")
        said = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "scripted"}
        reply = await client.converse("tools/call", {"sampling/createMessage": said}, name="there__samples")
        assert [each["content"] for each in client.asked[0]["params"]["messages"]] == blocks
        assert reply.text == "hello"


@pytest.mark.promise("b.rulings.13-members", "spec.legacy.messages.schema")
@pytest.mark.parametrize("path, prefix", [("/mcp", "there__"), ("/mcp/servers/there", "")])
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", LATEST, MODERN])
async def test_a_tool_of_the_newest_kind_is_listed_for_everybody(revision: str, path: str, prefix: str) -> None:
    schema = {"type": "object", "properties": {"any": True}}
    server = ModernServer({"new": colours})
    server.lists["tools/list"][1][0] |= {"inputSchema": schema, "outputSchema": {"type": "array"}, "title": "New"}
    async with gateway(there=server) as rig:
        [tool] = (await (await rig.client(revision, path=path)).request("tools/list")).result["tools"]
        assert (tool["name"], tool["title"]) == (prefix + "new", "New")
        assert ("outputSchema" in tool) == (revision == MODERN)
        assert tool["inputSchema"]["properties"]["any"] == (True if revision == MODERN else {})
