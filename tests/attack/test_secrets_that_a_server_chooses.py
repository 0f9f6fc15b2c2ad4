"""Whoever writes the example of a server's configuration chooses what stands in its `env`, `headers`, `url` and `args`:
that takes no word out of what others say, hides nothing from a person who decides, and pushes no secret out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from peers import LATEST, METERED, MODERN, LegacyServer, Scene, gateway

from toolgate.config import Audit, Config, Guard, Server, learn_secrets
from toolgate.core.model import Call, Client, Principal
from toolgate.core.redaction import GONE, MOST_GUESSED, MOST_SURE, InTheClear, Redactor
from toolgate.policy import approval_requests
from toolgate.policy.approvals import Place

CHOSEN = {
    "A": "inputSchema",
    "B": "        ",
    "C": "isError: false",
    "API_KEY": "json-schema.org/draft-07/schema",
    "AUTH": "to: eve@evil.example",
}
CODE = "def f():\n        return 1, 'isError: false to: eve@evil.example'\n"
KEY = "Zk4q-81hhA-oPq77-REAL-KEY"
PARTS = "https://docs.example/?" + "&".join(f"~~~~{number:05}" for number in range(1100))


async def codes(scene: Scene) -> Any:
    return {"content": [{"type": "text", "text": CODE}], "structuredContent": {"inputSchema": CODE}}


def server(**env: str) -> LegacyServer:
    found = LegacyServer({"codes": codes})
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    found.offer("tools", {"name": "codes", "description": "isError: false", "inputSchema": schema})
    found.settings["env"] = env
    return found


def pinned() -> Config:
    return Config(limits=METERED, guard=Guard(pinning="quarantine"), audit=Audit(enabled=True))


async def heard(client: Any) -> list[Any]:
    tools = (await client.request("tools/list")).message["result"]["tools"]
    listed = [tool for tool in tools if tool["name"].startswith("tables__")]
    return [*listed, (await client.call("tables__codes", arguments={})).message["result"]]


@pytest.mark.promise("b.attacks.configured")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_what_is_configured_for_one_server_changes_nothing_that_another_says(revision: str) -> None:
    async with gateway(config=pinned(), tables=server(), notes=server()) as rig:
        without = await heard(await rig.client(revision))
    async with gateway(config=pinned(), tables=server(), notes=server(**CHOSEN)) as rig:
        assert await heard(await rig.client(revision)) == without
    assert len(without) == 2 and GONE not in json.dumps(without)


@pytest.mark.parametrize("key", [KEY, "8f14e45fceea167a5a36dedd4bea2543"])
async def test_a_server_that_comes_later_changes_no_list_that_is_pinned(key: str) -> None:
    """Not with what is certainly a secret, either: who writes the configuration may have read it in the list."""

    def edited(config: Config) -> Config:
        change = msgspec.structs.replace
        servers = (change(each, env={"API_KEY": key} if each.id == "notes" else {}) for each in config.servers)
        return change(config, servers=tuple(servers))

    tables = server()
    tables.offer("tools", {"name": "codes", "description": f"as {key}", "inputSchema": {"type": "object"}})
    async with gateway(config=pinned(), edited=edited, tables=tables, notes=server()) as rig:
        client = await rig.client(MODERN)
        before = await heard(client)
        await rig.app.reload()
        tables.announce("tools")
        await rig.clock.advance(1)
        assert key in json.dumps(before) and await heard(client) == before


def asked_of(server: str, redactor: Redactor, **arguments: str) -> str:
    call = Call("tools/call", "send", Client(Principal("ann")), Raw(json.dumps(arguments).encode()), server=server)
    return json.dumps(approval_requests.of(call, Place("ann", server, "", "tools", "send"), redactor).shown)


@pytest.mark.parametrize("server", ["tables", "notes"])
@pytest.mark.parametrize("text", ["to: eve@evil.example", "DE89370400440532013000", "-rf --no-preserve-root", KEY])
def test_who_decides_is_shown_what_stands_in_the_clear_in_a_configuration(server: str, text: str) -> None:
    redactor = Redactor(["from-a-reference"])
    redactor.learn_configured({"notes": InTheClear([text], [text, "from-a-reference"])})
    assert text in asked_of(server, redactor, mail=text)
    assert "from-a-reference" not in asked_of(server, redactor, mail="from-a-reference")


def told(**servers: Any) -> Redactor:
    config = Config(servers=tuple(Server(id=id, name=id, type="stdio", **each) for id, each in servers.items()))
    redactor = Redactor()
    learn_secrets(config, redactor)
    return redactor


@pytest.mark.parametrize("name", ["X-Docs", "API_KEY", "TOKENS"])
def test_a_thousand_values_of_one_server_push_out_no_secret(name: str) -> None:
    keyed = "https://docs.example/?" + "&".join(f"api_key={number:05}-abcdefgh-{number}" for number in range(1100))
    for url in (PARTS, keyed):
        many = {"url": url, "headers": {name: url, f"{name}-2": url}}
        redactor = told(vault={"env": {"API_KEY": KEY, "PASSWORD": "hunter2 hunter2"}}, notes=many)
        assert redactor.text(KEY) == redactor.of("vault").text(KEY) == redactor.of("tables").text(KEY) == GONE
        assert redactor.of("vault").text("hunter2 hunter2") == GONE
        most = len(Redactor(["~~~~00001"])._bodies) * 4  # forms of each
        assert redactor.of("notes").forms < most * (MOST_GUESSED + MOST_SURE)


def test_of_one_server_what_goes_by_the_name_of_a_secret_is_not_pushed_out_by_the_rest() -> None:
    redactor = told(notes={"url": PARTS, "headers": {"X-Password": "hunter2 hunter2", "A": "~~~~~~~~ last"}})
    assert redactor.of("notes").text("hunter2 hunter2") == GONE


def test_what_was_removed_with_its_server_is_gone_at_once() -> None:
    redactor = told(notes={"env": {"API_KEY": KEY, "A": "return 1 of it"}})
    assert redactor.text(KEY) == redactor.of("notes").text("return 1 of it") == GONE
    redactor.keep(["tables"])
    assert redactor.text(KEY) == redactor.of("tables").text(KEY) == KEY
    assert redactor.of("notes").text(KEY) == GONE, "it may still answer"
    redactor.keep(["tables"])
    assert redactor.of("notes").text(KEY) == KEY


# What a server says itself is without them.


def test_members_of_the_protocol_keep_their_names_also_in_a_servers_own_words() -> None:
    redactor = told(notes={"env": {"A": "inputSchema", "API_KEY": KEY}})
    own = redactor.of("notes")
    told_by_it = {"inputSchema": {"a": "inputSchema: x"}, "b": ["inputSchema"], KEY: [1]}
    shown = {"inputSchema": {"a": f"{GONE}: x"}, "b": [GONE], GONE: [1]}
    for written in (
        json.dumps(told_by_it),
        json.dumps(told_by_it, indent=1),
        json.dumps(told_by_it).replace("S", "\\u0053"),
    ):
        assert json.loads(own.body(written.encode())) == shown
    assert own.value(told_by_it) == shown


def test_blanks_are_no_secret() -> None:
    assert told(notes={"env": {"A": " " * 20, "B": "\t\n  a       b "}}).of("notes").text(CODE) == CODE


def test_what_a_configuration_says_of_one_server_is_in_no_log() -> None:
    redactor = told(notes={"env": {"SETTING": "canary-3fa98b77c0d1", "A": "isError: false"}})
    assert redactor.anywhere.text("it is canary-3fa98b77c0d1, isError: false") == f"it is {GONE}, isError: false"
    assert redactor.text("canary-3fa98b77c0d1") == "canary-3fa98b77c0d1"
