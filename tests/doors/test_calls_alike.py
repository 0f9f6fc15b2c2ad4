"""Calls that differ in nothing but their arguments: what was found for one of them holds for the next, as long as it
would be found again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from inmemory import LATEST, META, MODERN, Scripted, gateway, said, tools
from virtualtime import settle
from wires import Wire, hello, legacy, modern

from toolgate.app import App
from toolgate.config import Config, Server
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.model import Call
from toolgate.eras import calls
from toolgate.frontends.workers.local import role_of_worker
from toolgate.gateway.gateway import Gateway
from toolgate.policy.base import Policy
from toolgate.policy.limits import Meters
from toolgate.state.settings import Settings
from toolgate.upstreams.links.memory import MemoryLink

KEY = "a-key-that-is-long-enough"


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tools of the calls that were begun by what was found for others."""
    begun: list[str] = []
    begin = Gateway.begin_like

    def seen(self: Gateway, memo: Any, *given: Any) -> Any:
        round = begin(self, memo, *given)
        begun.extend([memo.name] if round else [])
        return round

    monkeypatch.setattr(Gateway, "begin_like", seen)
    return begun


def there(revision: str = MODERN) -> Scripted:
    def call(asked: dict[str, Any]) -> Any:
        return said(f"{asked['name']} {asked.get('arguments')}")

    return Scripted(revision, tools_list=tools("echo", "other"), tools_call=call)


@asynccontextmanager
async def served(
    config: Config = Config(), revision: str = MODERN, **more: Any
) -> AsyncGenerator[tuple[App, Scripted]]:
    script = there(revision)
    async with gateway(config=config, scripts={"there": script}, **more) as app:
        yield app, script


def call(id: Any, *lines: str, tool: str = "echo", **arguments: Any) -> bytes:
    return modern(id, "tools/call", {"name": f"there__{tool}", "arguments": arguments}, *lines)


def of_session(session: str, id: Any, tool: str = "echo", **arguments: Any) -> bytes:
    return legacy(id, "tools/call", {"name": f"there__{tool}", "arguments": arguments}, session=session)


def text(answer: Any) -> str:
    return answer.result["content"][0]["text"]


@pytest.mark.parametrize("revision", [MODERN, LATEST])
async def test_a_call_is_begun_by_what_was_found_for_the_one_before(alike: list[str], revision: str) -> None:
    async with served(revision=revision) as (app, _):
        wire = Wire(app)
        answers = [await wire.ask(call(number, n=number)) for number in range(5)]
        assert [text(answer) for answer in answers] == [f"echo {{'n': {number}}}" for number in range(5)]
        assert [answer.last["id"] for answer in answers] == [0, 1, 2, 3, 4]
        assert alike == ["there__echo"] * 2


@pytest.mark.parametrize("revision", [MODERN, LATEST])
async def test_calls_of_a_session_are_told_apart_by_their_tools(alike: list[str], revision: str) -> None:
    async with served(revision=revision) as (app, _):
        wire = Wire(app)
        session = (await wire.ask(hello())).headers["mcp-session-id"]
        for number, tool in enumerate(["echo", "other"] * 5):
            answer = await wire.ask(of_session(session, number, tool, n=number))
            assert (text(answer), answer.headers["mcp-session-id"]) == (f"{tool} {{'n': {number}}}", session)
        assert len(alike) >= 4 and set(alike) == {"there__echo", "there__other"}


