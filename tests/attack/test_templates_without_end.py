"""Any template of any server may make a URI that a client writes without its server's name: it is held against them all,
and servers choose how many these are, and how much of them is like it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, tools
from virtualtime import VirtualTimeLoop

from toolgate.config import Config, Permissions
from toolgate.config.access import KnownClient
from toolgate.core.templates import MOST_EXPRESSIONS
from toolgate.gateway import resolve
from toolgate.surfaces import uris

CALM = "note://{name}"
URI = "b:" + "b" * 4_000


def odd(count: int, expressions: int = MOST_EXPRESSIONS - 1) -> list[str]:
    return ["{v%d}" % number + "b{}" * expressions + "c" for number in range(count)]


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
