"""A client says by the headers of proxies that it is somebody else, elsewhere, or came by another name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock
from wires import Wire, modern

from toolgate.config import Config, Http
from toolgate.config.access import KnownClient, Limits, Rates
from toolgate.config.shapes import Rate
from toolgate.core.redaction import Redactor
from toolgate.frontends.known_heads import KnownHeads
from toolgate.state.audit import Trail

PROXY, ONE, OTHER = "10.0.0.1", "203.0.113.9", "198.51.100.7"
BEHIND = Http(trusted_proxies=(PROXY,), allowed_hosts=("gate.example.com",))
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

pytestmark = pytest.mark.promise("b.attacks.forwarded")


def there() -> Scripted:
    return Scripted(tools_list=tools("echo"), tools_call=said("echoed"))


def call(id: int, *lines: str) -> bytes:
    return modern(id, "tools/call", {"name": "there__echo", "arguments": {}}, *lines)


async def test_each_client_behind_a_proxy_is_known_by_its_own_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one connection of a proxy, and with heads that differ in nothing else."""
    met: list[tuple[str, str]] = []
    learn = cast(Any, KnownHeads).learn

    def seen(self: Any, came: Any, meaning: Any, whose: str) -> None:
        met.append((meaning.principal.address, whose))
        learn(self, came, meaning, whose)

    monkeypatch.setattr(KnownHeads, "learn", seen)
    async with gateway(config=Config(http=BEHIND), scripts={"there": there()}) as app:
        wire = Wire(app, PROXY)
        for number, client in enumerate([ONE, OTHER] * 3):
            assert (await wire.ask(call(number, f"X-Forwarded-For: {client}"))).status == 200
            principal = wire.protocol._connection.principal  # pyright: ignore[reportPrivateUsage]
            assert principal and (principal.address, principal.is_here) == (client, False)
        assert met == [(ONE, f"local@{ONE}"), (OTHER, f"local@{OTHER}")]  # the others were known
        assert len(app.http.known_heads) == 2
        straight = Wire(app, ONE)
        assert (await straight.ask(call(9, f"X-Forwarded-For: {OTHER}"))).status == 200
        assert met[-1][0] == ONE


async def test_the_limits_of_one_client_behind_a_proxy_are_not_anothers() -> None:
    config = Config(http=BEHIND, limits=Limits(rates=Rates(principal=Rate(2, 60.0))))
    async with gateway(config=config, scripts={"there": there()}) as app:
        wire = Wire(app, PROXY)

        async def calls(client: str) -> bool:
            return "error" not in (await wire.ask(call(1, f"X-Forwarded-For: {OTHER}, {client}"))).last

        assert [await calls(ONE) for _ in range(3)] == [True, True, False]
        assert await calls("192.0.2.3")


async def test_who_showed_a_wrong_key_is_noted_by_the_address_that_it_came_from(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "audit.jsonl", FakeClock(), None, Redactor())
    config = Config(http=BEHIND, clients=(KnownClient(id="ci", name="ci", key="the-right-key-of-the-client"),))
    async with gateway(config=config, scripts={"there": there()}, audit=trail) as app:
        for peer in (PROXY, OTHER):
            visitor = Visitor(app, x_forwarded_for=ONE, authorization="Bearer a-key-that-is-none-of-a-client")
            visitor.client = (peer, 5)
            assert (await visitor.post(PING)).status == 401
    await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert [line["address"] for line in lines if line["event"] == "login"] == [ONE, OTHER]


async def test_nobody_is_on_this_machine_by_the_word_of_a_proxy_elsewhere() -> None:
    """On an open gateway, programs of this machine may have servers added."""
    config = Config(http=BEHIND, add_servers="allow")
    async with gateway(config=config, scripts={"there": there()}) as app:
        for headers in ({"x-forwarded-for": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}, {"x-forwarded-for": "::1"}):
            wire = Wire(app, PROXY)
            lines = [f"{name}: {value}" for name, value in headers.items()]
            assert (await wire.ask(call(1, *lines))).status == 200
            principal = wire.protocol._connection.principal  # pyright: ignore[reportPrivateUsage]
            assert principal and not principal.is_here and principal.address == PROXY


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("gate.example.com", {}, 200),
        ("10.0.0.5:8765", {}, 403),
        ("gate.example.com", {"x-forwarded-host": "evil.example"}, 403),
        ("evil.example", {"x-forwarded-host": "gate.example.com"}, 403),  # a page that was led here may say so
        ("evil.example", {"forwarded": "host=localhost"}, 403),
        ("localhost:8765", {"x-forwarded-host": "gate.example.com"}, 200),
        ("gate.example.com", {"forwarded": f"for={ONE}", "x-forwarded-for": OTHER}, 400),
    ],
)
async def test_the_host_that_it_is_called_by_and_the_one_that_a_proxy_names_are_both_ours(
    host: str, headers: dict[str, str], status: int
) -> None:
    async with gateway(config=Config(http=BEHIND)) as app:
        visitor = Visitor(app, host=host)
        visitor.client = (PROXY, 5)
        assert (await visitor.post(PING, headers=headers)).status == status


async def test_two_hosts_stay_two_whatever_a_proxy_names() -> None:
    async with gateway(config=Config(http=BEHIND)) as app:
        visitor = Visitor(app, host="localhost", x_forwarded_host="gate.example.com")
        visitor.client = (PROXY, 5)
        assert (await visitor.post(PING, twice="host")).status == 400


@pytest.mark.parametrize(("peer", "url"), [(PROXY, "https://gate.example.com/mcp"), (OTHER, "http://localhost/mcp")])
async def test_what_is_said_of_an_endpoint_is_how_its_client_reaches_it(peer: str, url: str) -> None:
    async with gateway(config=Config(http=BEHIND)) as app:
        visitor = Visitor(app, host="localhost", x_forwarded_proto="https", x_forwarded_host="gate.example.com")
        visitor.client = (peer, 5)
        card = await visitor.send("GET", path="/mcp/server-card")
        assert url in card.body.decode()
