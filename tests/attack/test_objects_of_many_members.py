"""What is parted into its members, which is done in Python for each, has 1,000 of them at most: results, tasks,
parameters and `_meta`. They are counted where it comes in."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Json, Scripted, Visitor, gateway, tools
from peers import Scene
from peers import gateway as rigged
from task_peers import WITH_EXTENSION, LegacyTaskServer, ModernTaskServer, Task
from virtualtime import settle

from toolgate.core import jsonrpc, mcp, outline
from toolgate.eras import calls

OLDEST = "2024-11-05"
MOST = jsonrpc.MOST_MEMBERS
MODERN_METHODS = ("tools/call", "prompts/get", "tools/list")
MANY = "its result has more than 1,000 members"
WAYS: dict[str, tuple[str, Json, Json]] = {
    "a call": ("tools/call", {"name": "there__act", "arguments": {}}, {"content": []}),
    "a control tool": (
        "tools/call",
        {"name": "mcp_call", "arguments": {"server": "there", "tool": "act"}},
        {"content": []},
    ),
    "a prompt": ("prompts/get", {"name": "there__p"}, {"messages": []}),
    "a resource": ("resources/read", {"uri": "x://a"}, {"contents": []}),
    "a completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "there__p"}, "argument": {"name": "a", "value": ""}},
        {"completion": {"values": []}},
    ),
}


def members(count: int, length: int = 0) -> Json:
    return {f"{number:06d}{'y' * length}": 0 for number in range(count)}


def script(spoken: str, **result: Any) -> Scripted:
    complete: Json = {"resultType": "complete"} if spoken == MODERN else {}
    listed = complete | ({"ttlMs": 0, "cacheScope": "private"} if complete else {})
    answers: Json = {
        "tools_list": tools("act") | listed,
        "resources_list": {"resources": [{"uri": "x://a", "name": "a"}]} | listed,
        "prompts_list": {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]} | listed,
        "tools_call": {"content": []} | complete | result,
        "resources_read": {"contents": []} | listed | result,
        "prompts_get": {"messages": []} | complete | result,
        "completion_complete": {"completion": {"values": []}} | complete | result,
    }
    return Scripted(spoken, **answers)


async def asked(app: Any, revision: str, method: str, params: Json) -> Json:
    visitor = Visitor(app)
    if revision == MODERN:
        return (await visitor.ask_modern(method, **params)).last
    await visitor.initialize(revision)
    return (await visitor.ask(method, **params)).last


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spoken", [LATEST, MODERN])
@pytest.mark.parametrize("revision", [OLDEST, LATEST, MODERN])
@pytest.mark.parametrize(
    ("count", "length"),
    [(MOST + 1, 0), (20_000, 0), (70_000, 8), (99_000, 14), (150_000, 0)],
    ids=["few", "plain", "large", "file", "beyond all values"],
)
async def test_a_result_of_many_members_is_refused_as_it_comes_in(
    way: str, spoken: str, revision: str, count: int, length: int
) -> None:
    method, params, _ = WAYS[way]
    async with gateway(scripts={"there": script(spoken, **members(count, length))}) as app:
        await Visitor(app).ask("tools/list")
        told = await asked(app, revision, method, params)
        assert MANY in str(told) and len(str(told)) < 2_000


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spoken", [LATEST, MODERN])
@pytest.mark.parametrize("length", [0, 1_200])
async def test_one_of_as_many_as_may_be_is_passed_on(way: str, spoken: str, length: int) -> None:
    method, params, _ = WAYS[way]
    few = members(MOST - 5, length)
    async with gateway(scripts={"there": script(spoken, **few)}) as app:
        await Visitor(app).ask("tools/list")
        told = await asked(app, LATEST, method, params)
        assert "error" not in told and MANY not in str(told)
        assert way == "a control tool" or few.items() <= told["result"].items()


async def test_what_is_not_parted_may_have_as_many_as_before() -> None:
    structured = members(20_000)
    async with gateway(scripts={"there": script(LATEST, structuredContent=structured)}) as app:
        await Visitor(app).ask("tools/list")
        arguments = members(20_000)
        told = await asked(app, LATEST, "tools/call", {"name": "there__act", "arguments": arguments})
        assert told["result"]["structuredContent"] == structured


@pytest.mark.parametrize(
    ("revision", "method"),
    [(LATEST, "tools/call"), (LATEST, "prompts/get"), *((MODERN, each) for each in MODERN_METHODS)],
)
@pytest.mark.parametrize("place", ["params", "_meta"])
async def test_parameters_of_many_members_are_refused_before_any_is_looked_at(
    place: str, method: str, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[str] = []
    fold = calls.folded
    server = script(LATEST)
    async with gateway(scripts={"there": server}) as app:
        await Visitor(app).ask("tools/list")
        monkeypatch.setattr(calls, "folded", lambda name: (folded.append(name), fold(name))[1])
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize(revision)
        written = (visitor.request if revision == LATEST else visitor.modern_request)(method, name="there__act")
        params = written["params"]
        many = {number + "\N{KELVIN SIGN}" * 54: 1 for number in members(2_000)}
        params.update(many if place == "params" else {"_meta": params.get("_meta", {}) | many})
        headers = (
            {"Mcp-Method": method, "MCP-Protocol-Version": MODERN, "Mcp-Name": "there__act"}
            if revision == MODERN
            else {}
        )
        error = (await visitor.post(written, headers=headers)).last["error"]
        assert error["code"] == jsonrpc.INVALID_PARAMS
        assert f"{place} has " in error["message"] and "the limit is 1,000" in error["message"]
        assert len(folded) < MOST


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_meta_of_megabytes_is_refused_before_it_is_parted(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parted: list[str] = []
    read = calls.read_members
    async with gateway(scripts={"there": script(LATEST)}) as app:
        visitor = Visitor(app)
        await visitor.ask("tools/list")
        if revision == LATEST:
            await visitor.initialize(revision)
        written = (visitor.request if revision == LATEST else visitor.modern_request)("tools/call", name="there__act")
        params = written["params"]
        params.update(_meta={**params.get("_meta", {}), "x": "\N{KELVIN SIGN}" * calls.LONGEST_META})
        headers = {"Mcp-Method": "tools/call", "MCP-Protocol-Version": MODERN, "Mcp-Name": "there__act"}
        monkeypatch.setattr(calls, "read_members", lambda raw, what: (parted.append(what), read(raw, what))[1])
        error = (await visitor.post(written, headers=headers if revision == MODERN else {})).last["error"]
        assert (error["code"], error["data"]["outcome"]) == (jsonrpc.INVALID_PARAMS, "not_sent")
        assert "_meta has " in error["message"] and "the limit is 1,048,576" in error["message"]
        assert "_meta" not in parted


class Filled(LegacyTaskServer):
    """Its tasks have so many members beside those that are known."""

    more: Json = {}

    def shown(self, task: Task) -> Json:
        return super().shown(task) | self.more


@pytest.mark.parametrize("count", [MOST + 1, 99_000])
async def test_a_task_of_many_members_is_refused_and_so_is_its_result(count: int) -> None:
    many = members(count)

    async def act(scene: Scene) -> Json:
        return {"content": [], **many}

    server = Filled({"act": act}, support={"act": "optional"})
    async with rigged(there=server) as rig:
        client = await rig.legacy(LATEST)
        id = (await client.call("there__act", task={"ttl": 3_600_000})).result["task"]["taskId"]
        await settle()
        assert len((await client.request("tasks/list")).result["tasks"]) == 1
        assert MANY in (await client.request("tasks/result", taskId=id)).error["message"]
        server.more = many
        assert MANY in (await client.request("tasks/get", taskId=id)).error["message"]
        assert MANY in str(shown := (await client.request("tasks/list")).result)  # as why it is not known
        assert len(str(shown)) < 2_000


@pytest.mark.parametrize("count", [MOST + 1, 99_000])
async def test_nor_may_the_result_within_a_task_have_as_many(count: int) -> None:
    async def act(scene: Scene) -> Json:
        return {"content": [], **members(count)}

    async with rigged(there=ModernTaskServer({"act": act}, as_tasks=("act",))) as rig:
        client = rig.modern("ann", capabilities=WITH_EXTENSION)
        id = (await client.call("there__act")).result["taskId"]
        await settle()
        assert MANY in (await client.request("tasks/get", taskId=id)).error["message"]


FILLINGS = {"short": 0, "long": [7] * 3, "nested": {"a": {"b": [{}, {"c": 1}]}}, "texts": 'x" , : {' * 40, "empty": {}}


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("count", [0, 1, MOST, MOST + 1, 5_000])
@pytest.mark.parametrize("piece", [256, outline.PIECE])
def test_they_are_counted_as_an_answer_is_read(
    piece: int, count: int, filling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outline, "PIECE", piece)
    result = dict.fromkeys(members(count), FILLINGS[filling])
    written = json.dumps({"jsonrpc": "2.0", "id": 7, "result": result, "more": members(2_000)}).encode()
    reading = jsonrpc.decoding(written, mcp.OF_RESULTS)
    if count <= MOST:
        found, _ = ran(reading)
        assert json.loads(bytes(found.result)) == result
        return
    with pytest.raises(jsonrpc.Malformed, match="more than 1,000 members") as refused:
        ran(reading)
    assert refused.value.is_answer and refused.value.id == b"7" and refused.value.only == "result"


def ran(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
