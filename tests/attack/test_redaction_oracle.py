"""Whoever can have their own words redacted must learn nothing of secrets by it."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from peers import LATEST, MODERN, LegacyServer, RpcError, Scene, gateway
from virtualtime import FakeClock

from toolgate.config import Audit, Config, Limits
from toolgate.config.access import KnownClient, Permissions, Rate, Rates
from toolgate.core.redaction import GONE, Redactor
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

SECRET = "tg-Zk3vR9wQ7xL2mN8pB4sD"
ALPHABET = string.ascii_letters + string.digits + "-"
BEGINNING = 12  # characters that the attacker knows already
EVERYTHING = Config()
NOTHING = Config(clients=(KnownClient(id="ann", name="ann", servers="none"),))
ASKING = Config(clients=(KnownClient(id="ann", name="ann", permissions=Permissions(everything="ask")),))


async def echoes(scene: Scene) -> str:
    return f"you said {json.dumps(scene.arguments)}"


async def complains(scene: Scene) -> str:
    raise RpcError(-32602, f"what is {scene.arguments}?", {"said": scene.arguments})


def holder(secret: str = SECRET) -> LegacyServer:
    server = LegacyServer({"echoes": echoes, "complains": complains})
    server.settings["env"] = {"API_KEY": secret}
    return server


Ask = Callable[[Any, str], Awaitable[str]]


async def by_name(client: Any, guess: str) -> str:
    return json.dumps((await client.call(guess)).message)


async def by_namespaced_name(client: Any, guess: str) -> str:
    return json.dumps((await client.call(f"there__{guess}")).message)


async def by_uri(client: Any, guess: str) -> str:
    return json.dumps((await client.request("resources/read", uri=f"x://{guess}")).message)


async def by_prompt(client: Any, guess: str) -> str:
    return json.dumps((await client.request("prompts/get", name=guess)).message)


async def by_control_tool(client: Any, guess: str) -> str:
    said = await client.call("mcp_call", arguments={"server": guess, "tool": guess, "arguments": {guess: guess}})
    return json.dumps(said.message)


async def by_echo(client: Any, guess: str) -> str:
    return json.dumps((await client.call("there__echoes", arguments={"text": guess})).message)


async def by_complaint(client: Any, guess: str) -> str:
    return json.dumps((await client.call("there__complains", arguments={guess: guess})).message)


async def by_search(client: Any, guess: str) -> str:
    return json.dumps((await client.call("search_tools", arguments={"query": guess})).message)


WAYS = [by_name, by_namespaced_name, by_uri, by_prompt, by_control_tool, by_echo, by_complaint, by_search]


async def shown_for(ask: Ask, client: Any, guess: str) -> str:
    """What comes back, with the guess and the number of the request taken out: what differs answers a question."""
    message = json.loads(await ask(client, guess))
    message.pop("id", None)
    return json.dumps(message).replace(guess, "<guess>")


@pytest.mark.promise("b.attacks.redaction")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("config", [EVERYTHING, NOTHING, ASKING], ids=["open", "without rights", "asking"])
@pytest.mark.parametrize("ask", WAYS)
async def test_a_guess_at_the_next_character_of_a_secret_gets_no_answer(
    ask: Ask, config: Config, revision: str
) -> None:
    async with gateway(config=config, there=holder()) as rig:
        client = await rig.client(revision)
        right = SECRET[: BEGINNING + 1]
        wrong = SECRET[:BEGINNING] + "~"
        assert await shown_for(ask, client, right) == await shown_for(ask, client, wrong)
        assert GONE not in await ask(client, right)


@pytest.mark.attack
@pytest.mark.parametrize("ask", WAYS)
async def test_a_secret_cannot_be_read_character_by_character(ask: Ask) -> None:
    """The whole attack: each guess is answered as a gateway answers it that has another secret. (That all guesses are
    answered alike would say less, and is not so of a search: some of them are like words of a tool.)"""
    async with (
        gateway(config=EVERYTHING, there=holder()) as rig,
        gateway(config=EVERYTHING, there=holder("tg-another")) as without,
    ):
        client, other = await rig.client(LATEST), await without.client(LATEST)
        for length in range(BEGINNING, len(SECRET) - 1):
            for guess in (SECRET[:length] + letter for letter in ALPHABET):
                shown = await shown_for(ask, client, guess)
                assert shown == await shown_for(ask, other, guess), f"character {length} of the secret can be told"


@pytest.mark.parametrize("ask", [by_name, by_echo])
@pytest.mark.parametrize(
    "around",
    [
        "{}~",
        "~{}",
        "{} {}",
        'x"{}',
        "{}" + "a" * 4090,
    ],
)
async def test_what_stands_around_a_whole_secret_says_nothing_of_its_ends(ask: Ask, around: str) -> None:
    async with gateway(config=EVERYTHING, there=holder()) as rig:
        client = await rig.client(LATEST)
        assert SECRET not in (shown := await ask(client, around.replace("{}", SECRET)))
        assert "aaaa" not in shown


async def test_pieces_of_a_secret_cannot_be_told_by_how_much_of_a_longer_text_goes() -> None:
    """Whole secret with guessed neighbours: all that adjoins goes, so that no boundary is seen."""
    for guess in (f"{SECRET}a", f"a{SECRET}", f"KEY={SECRET}==", f"{SECRET}/{SECRET}"):
        assert Redactor([SECRET]).text(f"<{guess}>") == f"<{GONE}>"


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
async def test_a_secret_at_the_edge_of_what_is_quoted_of_a_server_does_not_show_its_beginning(cut: int) -> None:
    async def dies(scene: Scene) -> str:
        scene.crash("x " * 10)
        return "never"

    from toolgate.upstreams.links.refusals import shown

    redactor = Redactor([SECRET])
    body = b" " * (200 - cut) + SECRET.encode() + b" and more"
    assert SECRET[:cut] not in shown(body, "there").strip() or cut < 3
    assert "tg-" not in shown(body, "there")
    assert redactor.knows_any


async def test_encodings_of_a_part_are_no_way_around() -> None:
    redactor = Redactor([SECRET])
    for part in (SECRET[:13], SECRET[3:], base64.b64encode(SECRET[:13].encode()).decode(), SECRET[:13].upper()):
        assert redactor.text(part) is part


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_guesses_at_names_are_charged(revision: str) -> None:
    config = Config(limits=Limits(rates=Rates(principal=Rate(3, 60.0))))
    async with gateway(config=config, there=holder()) as rig:
        client = await rig.client(revision)
        codes = [(await client.call(f"guess-{number}")).error["data"]["code"] for number in range(5)]
        assert codes == ["TOOL_NOT_FOUND"] * 3 + ["RATE_LIMITED"] * 2
        assert (await client.request("resources/read", uri="x://y")).error["data"]["code"] == "RATE_LIMITED"
        assert (await client.call("there__echoes")).error["data"]["code"] == "RATE_LIMITED"


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_guesses_at_names_are_in_the_audit(revision: str, tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor([SECRET]))
    on = msgspec.structs.replace(EVERYTHING, audit=Audit(enabled=True))
    async with gateway(config=on, audit=trail, there=holder()) as rig:
        client = await rig.client(revision)
        await client.call(SECRET[:13])
        await client.request("prompts/get", name="no-such")
        await client.request("resources/read", uri="x://none")
        await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    calls = [(each["target"], each["decision"], each["code"]) for each in lines if each["event"] == "call"]
    assert calls == [
        (SECRET[:13], "deny", "TOOL_NOT_FOUND"),
        ("no-such", "deny", "PROMPT_NOT_FOUND"),
        ("x://none", "deny", "RESOURCE_NOT_FOUND"),
    ]
