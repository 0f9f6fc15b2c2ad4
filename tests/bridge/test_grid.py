"""The grid of revisions: every client with every server, feature by feature, end to end (see `grid.py`)."""

from __future__ import annotations

import official
import pytest
from bridge import grid
from bridge.grid import CELLS, CONVERSATIONS, DEFINED, FEATURES, MODERN, PAGE, REVISIONS, cell, table, with_table
from official import LEGACY
from peers import LegacyServer, gateway

WHOSE_IS_OLDER = [
    pytest.param(*each, id=f"{each[0]}: {each[1]} client, {each[2]} server")
    for each in CELLS
    if FEATURES[each[0]].undefined(*each[1:]) == "c" and each[2] in LEGACY
]


@pytest.mark.promise("001.methods.all")
@pytest.mark.parametrize(
    ("name", "client", "server"),
    [pytest.param(*each, id=f"{each[0]}: {each[1]} client, {each[2]} server") for each in DEFINED],
)
async def test_a_cell_of_the_grid_works(name: str, client: str, server: str) -> None:
    await cell(name, client, server)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("name", FEATURES)
def test_a_revision_has_what_its_official_schema_has(name: str, revision: str) -> None:
    feature = FEATURES[name]
    known = official.knows(revision, feature.modern if revision == MODERN else feature.legacy)
    assert known == (revision >= feature.client) == (revision >= feature.server)


@pytest.mark.parametrize(("name", "client", "server"), WHOSE_IS_OLDER)
async def test_a_client_is_not_asked_what_its_revision_does_not_have(name: str, client: str, server: str) -> None:
    """The server, which has it, is told no."""
    there = grid.server(server)
    assert isinstance(there, LegacyServer)
    async with gateway(there=there) as house:
        asked = await house.legacy(client)
        reply = await asked.call("there__user" if name == "elicitation" else "there__visit")
        assert (reply.text, asked.asked) == ("decline", [])


def test_every_feature_has_its_conversation() -> None:
    assert list(FEATURES) == list(CONVERSATIONS)


def test_the_page_shows_the_grid_as_it_is() -> None:
    """Each cell is played above; what fails there does not stand here as a thing that works."""
    page = PAGE.read_text()
    assert with_table(page, table(dict.fromkeys(DEFINED, True))) == page, "the grid has changed: run `make grid`"
