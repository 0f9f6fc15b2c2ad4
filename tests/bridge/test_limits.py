"""Limits and validation in front of servers and clients of every revision."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, form, gateway, named
from virtualtime import FakeClock

from toolgate.auth.access import Access
from toolgate.config import Config, Limits, Server
from toolgate.core.model import Client, Principal
from toolgate.core.redaction import Redactor
from toolgate.policy import chain
from toolgate.policy.approvals import Approvals
from toolgate.policy.limits import Meters
from toolgate.policy.overflow import LEAST, OverflowStore, at_once
from toolgate.policy.truncate import META_KEY
from toolgate.state.audit import nowhere
from toolgate.state.memory import MemoryStore

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]
ANN = Client(Principal("ann"), path="/mcp")
LOG = "".join(f"line {number}\n" for number in range(1, 1001))
ROWS = {"rows": list(range(500))}
ECHO = {"type": "object", "properties": {"message": {"type": "string"}, "count": {"type": "integer"}}}
ECHO |= {"required": ["message"]}


def common(overflow: OverflowStore) -> chain.PolicyDeps:
    clock = FakeClock()
    return chain.PolicyDeps(
        clock,
        store := MemoryStore(clock),
        overflow,
        Redactor(),
        Access(Config()),
        nowhere(clock),
        Meters(clock),
        Approvals(store, clock),
    )


def limited(**limits: Any) -> tuple[OverflowStore, Any]:
    config = Config(limits=Limits(**limits))
    overflow = OverflowStore(FakeClock(), at_once(config))
    return overflow, chain.build(config, common(overflow))


async def log(scene: Scene) -> str:
    return LOG


async def rows(scene: Scene) -> Any:
    return {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": ROWS}


async def picture(scene: Scene) -> Any:
    data = base64.b64encode(bytes(1000)).decode()
    return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}


async def hello(scene: Scene) -> Any:
    return f"hello {(await scene.ask(form()))['content']['name']}\n{LOG}"


async def echo(scene: Scene) -> str:
    return "echoed"


def whole(overflow: OverflowStore, uri: str, client: Client = ANN) -> str:
    """All that is kept there, by the ranges that it proposes."""
    asked, found = f"{uri}?bytes=0-99", ""
    while asked:
        read = overflow.read(client, asked)
        found += read["contents"][0]["text"]
        asked = read["_meta"]["toolgate/range"].get("next", "")
    return found


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_long_text_is_cut_and_its_whole_can_be_read(revision: str, server: Any) -> None:
    overflow, policies = limited(result_limit=300, head=2, tail=1)
    async with gateway(policies=policies, there=server({"log": log})) as rig:
        client = await rig.client(revision)
        reply = await client.call("there__log")
        assert reply.text.startswith(
            "line 1\nline 2\n...\nline 1000\n\n\n[Cut by toolgate: the first 2 and the last 1 of"
        )
        (part,) = reply.result["_meta"][META_KEY]["parts"]
        assert part["uri"] in reply.text
        assert whole(overflow, part["uri"]) == LOG
        assert not overflow.knows(Client(Principal("bob"), path="/mcp"), part["uri"])
        overflow.close()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_json_is_left_out_whole_with_a_link_that_each_revision_can_read(revision: str, server: Any) -> None:
    overflow, policies = limited(result_limit=300)
    async with gateway(policies=policies, there=server({"rows": rows})) as rig:
        client = await rig.client(revision, path="/mcp/servers/there")
        result = (await client.call("rows")).result
        notice, link = result["content"]
        assert "structuredContent" not in result and "isError" not in result
        assert notice["text"].startswith("[Left out by toolgate: JSON object of 1 members (rows)")
        uri = result["_meta"][META_KEY]["parts"][0]["uri"]
        if revision < "2025-06-18":
            assert link == {"type": "text", "text": f"[rows: json] {uri}"}
        else:
            assert (link["type"], link["uri"]) == ("resource_link", uri)
        there = Client(ANN.principal, path="/mcp/servers/there")
        assert json.loads(whole(overflow, uri, there)) == ROWS
        overflow.close()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_promised_structured_content_that_is_too_large_is_an_error_that_was_executed(revision: str) -> None:
    overflow, policies = limited(result_limit=300)
    there = LegacyServer({"rows": rows})
    there.lists["tools/list"][1][0]["outputSchema"] = {"type": "object", "required": ["rows"]}
    async with gateway(policies=policies, there=there) as rig:
        result = (await (await rig.client(revision)).call("there__rows")).result
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("[The call was executed.")
        assert "structuredContent" not in result
        overflow.close()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_image_is_left_out_whole(revision: str) -> None:
    overflow, policies = limited(result_limit=300)
    async with gateway(policies=policies, there=ModernServer({"picture": picture})) as rig:
        result = (await (await rig.client(revision)).call("there__picture")).result
        (part,) = result["_meta"][META_KEY]["parts"]
        assert overflow.read(ANN, f"{part['uri']}?bytes=0-99")["contents"][0]["mimeType"] == "image/png"
        assert "image (image/png), 1,000 bytes" in result["content"][0]["text"]
        overflow.close()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
async def test_what_comes_after_questions_is_limited_too(revision: str, server: Any) -> None:
    overflow, policies = limited(result_limit=300)
    async with gateway(policies=policies, there=server({"hello": hello})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, name="there__hello")
        assert reply.text.startswith("hello Ann\nline 1\n")
        assert "[Cut by toolgate" in reply.text
        assert len(overflow) == 1
        overflow.close()


async def test_without_limits_nothing_cuts_results() -> None:
    for is_transparent in (False, True):
        assert "truncate" not in chained(Config(), OverflowStore(FakeClock()), is_transparent=is_transparent)


def chained(config: Config, overflow: OverflowStore, **more: Any) -> dict[str, Any]:
    """The policies of a configuration by name."""
    return {policy.name: policy for policy in chain.build(config, common(overflow), **more)}


async def test_a_servers_own_limit_is_enough() -> None:
    servers = (
        Server(id="a", name="a", type="stdio", result_limit=10, validate_arguments=False),
        Server(id="b", name="b", type="stdio"),
    )
    config = Config(servers=servers, limits=Limits(head=1, tail=2))
    overflow = OverflowStore(FakeClock())
    policies = chained(config, overflow)
    validate, truncate = policies["validate"], policies["truncate"]
    assert validate._trusted == {"a"}
    assert {id: limit.bytes for id, limit in truncate._limits.items()} == {"a": 10}
    assert truncate._limit.bytes is None
    unjudged = chained(Config(servers=servers, validate_arguments=False), overflow)
    assert "truncate" in unjudged and "validate" not in unjudged


def test_what_is_read_at_once_keeps_to_the_limits() -> None:
    assert at_once(Config()) == 64 * 1024
    assert at_once(Config(limits=Limits(result_limit=5000))) == 5000
    assert at_once(Config(limits=Limits(result_limit=5000, result_tokens=100))) == 400


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_wrong_arguments_never_reach_the_server(revision: str, server: Any) -> None:
    there = server({"echo": echo})
    there.lists["tools/list"][1][0]["inputSchema"] = ECHO
    _, policies = limited()
    async with gateway(policies=policies, there=there) as rig:
        client = await rig.client(revision)
        error = (await client.call("there__echo", arguments={"count": "x"})).error
        assert error["code"] == -32602
        assert error["message"] == (
            "Invalid arguments for echo: /message: is required; /count: must be of type integer"
        )
        data = error["data"]
        assert [(each["pointer"], each["keyword"]) for each in data["errors"]] == [
            ("/message", "required"),
            ("/count", "type"),
        ]
        assert (data["code"], data["server"], data["tool"], data["outcome"]) == (
            "INVALID_ARGS",
            "there",
            "echo",
            "not_sent",
        )
        assert data["schema"] == ECHO
        assert there.calls == []
        assert (await client.call("there__echo", arguments={"message": "hi", "more": 1})).text == "echoed"
        assert (await client.call("there__echo")).error["code"] == -32602
        assert len(there.calls) == 1


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
async def test_what_has_passed_goes_on_whatever_becomes_of_the_schema(revision: str, server: Any) -> None:
    there = server({"hello": hello}, announces=True)
    _, policies = limited()
    async with gateway(policies=policies, there=there) as rig:
        client = await rig.client(revision)

        def answered(_params: Any) -> Any:
            there.offer("tools", {"name": "hello", "inputSchema": ECHO})
            return named("Ann")

        answers = {"elicitation/create": answered}
        reply = await client.converse("tools/call", answers, name="there__hello", arguments={"n": 1})
        assert reply.text.startswith("hello Ann")
        await rig.clock.advance(1)
        assert (await client.call("there__hello", arguments={"n": 1})).error["code"] == -32602


async def test_a_schema_that_cannot_be_used_is_no_ones_obstacle(caplog: Any) -> None:
    there = LegacyServer({"echo": echo})
    there.lists["tools/list"][1][0]["inputSchema"] = {
        "type": "object",
        "properties": {"x": {"$ref": "file:///etc/passwd"}},
    }
    _, policies = limited()
    async with gateway(policies=policies, there=there) as rig:
        client = rig.modern()
        for _ in range(3):
            assert (await client.call("there__echo", arguments={"x": 1})).text == "echoed"
    assert [record.levelname for record in caplog.records if "are not checked" in record.getMessage()] == ["WARNING"]


def test_another_limit_of_results_holds_for_what_is_kept_too() -> None:
    overflow = OverflowStore(FakeClock(), at_once(Config()))
    overflow.prepared(Config(limits=Limits(result_limit=5000)))()
    assert overflow.at_once == 5000
    overflow.prepared(Config(limits=Limits(result_tokens=1)))()
    assert overflow.at_once == LEAST, "so much that there is an end to reading it"
