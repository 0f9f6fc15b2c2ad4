"""A secret in JSON inside a text, as PHP writes its slashes, by each way in which a client or code hears of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, RpcError, Scene, form, gateway
from test_questions_in_code import CONFIG, TOOLS, code, engine, returned

from toolgate.core.redaction import GONE

SECRET = "GOODsecret-9a8B7c6D5e4F/3g2H1+x"
SAID = json.dumps({"token": SECRET}).replace("/", "\\/")
LEFT = json.dumps({"token": GONE})
LARGE = "words, " * 200_000


async def tells(scene: Scene) -> str:
    return SAID


async def tells_much(scene: Scene) -> str:
    return json.dumps([LARGE, {"token": SECRET}]).replace("/", "\\/")


async def structures(scene: Scene) -> Any:
    return {"content": [], "structuredContent": {"said": SAID}}


async def notes(scene: Scene) -> str:
    scene.progress(1, message=SAID)
    scene.log("error", {"said": [SAID]})
    return "noted"


async def fails(scene: Scene) -> str:
    raise RpcError(-32000, SAID, {"why": [SAID]})


async def asks(scene: Scene) -> str:
    await scene.ask(form(f"Use {SAID}?"))
    return "asked"


DOORS = {"tells": tells, "tells_much": tells_much, "structures": structures, "fails": fails}
SERVERS = pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
REVISIONS = pytest.mark.parametrize("revision", [LATEST, MODERN])


def server(kind: Any) -> Any:
    found = kind({**DOORS, "notes": notes, "asks": asks})
    found.settings["env"] = {"API_KEY": SECRET}
    return found


def is_told(message: Any) -> bool:
    return "3g2H1" in json.dumps(message)


@SERVERS
@REVISIONS
@pytest.mark.parametrize("tool", DOORS)
async def test_no_answer_has_it(kind: Any, revision: str, tool: str) -> None:
    async with gateway(there=server(kind)) as rig:
        reply = await (await rig.client(revision)).call(f"there__{tool}")
        assert GONE in json.dumps(reply.message) and not is_told(reply.message)


@SERVERS
@REVISIONS
async def test_no_note_and_no_question_has_it(kind: Any, revision: str) -> None:
    async with gateway(there=server(kind)) as rig:
        client = await rig.client(revision)
        meta: dict[str, Any] = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
        reply = await client.call("there__notes", meta=meta if revision == MODERN else {"progressToken": "p"})
        (told,) = reply.notes("notifications/progress")
        assert told["message"] == LEFT
        (told,) = reply.notes("notifications/message")
        assert told["data"] == {"said": [LEFT]}
        asked = list[Any]()

        def answer(params: Any) -> Any:
            asked.append(params)
            return {"action": "decline"}

        await client.converse("tools/call", {"elicitation/create": answer}, name="there__asks", arguments={})
        assert GONE in json.dumps(asked) and not is_told(asked)


@SERVERS
async def test_a_control_tool_that_reads_json_in_a_text_finds_none(kind: Any) -> None:
    async with gateway(there=server(kind)) as rig:
        client = await rig.client(LATEST, path="/mcp/all")
        for tool in DOORS:
            given = {"server_name": "there", "tool_name": tool, "arguments": {}}
            reply = await client.call("call_tool", arguments=given)
            assert GONE in json.dumps(reply.message) and not is_told(reply.message)


@SERVERS
@pytest.mark.parametrize("language", TOOLS)
async def test_code_that_is_given_json_in_a_text_as_a_value_has_none(kind: Any, language: str) -> None:
    scripted, engines = engine("tells", "tells_much", "structures")
    async with gateway(config=CONFIG, engines=engines, there=server(kind)) as rig:
        told = returned(await (await rig.client(LATEST)).converse("tools/call", {}, **code(language)))
        given = [process.got for process in scripted.processes if hasattr(process, "got")]
        assert len(told) == 3 and GONE in json.dumps(given) and not is_told(given) and not is_told(told)
