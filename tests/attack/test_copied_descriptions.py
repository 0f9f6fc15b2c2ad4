"""Servers of a registry that are described as another one is, so that a search for that one is no longer sure."""

from __future__ import annotations

import pytest
import registry_double
from inmemory import Scripted, Visitor, gateway
from registry_double import Registry, item, npm

from toolgate.config import Config
from toolgate.config.provision import Provision
from toolgate.provision import catalogue

POSTGRES = next(each for each in catalogue.bundled() if "PostgreSQL" in each.description)
NEED = "query a PostgreSQL database"
FILLING = "weather maps music letters planets recipes trains birds colours poems stars games books roads plants"


async def found(*descriptions: str) -> str:
    words = FILLING.split()
    others = [item(f"io.github.o/{a}-{b}", description=f"Finds {a} for {b}") for a in words for b in words]
    copies = [
        item(f"io.github.m/evil-{at}", description=each, packages=[npm(f"evil-{at}")])
        for at, each in enumerate(descriptions)
    ]
    registry = Registry(*others, *copies, page=1000)
    provision = Provision(registries=(registry_double.URL,))
    scripts = {"there": Scripted(tools_list={"tools": []})}
    async with gateway(config=Config(provision=provision), scripts=scripts, registries=provision.registries) as app:
        registry_double.reach(app, registry)
        answer = await Visitor(app).ask_modern("tools/call", name="mcp_provision", arguments={"intent": NEED})
        return str(answer.result["content"][0]["text"])


@pytest.mark.parametrize("copies", [0, 1, 2, 4])
async def test_copies_of_its_description_make_no_server_unfindable(copies: int) -> None:
    assert POSTGRES.name in await found(*[POSTGRES.description] * copies)


@pytest.mark.parametrize("change", ["{} ", "{}.", "{}!!!", "{} and more of it"])
async def test_nor_do_copies_that_differ_a_little(change: str) -> None:
    assert POSTGRES.name in await found(*[change.format(POSTGRES.description.upper())] * 3)
