"""What the audit says of calls, however they end, for clients and servers of both eras."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asgi import HttpRequest
from msgspec import Raw
from peers import (
    LATEST,
    MODERN,
    LegacyServer,
    ModernClient,
    ModernServer,
    Rig,
    RpcError,
    Scene,
    form,
    gateway,
    named,
)
from virtualtime import FakeClock, settle

from toolgate.app import running
from toolgate.config import Audit, Config, Limits
from toolgate.config.access import KnownClient
from toolgate.core.model import Ask, Asker, Call, Required
from toolgate.core.redaction import Redactor
from toolgate.policy import chain
from toolgate.policy.base import Policy
from toolgate.state.audit import Trail, verify
from toolgate.state.memory import MemoryStore

REVISIONS = ["2025-06-18", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


async def plain(scene: Scene) -> str:
    return "done"


async def hello(scene: Scene) -> str:
    return f"hello {(await scene.ask(form()))['content']['name']}"


async def fails(scene: Scene) -> Any:
    return {"content": [{"type": "text", "text": "no"}], "isError": True}


async def raises(scene: Scene) -> Any:
    raise RpcError(-32000, "the password of ann is wrong")


async def forever(scene: Scene) -> str:
    await asyncio.Event().wait()
    return "never"


class Audited:
    """A rig whose audit is read when it is closed."""

    def __init__(self, rig: Rig, trail: Trail) -> None:
        self.rig = rig
        self.trail = trail

    async def lines(self) -> list[dict[str, Any]]:
        await self.trail.close()
        assert self.trail.file
        assert verify([self.trail.file]).wrong == ()
        first, *lines = [json.loads(line) for line in self.trail.file.read_bytes().splitlines()]
        assert first["event"] == "served.first"
        return lines


@asynccontextmanager
async def audited(
    file: Path, settings: Audit = Audit(), secrets: tuple[str, ...] = (), **more: Any
) -> AsyncGenerator[Audited]:
    clock = FakeClock()
    trail = Trail(file / "audit.jsonl", clock, MemoryStore(clock), Redactor(secrets))
    config = more.pop("config", Config())
    on = msgspec.structs.replace(config, audit=msgspec.structs.replace(settings, enabled=True))
    async with gateway(config=on, audit=trail, **more) as rig:
        yield Audited(rig, trail)
        await trail.close()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_is_a_line(tmp_path: Path, revision: str, server: Any) -> None:
    async with audited(tmp_path, there=server({"plain": plain})) as there:
        client = await there.rig.client(revision)
        await client.request("tools/call", name="there__plain", arguments={"a": 1})
        (line,) = await there.lines()
        assert line["arguments_sha256"] == hashlib.sha256(b'{"a": 1}').hexdigest()
        assert line["ms"] >= 0
        for unsure in ("time", "prev", "hash", "ms", "arguments_sha256", "address"):
            line.pop(unsure, None)
        assert line == {
            "seq": 2,
            "event": "call",
            "who": "ann",
            "method": "tools/call",
            "server": "there",
            "target": "plain",
            "decision": "allow",
            "outcome": "done",
        }


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_a_call_came_through_is_named(tmp_path: Path, revision: str) -> None:
    async with audited(tmp_path, there=LegacyServer({"plain": plain})) as there:
        client = await there.rig.client(revision, path="/mcp/meta")
        await client.request("tools/call", name="mcp_call", arguments={"server": "there", "tool": "plain"})
        (line,) = await there.lines()
        assert (line["via"], line["server"], line["target"]) == ("mcp_call", "there", "plain")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("tool", ["guessed", "plai", "mcp_discover"])
async def test_what_a_control_tool_did_not_find_is_named_too(tmp_path: Path, revision: str, tool: str) -> None:
    async with audited(tmp_path, there=LegacyServer({"plain": plain})) as there:
        client = await there.rig.client(revision, path="/mcp/meta")
        await client.request("tools/call", name="mcp_call", arguments={"server": "there", "tool": tool})
        await client.request("tools/call", name=tool + "_bare", arguments={})
        line, bare = await there.lines()
        assert (line.get("via"), line["server"], line["target"]) == ("mcp_call", "there", tool)
        assert (line["decision"], line["code"]) == ("deny", "TOOL_NOT_FOUND")
        assert (bare.get("via"), bare["server"], bare["target"]) == (None, "", tool + "_bare")


@pytest.mark.parametrize("server", SERVERS)
async def test_failures_say_whose_they_are(tmp_path: Path, server: Any) -> None:
    limits = Limits(argument_limit=50)
    async with audited(
        tmp_path, config=Config(limits=limits), there=server({"fails": fails, "raises": raises})
    ) as there:
        client = there.rig.modern()
        await client.request("tools/call", name="there__fails")
        await client.request("tools/call", name="there__raises")
        await client.request("tools/call", name="there__fails", arguments={"a": "x" * 100})
        lines = await there.lines()
        told = [[line[key] for key in ("decision", "outcome")] + [line.get("code")] for line in lines]
        assert told == [
            ["allow", "error", None],
            ["allow", "error", "UPSTREAM_ERROR"],
            ["deny", "error", "INVALID_ARGS"],
        ]
        assert "the limit is 50" in lines[2]["reason"]
        assert "xxx" not in json.dumps(lines) and "password" not in json.dumps(lines)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_that_asks_is_a_line_for_each_round(tmp_path: Path, revision: str, server: Any) -> None:
    async with audited(tmp_path, there=server({"hello": hello})) as there:
        client = await there.rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": lambda _: named("Ann")}, name="there__hello")
        assert reply.text == "hello Ann"
        asked, done = await there.lines()
        assert (asked["outcome"], asked["decision"], asked["reason"]) == ("asked", "allow", "upstream:there")
        assert (done["outcome"], done["resumed"]) == ("done", True)
        assert "ms" in asked and "ms" in done


class AskOnce(Policy):
    name = "approve"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Required:
        if was_passed or (call.resumption and call.resumption.asker == Asker("policy", "approve")):
            return call
        method, params = form()
        return Required((Ask("sure", method, Raw(msgspec.json.encode(params))),))


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_a_policy_asks_is_its_decision_and_the_rest_is_told_once(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = chain.build
    monkeypatch.setattr(chain, "build", lambda *given, **more: (*build(*given, **more), AskOnce()))
    async with audited(tmp_path, there=LegacyServer({"plain": plain})) as there:
        client = await there.rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": lambda _: named("Ann")}, name="there__plain")
        assert reply.text == "done"
        asked, done = await there.lines()
        assert (asked["decision"], asked["outcome"], asked["reason"]) == ("ask", "asked", "policy:approve")
        assert (done["decision"], done["outcome"], done["resumed"]) == ("allow", "done", True)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_that_was_cancelled_is_a_line(tmp_path: Path, revision: str) -> None:
    server = LegacyServer({"forever": forever})
    async with audited(tmp_path, there=server) as there:
        client = await there.rig.client(revision)
        running = client.start("tools/call", name="there__forever", id="abc")
        await server.got("tools/call")
        await there.rig.clock.advance(2.0)
        if isinstance(client, ModernClient):
            await running.gone()
        else:
            client.cancel(running)
        await settle()
        (line,) = await there.lines()
        assert line["outcome"] == "cancelled"
        assert 2000 <= line["ms"] < 2100


async def test_arguments_are_noted_in_full_only_where_that_is_wanted_and_without_known_secrets(tmp_path: Path) -> None:
    given = {"key": "canary-0123456789", "text": "two\nlines"}
    for choice in ("hash", "full", "none"):
        settings = Audit(arguments=choice)
        async with audited(
            tmp_path / choice, settings, ("canary-0123456789",), there=LegacyServer({"plain": plain})
        ) as there:
            await there.rig.modern().request("tools/call", name="there__plain", arguments=given)
            (line,) = await there.lines()
            assert "canary" not in json.dumps(line)
            assert ("arguments_sha256" in line) == (choice != "none")
            assert line.get("arguments") == ({**given, "key": "[secret]"} if choice == "full" else None)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_calls_are_refused_while_the_audit_cannot_be_written_where_that_is_wanted(
    tmp_path: Path, revision: str
) -> None:
    server = LegacyServer({"plain": plain})
    async with audited(tmp_path, Audit(on_failure="block"), there=server) as there:
        client = await there.rig.client(revision)
        assert (await client.request("tools/call", name="there__plain")).text == "done"
        there.trail.problem = "no space is left"
        reply = await client.request("tools/call", name="there__plain")
        assert reply.error["data"]["code"] == "INTERNAL"
        assert "audit log cannot be written" in reply.error["message"]
        there.trail.problem = ""
        assert (await client.request("tools/call", name="there__plain")).text == "done"
        assert len(server.calls) == 2


async def test_calls_go_on_while_the_audit_cannot_be_written_where_nothing_is_said(tmp_path: Path) -> None:
    async with audited(tmp_path, there=LegacyServer({"plain": plain})) as there:
        there.trail.problem = "no space is left"
        assert (await there.rig.modern().request("tools/call", name="there__plain")).text == "done"


async def test_policies_keep_nothing_of_rounds_that_never_come_back(tmp_path: Path) -> None:
    async with audited(tmp_path, there=LegacyServer({"hello": hello})) as there:
        client = there.rig.modern()
        policies = there.rig.app.gateway.route("/mcp").policies
        before = [dict(vars(policy)) for policy in policies]
        for _ in range(10):
            assert (await client.request("tools/call", name="there__hello")).asks
        assert [vars(policy) for policy in policies] == before
        await there.rig.clock.advance(400)
        assert len(await there.lines()) == 10


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_server_that_a_tool_call_adds_is_noted_with_its_command_and_who_wanted_it(
    revision: str, enabled: bool, tmp_path: Path
) -> None:
    known = KnownClient(id="ann", name="ann", servers="all", admin=True)
    config = Config(clients=(known,), add_servers="allow")
    async with audited(tmp_path, config=config, there=LegacyServer({"plain": plain})) as there:
        ann = await there.rig.client(revision, principal="ann/admin")
        new = {"name": "More", "transport": "stdio", "command": "no-such-program", "enabled": enabled}
        new |= {"args": ["--token", "canary-of-a-token", "run"], "env": {"TOKEN": "canary-of-a-token"}}
        assert json.loads((await ann.call("add_mcp_server", arguments=new)).text)["success"]
        assert json.loads((await ann.call("remove_mcp_server", arguments={"name": "More"})).text)["success"] is enabled
        lines = await there.lines()
        added, *removed = [line for line in lines if line["event"].startswith("servers.")]
        assert (added["event"], added["name"], added["by_operator"]) == ("servers.add", "More", False)
        assert (added["who"], added["client"]) == (lines[-1]["who"], "ann")
        assert (added["config"]["command"], added["config"]["args"]) == ("no-such-program", ["--token", "***", "run"])
        assert [(line["event"], line["client"]) for line in removed] == [("servers.remove", "ann")] * enabled
    assert b"canary" not in (tmp_path / "audit.jsonl").read_bytes()


async def test_who_was_not_let_in_is_noted_without_what_they_showed(tmp_path: Path) -> None:
    known = KnownClient(id="ci", name="ci", key="the-right-key-of-the-client", servers="all")
    trail = Trail(tmp_path / "audit.jsonl", FakeClock(), None, Redactor())
    async with running(Config(clients=(known,)), clock=FakeClock(), environ={}, audit=trail) as app:
        for shown in ({}, {"authorization": "Bearer canary-of-a-wrong-key"}):
            headers = {"content-type": "application/json", **shown}
            request = HttpRequest(app.http, "POST", "/mcp", headers.items(), b"{}", address="10.0.0.7")
            assert (await request.answered()).status == 401
        await app._reloading.add("more", {"command": "true", "env": {"TOKEN": "canary-of-a-token"}, "start": "lazy"})
        await app._reloading.remove("more")
    await trail.close()
    _first, login, added, removed = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert (login["event"], login["decision"], login["address"]) == ("login", "deny", "10.0.0.7")
    assert (added["event"], added["config"]["command"]) == ("servers.add", "true")
    assert removed["event"] == "servers.remove"
    assert b"canary" not in (tmp_path / "audit.jsonl").read_bytes()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_name_without_end_goes_nowhere(tmp_path: Path, revision: str) -> None:
    """Neither into the audit, nor among meters, decisions or requests for approval."""
    long, config = "z" * 100_000, Config(clients=(KnownClient(id="ann", name="ann", servers=("other",)),))
    async with audited(tmp_path, config=config, there=LegacyServer({"plain": plain}), other=LegacyServer({})) as there:
        client = await there.rig.client(revision)
        assert (await client.request("tools/call", name=f"there__{long}")).error["code"] == -32602
        assert (await client.request("resources/read", uri=f"other+file:///{long}")).error["code"] == -32602
        for tool, asked in {
            "mcp_call": {"server": "other", "tool": long},
            "read_mcp_resource": {"server_name": "other", "resource_uri": f"file:///{long}"},
        }.items():
            reply = await client.request("tools/call", name=tool, arguments=asked)
            assert "the limit is 16,384" in reply.raw.decode()
        assert (await client.request("tools/call", name="there__plain")).error["code"] == -32600
        assert [line["code"] for line in await there.lines()] == ["ACCESS_DENIED"]
