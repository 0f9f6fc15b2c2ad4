"""Any template of any server may make a URI that a client writes without its server's name: it is held against them
all, and servers choose how many these are, and how much of them is like it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, tools
from virtualtime import VirtualTimeLoop

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.templates import MOST_EXPRESSIONS
from toolgate.gateway import templates as held_against
from toolgate.surfaces import uris

CALM = "note://{name}"
URI = "b:" + "b" * 4_000


def odd(count: int, expressions: int = MOST_EXPRESSIONS - 1) -> list[str]:
    return [f"{{v{number}}}{'b{a}' * expressions}c" for number in range(count)]


def server(templates: Iterable[str]) -> Scripted:
    listed = {"resourceTemplates": [{"uriTemplate": each, "name": "n"} for each in templates]}

    def read(params: Any) -> Any:
        return {"contents": [{"uri": params["uri"], "text": "read"}]}

    return Scripted(
        tools_list=tools("act"),
        resources_list={"resources": []},
        resources_templates_list=listed,
        resources_read=read,
    )


class Held:
    """How often a template is held against a URI on the event loop, and aside."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = self.aside = 0
        whole = uris.is_made_by

        def counted(template: str, uri: str) -> bool:
            if VirtualTimeLoop.is_aside:
                self.aside += 1
            else:
                self.here += 1
            return whole(template, uri)

        monkeypatch.setattr(uris, "is_made_by", counted)


KEY, KEY_2 = "tg_" + "a" * 40, "tg_" + "b" * 40


async def read(config: Config, uri: str, revision: str, *templates: str) -> tuple[Any, list[str]]:
    """What a client is told that reads it, and the templates that it was shown."""
    async with gateway(scripts={"calm": server([CALM]), "evil": server(templates)}, config=config) as app:
        visitor = Visitor(app, authorization=f"Bearer {KEY}")
        await visitor.initialize()
        shown = (await visitor.ask("resources/templates/list")).result["resourceTemplates"]
        asking = visitor.ask if revision == LATEST else visitor.ask_modern
        return (await asking("resources/read", uri=uri)).last, [each["uriTemplate"] for each in shown]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("last", ["", "b{a}b"])
async def test_a_uri_is_held_against_many_templates_aside(
    revision: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether none makes it, or the last of them."""
    held = Held(monkeypatch)
    templates = [*odd(400), *(["{z}" + last] if last else [])]
    told, shown = await read(Config(), URI, revision, *templates)
    assert len(shown) == 1 + len(templates)
    assert held.here == 0 and held.aside >= len(templates)
    if last:
        assert told["result"]["contents"][0]["text"] == "read"
    else:
        assert "not found" in told["error"]["message"]


async def test_against_few_it_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    told, _ = await read(Config(), "note://a", LATEST, *odd(3))
    assert told["result"]["contents"][0]["text"] == "read"
    assert held.aside == 0 and 1 <= held.here <= 8


async def test_so_it_is_for_a_client_that_may_not_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another client has had listed counts for it, too: its URI means nobody else's thing."""
    held, off = Held(monkeypatch), Permissions(servers={"evil": "off"})
    ann = KnownClient(id="ann", name="ann", key=KEY, servers="all", permissions=off)
    bob = KnownClient(id="bob", name="bob", key=KEY_2, servers="all")
    templates = {"calm": server([CALM]), "evil": server([*odd(400), "{z}b"])}
    async with gateway(scripts=templates, config=Config(clients=(ann, bob))) as app:
        for key in (KEY_2, KEY):
            visitor = Visitor(app, authorization=f"Bearer {key}")
            await visitor.initialize()
            shown = (await visitor.ask("resources/templates/list")).result["resourceTemplates"]
            assert len(shown) == (402 if key == KEY_2 else 1)
        assert "error" in (await visitor.ask("resources/read", uri=URI)).last
    assert held.here == 0 and held.aside >= 401


@pytest.mark.parametrize("brace", ["{", "\\u007b"])
async def test_a_template_of_too_many_expressions_is_left_out(brace: str) -> None:
    fine, odd_one = "b://" + "{a}/" * MOST_EXPRESSIONS, "b://" + "{a}/" * (MOST_EXPRESSIONS + 1)
    script = server([])
    listed = json.dumps({"resourceTemplates": [{"uriTemplate": each, "name": "n"} for each in (odd_one, fine)]})
    head, _, items = listed.partition("[{")
    script.answers["resources/templates/list"] = (head + "[{" + items.replace("{a", brace + "a")).encode()
    async with gateway(scripts={"evil": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        shown = (await visitor.ask("resources/templates/list")).result["resourceTemplates"]
    assert len(shown) == 1 and shown[0]["uriTemplate"].count("{") == MOST_EXPRESSIONS


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_list_that_changes_meanwhile_is_held_against_it_too(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lists others each time gains nothing by it."""
    held, script, changes = Held(monkeypatch), server([*odd(400)]), [3]
    other = server([f"x{each}" for each in odd(400)])
    async with gateway(scripts={"evil": script, "calm": server([CALM])}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("resources/templates/list")
        slices = held_against.in_slices

        def changing(*given: Any) -> Any:
            if changes[0]:
                changes[0] -= 1
                script.answers["resources/templates/list"] = other.answers["resources/templates/list"]
                script.tell("notifications/resources/list_changed")
            return slices(*given)

        monkeypatch.setattr(held_against, "in_slices", changing)
        asking = visitor.ask if revision == LATEST else visitor.ask_modern
        assert "not found" in (await asking("resources/read", uri=URI)).error["message"]
    assert held.here == 0 and changes[0] < 3
