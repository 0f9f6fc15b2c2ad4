"""docs/overlays.md shows what is so."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.catalog import overlays
from toolgate.catalog.base import ServerList
from toolgate.catalog.views import CatalogView
from toolgate.config import Overlay
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.surfaces.bundle import Bundle

PAGE = (Path(__file__).parents[1] / "docs" / "overlays.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def overlays_of(text: str) -> overlays.Overlays:
    return msgspec.convert(tomllib.loads(text)["mcpServers"]["store"]["tools"], dict[str, Overlay])


def server_list(*tools: Any) -> ServerList:
    return ServerList({tool["name"]: Raw(json.dumps(tool).encode()) for tool in tools})


LISTED, SHOWN, GIVEN, SENT = map(json.loads, blocks("json"))
EXAMPLE, ALLOWED, BUNDLES = blocks("toml")


def entered(server_list: ServerList, name: str, arguments: Any) -> Call:
    call = Call("tools/call", name, Client(), Raw(json.dumps(arguments).encode()), server="store")
    return overlays.enter(call, overlays.find(server_list, call))


def test_the_example_is_shown_and_called_so() -> None:
    found = overlays.apply(server_list(LISTED, {"name": "drop_table"}), overlays_of(EXAMPLE))
    assert [json.loads(bytes(raw)) for raw in found.items.values()] == [SHOWN]
    assert not found.warnings
    call = entered(found, "search_orders", GIVEN)
    assert (call.target, json.loads(bytes(call.arguments))) == ("query", SENT)


def test_the_example_refuses_as_the_page_says() -> None:
    found = overlays.apply(server_list(LISTED), overlays_of(EXAMPLE))
    try:
        entered(found, "search_orders", {"db": "users"})
    except Fault as fault:
        assert f"`{fault.code}`: `{fault.message}`" in PAGE
    else:
        raise AssertionError("it was not refused")


def test_only_what_is_named_is_shown() -> None:
    found = overlays.apply(server_list(*({"name": name} for name in ("query", "insert", "drop"))), overlays_of(ALLOWED))
    assert list(found.items) == ["query", "add_order"]


def test_the_bundle_lists_what_the_page_says() -> None:
    (patterns,) = tomllib.loads(BUNDLES)["bundles"].values()
    server_lists = {
        "mail": server_list(*({"name": name} for name in ("get_one", "send", "search"))),
        "calendar": server_list({"name": "today"}),
    }
    view = CatalogView(tuple(server_lists), lambda server, _kind: server_lists[server], {}, ())
    listed = [json.loads(bytes(raw))["name"] for raw in Bundle(patterns).list("tools", view)]
    assert listed == ["calendar__today", "mail__search", "mail__get_one"]