@pytest.mark.parametrize(
    "more",
    [
        {"_meta": {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, "progressToken": 5}},
        {"Name": "there__other"},
        {"requestState": "x"},
        {"arguments": []},
    ],
)
async def test_what_says_more_or_something_else_goes_the_ordinary_way(alike: list[str], more: dict[str, Any]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        for number in range(5):
            await wire.ask(call(number))
        alike.clear()
        told: dict[str, Any] = {"name": "there__echo", "arguments": {}, **more}
        anew = await Wire(app, "192.0.2.9").ask(modern(7, "tools/call", told))
        again = await wire.ask(modern(7, "tools/call", told))
        assert (again.status, again.last) == (anew.status, anew.last) and not alike


async def test_an_id_that_is_no_number_is_answered_as_it_was_written(alike: list[str]) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        for id in (1, 2, "three", "3", -4, 5.5, 10**18):
            assert (await wire.ask(call(id))).last["id"] == id
        assert len(alike) == 0


@pytest.mark.parametrize("sign", ["ä", "\U0001f600", "日本"])
async def test_texts_in_any_script_are_plain(alike: list[str], sign: str) -> None:
    async with served() as (app, _):
        wire = Wire(app)
        for number in range(5):
            body = json.dumps(sign, ensure_ascii=False).encode()
            asked = call(number, a="?").replace(b'"?"', body)
            asked = asked.replace(b"Content-Length: %d" % len(call(number, a="?").partition(b"\r\n\r\n")[2]),
                                  b"Content-Length: %d" % len(asked.partition(b"\r\n\r\n")[2]))  # fmt: skip
            assert text(await wire.ask(asked)) == f"echo {{'a': '{sign}'}}"
        assert alike


async def test_a_tool_that_is_turned_off_is_so_for_calls_alike_as_well(alike: list[str]) -> None:
    def config(**permissions: Any) -> Config:
        known = KnownClient(id="ada", name="ada", key=KEY, servers="all", permissions=Permissions(**permissions))
        return Config(clients=(known,))

    configs = [config()]
    async with served(configs[0], settings=Settings(lambda: configs[0], {})) as (app, script):
        wire = Wire(app)
        for number in range(5):
            assert (await wire.ask(call(number, f"Authorization: Bearer {KEY}"))).status == 200
        assert alike
        servers = app.gateway.snapshot.config.servers
        configs[0] = msgspec.structs.replace(config(everything="off"), servers=servers)
        await app.reload()
        asked = len(script.requests)
        assert "error" in (await wire.ask(call(9, f"Authorization: Bearer {KEY}"))).last
        assert len(script.requests) == asked


async def test_a_list_that_has_changed_is_asked_for_what_the_name_means_now(alike: list[str]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        for number in range(5):
            await wire.ask(call(number))
        script.change(tools("other"))
        await settle()
        alike.clear()
        await wire.ask(modern(8, "tools/list"))
        await wire.ask(call(9))
        assert not alike


class _Renames(Policy):
    """Writes something of its own into calls that say so."""

    name = "renames"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        return msgspec.structs.replace(call, target="other") if b"other" in bytes(call.arguments) else call


async def test_a_call_that_a_policy_has_changed_is_sent_as_that_has_it(alike: list[str]) -> None:
    async with served(policies=(_Renames(),)) as (app, _):
        wire = Wire(app)
        for number in range(5):
            assert text(await wire.ask(call(number))) == "echo {}"
        assert text(await wire.ask(call(4, which="other"))) == "other {'which': 'other'}"
        assert text(await wire.ask(call(5, which="mine"))) == "echo {'which': 'mine'}"


async def test_what_varies_in_a_head_is_that_of_each_call(alike: list[str]) -> None:
    seen: list[Any] = []

    class Looks(Policy):
        name = "looks"

        def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
            seen.append((call.headers or {}).get("traceparent"))
            return call

    parents = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 6)]
    async with served(policies=(Looks(),)) as (app, _):
        wire = Wire(app)
        for number, parent in enumerate(parents):
            assert (await wire.ask(call(number, f"Traceparent: {parent}"))).status == 200
        assert seen == parents and alike


