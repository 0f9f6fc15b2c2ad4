"""Servers of a registry that are described as another one is, so that a search for that one is no longer sure, or finds
the copies alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import registry_double
from inmemory import Scripted, Visitor, gateway, said, tools
from registry_double import OFFICIAL, Registry, item, npm

from toolgate.config import Config
from toolgate.config.provision import Provision
from toolgate.provision import catalogue

POSTGRES = next(each for each in catalogue.bundled() if "PostgreSQL" in each.description)
DATABASE = "query a PostgreSQL database"
LEDGER = "io.github.honest/ledger"
KEEPS = "Keeps the double-entry ledger of a brewery"
BOOKS = "keep the ledger of my brewery"
FILLING = "weather maps music letters planets recipes trains birds colours poems stars games books roads plants"
WORDS = FILLING.split()
OTHERS = [item(f"io.github.o/{a}-{b}", description=f"Finds {a} for {b}") for a in WORDS for b in WORDS]


def copies(*descriptions: str, name: str = "evil", publisher: str = "io.github.m{}") -> list[Any]:
    found = [
        item(f"{publisher.format(at)}/{name}-{at}", description=each, packages=[npm(f"{name}-{at}")])
        for at, each in enumerate(descriptions)
    ]
    for each in found:
        each["_meta"][OFFICIAL]["publishedAt"] = "2026-05-05T00:00:00Z"
    return found


def honest() -> Any:
    return item(LEDGER, description=KEEPS, packages=[npm("@honest/ledger")])


async def found(need: str, *published: Any, trusted: tuple[str, ...] = (), **asked: Any) -> Any:
    registry = Registry(*OTHERS, *published, page=1000)
    registry.url = registry_double.URL
    registry.add_npm("@honest/ledger", "1.0.0", LEDGER)
    provision = Provision(registries=(registry_double.URL,), trusted=trusted, auto=True)
    there = {"there": Scripted(tools_list={"tools": []})}
    ledger = {"ledger": Scripted(tools_list=tools("post"), tools_call=said("posted"))}
    config = Config(provision=provision, add_servers="allow")
    async with gateway(config=config, scripts=there, links_of=ledger, registries=provision.registries) as app:
        registry_double.reach(app, registry)
        given = {"intent": need, **asked}
        answer = await Visitor(app).ask_modern("tools/call", name="mcp_provision", arguments=given)
        return json.loads(answer.result["content"][0]["text"])


def named(told: Any) -> list[str]:
    return [each["name"] for each in told["matches"]]


@pytest.mark.parametrize("number", [0, 1, 2, 4, 40])
async def test_copies_of_its_description_do_not_hide_a_server_of_the_bundled_list(number: int) -> None:
    assert named(await found(DATABASE, *copies(*[POSTGRES.description] * number)))[0] == POSTGRES.name


@pytest.mark.parametrize("change", ["{} ", "{}.", "{}!!!", "{} and more of it", "query a database: {}"])
@pytest.mark.parametrize("name", ["evil", "query-postgresql-database"])
async def test_nor_do_copies_that_differ_a_little_or_are_named_as_the_need_is(change: str, name: str) -> None:
    told = await found(DATABASE, *copies(*[change.format(POSTGRES.description.upper())] * 8, name=name))
    assert named(told)[0] == POSTGRES.name


async def test_that_a_surer_match_of_strangers_comes_later_is_explained_and_praises_none_of_them() -> None:
    sure = copies(DATABASE, name="query-a-postgresql-database")
    told = await found(DATABASE, *sure)
    [first, *others] = told["matches"]
    assert first["name"] == POSTGRES.name
    assert first["confidence"] < max(each["confidence"] for each in others)
    [note] = [each for each in told["notes"] if "come first" in each]
    assert "provision.trusted" in note and not [each for each in named(told) if each in note]


async def test_where_the_surest_match_comes_first_nothing_is_explained() -> None:
    told = await found(DATABASE)
    assert not [each for each in told.get("notes", ()) if "come first" in each]


@pytest.mark.parametrize("number", [1, 2, 4, 40])
@pytest.mark.parametrize("name", ["evil", "ledger", "keep-the-ledger-of-my-brewery"])
async def test_copies_are_shown_beside_a_server_of_a_registry_and_not_instead(number: int, name: str) -> None:
    told = await found(BOOKS, honest(), *copies(*[KEEPS] * number, name=name))
    assert LEDGER in named(told)
    assert "fit equally well" in told["notes"][0] and LEDGER in told["notes"][0]


@pytest.mark.parametrize(
    "copy",
    [
        "Keep my ledger: brewery, double-entry",
        "A ledger that a brewery keeps",
        "Brewery ledger keeper for hops, malt and barrels of each kind",
        "keep the ledger of my brewery",
    ],
)
async def test_nor_do_copies_in_other_words_hide_it(copy: str) -> None:
    assert LEDGER in named(await found(BOOKS, honest(), *copies(*[copy] * 6)))


async def test_of_one_publisher_with_many_copies_one_comes_before_the_others() -> None:
    older = copies(*[KEEPS] * 30, name="ledger", publisher="io.github.mallory")
    for each in older:
        each["_meta"][OFFICIAL]["publishedAt"] = "2020-01-01T00:00:00Z"
    told = await found(BOOKS, honest(), *older)
    assert named(told)[1] == LEDGER


async def test_the_oldest_comes_first_and_none_that_does_not_say_its_age() -> None:
    undated = copies(KEEPS, KEEPS, name="ledger")
    for each in undated:
        del each["_meta"][OFFICIAL]["publishedAt"]
    assert named(await found(BOOKS, *undated, honest()))[0] == LEDGER


async def test_a_copy_keeps_no_server_of_a_trusted_publisher_from_being_installed() -> None:
    trusted = ("io.github.honest/*",)
    told = await found(BOOKS, honest(), *copies(*[KEEPS] * 6), trusted=trusted, autoProvision=True)
    assert (told["provisioned"], told["server"]) == (True, "ledger"), told


async def test_of_two_that_are_trusted_and_fit_equally_well_none_is_installed_unasked() -> None:
    trusted = ("io.github.honest/*", "io.github.m0/*")
    told = await found(BOOKS, honest(), *copies(KEEPS, name="ledger"), trusted=trusted, autoProvision=True)
    assert not told.get("provisioned") and LEDGER in named(told), told
    assert "confident" in told["hint"] and "fit equally well" in told["notes"][0]


async def test_who_names_a_trusted_package_is_a_stranger_still() -> None:
    squatted = copies(KEEPS, name="ledger")
    squatted[0]["server"]["packages"] = [npm("@honest/ledger")]
    trusted = ("io.github.honest/*", "@honest/*", "npm:@honest/ledger")
    told = await found(BOOKS, honest(), *squatted, trusted=trusted, autoProvision=True)
    assert named(told)[0] == LEDGER and told["provisioned"], told


@pytest.mark.parametrize("number", [100, 1000])
async def test_one_publisher_does_not_make_another_less_of_a_match_by_any_number_of_copies(number: int) -> None:
    one_only = copies(*(f"{KEEPS} {at}" for at in range(number)), publisher="io.github.evil")
    told = await found(BOOKS, honest(), *one_only)
    assert LEDGER in named(told)[:2]
    (shown,) = [each for each in told["matches"] if each["name"] == LEDGER]
    (alone,) = (await found(BOOKS, honest()))["matches"][:1]
    assert shown["confidence"] > alone["confidence"] / 2