async def test_a_header_that_goes_to_its_server_is_that_of_each_call_of_a_session(
    alike: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    send = MemoryLink.send_now

    def seen(self: Any, data: bytes, headers: Any, *more: Any) -> bool:
        sent.extend([dict(headers).get(b"x-tenant", b"").decode()] if b"tools/call" in data else [])
        return send(self, data, headers, *more)

    monkeypatch.setattr(MemoryLink, "send_now", seen)
    gets_it = Server(id="there", name="there", type="stdio", command="memory", forward_headers=("x-tenant",))
    async with gateway(gets_it, scripts={"there": there(LATEST)}) as app:
        wire = Wire(app)
        session = (await wire.ask(hello())).headers["mcp-session-id"]
        tenants = [*[""] * 4, *["blue"] * 3, "red", "", *["blue"] * 2, *[""] * 2]
        for number, tenant in enumerate(tenants):
            lines = [f"X-Tenant: {tenant}"] if tenant else []
            asked = {"name": "there__echo", "arguments": {"n": number}}
            await wire.ask(legacy(number, "tools/call", asked, *lines, session=session))
        assert sent == tenants[-len(sent) :] and len(sent) > 8 and alike


@pytest.mark.parametrize("why", ["is_watched", "is_apart"])
async def test_a_worker_begins_no_call_alike_while_all_are_for_the_owner(alike: list[str], why: str) -> None:
    far = Server(id="there", name="there", type="http", url="http://127.0.0.1:9/mcp", era="modern")
    async with gateway(far, scripts={"there": there()}, role=role_of_worker(Meters)) as app:
        wire = Wire(app)
        for number in range(5):
            assert (await wire.ask(call(number))).status == 200
        assert alike
        alike.clear()
        setattr(app.gateway, why, True)
        for number in range(3):
            assert (await wire.ask(call(number))).status == 200
        assert not alike
        setattr(app.gateway, why, False)
        for number in range(3):
            await wire.ask(call(number))
        assert alike


async def test_a_connection_that_has_ended_is_not_used_by_calls_alike(alike: list[str]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        for number in range(5):
            assert (await wire.ask(call(number))).status == 200
        await app.gateway.snapshot.upstreams["there"].stop()
        before = len(alike)
        for number in range(5, 8):
            assert text(await wire.ask(call(number, n=number))) == f"echo {{'n': {number}}}"
        assert before <= len(alike) <= before + 2
        del script


async def test_a_failure_of_a_call_alike_is_told_as_any_other_is(alike: list[str]) -> None:
    async with served() as (app, script):
        wire = Wire(app)
        for number in range(5):
            await wire.ask(call(number))
        script.answers["tools/call"] = {"content": 5, "isError": True}
        assert (await wire.ask(call(4))).result["isError"] is True
        script.answers["tools/call"] = b"[]"
        answer = await wire.ask(call(5))
        assert answer.last["id"] == 5 and "not a JSON object" in answer.error["message"]
        assert alike.count("there__echo") >= 4


def test_only_a_call_that_is_all_there_is_to_it_is_plain() -> None:
    plain = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}'
    assert calls.read_plain_call(plain)
    for wrong in (
        plain.replace(b'"2.0"', b'"1.0"'),
        plain.replace(b'"id":1', b'"id":1.0'),
        plain.replace(b'"id":1', b'"id":null'),
        plain.replace(b"tools/call", b"tools/list"),
        plain.replace(b"{}", b"[]"),
        plain.replace(b"{}", b"[" * 300 + b"]" * 300),
        plain.replace(b'"name":"a",', b""),
        plain.replace(b'"name":"a"', b'"name":"a","task":{}'),
        plain.replace(b"}}}", b"}}}}"),
        b"[" + plain + b"]",
        plain.replace(b'"a"', b'"\xff"'),
    ):
        assert calls.read_plain_call(wrong) is None, wrong


def test_of_calls_that_say_much_beside_their_arguments_nothing_is_kept() -> None:
    from toolgate.core import jsonrpc

    def said_beside(name: str) -> Any:
        params = {"name": name, "arguments": {"a": 1}}
        return calls.read_plain(jsonrpc.decode(json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()))  # fmt: skip

    assert said_beside("a") == (b'"a"', b"") and said_beside("a" * calls.SHORT) is None
