"""The grid of revisions: every client with every server, feature by feature, end to end (see `grid.py`)."""

from __future__ import annotations

import official
import pytest
from bridge import grid
from bridge.grid import CELLS, CONVERSATIONS, DEFINED, FEATURES, MODERN, PAGE, REVISIONS, cell, table, with_table
from official import LEGACY, Json
from peers import gateway

WHOSE_IS_OLDER = [
    pytest.param(*each, id=f"{each[0]}: {each[1]} client, {each[2]} server")
    for each in CELLS
    if FEATURES[each[0]].undefined(*each[1:]) == "c"
]


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
    """The server, which has it, is told so; a modern one is not to ask what was not declared."""
    async with gateway(there=grid.server(server)) as rig:
        asked = await rig.legacy(client)
        reply = await asked.call("there__user" if name == "elicitation" else "there__visit")
        assert asked.asked == []
        assert "did not declare" in reply.error["message"]


# What each method of a client needs to be answered by a result.
PARAMS: Json = {
    "ping": {},
    "tools/list": {},
    "prompts/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "tools/call": {"name": "there__greet", "arguments": {"who": "Ann"}},
    "prompts/get": {"name": "there__greet", "arguments": {"who": "Ann"}},
    "resources/read": {"uri": "there+mem://a"},
    "resources/subscribe": {"uri": "there+mem://a"},
    "resources/unsubscribe": {"uri": "there+mem://a"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "there__greet"},
        "argument": {"name": "who", "value": "A"},
    },
    "logging/setLevel": {"level": "info"},
    "server/discover": {},
}


@pytest.mark.promise("001.methods.all")
@pytest.mark.parametrize("server", ["2024-11-05", LEGACY[-1], MODERN])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_method_of_a_revision_is_served(revision: str, server: str) -> None:
    """Tasks, an experiment of one revision and an extension of the next, have tests of their own."""
    methods = [method for method in official.requests(revision) if not method.startswith("tasks/")]
    async with gateway(there=grid.server(server)) as rig:
        client = await rig.client(revision)
        for method in methods:
            if method == "subscriptions/listen":
                ear = await client.listen("there+mem://a")  # type: ignore[misc]
                assert ear.honoured == {"resourceSubscriptions": ["there+mem://a"]}  # type: ignore[union-attr]
            elif method != "initialize":  # which the client has said already
                assert (await client.request(method, **PARAMS[method])).result is not None


def test_every_feature_has_its_conversation() -> None:
    assert list(FEATURES) == list(CONVERSATIONS)


def test_the_page_shows_the_grid_as_it_is() -> None:
    """Each cell is played above; what fails there does not stand here as a thing that works."""
    page = PAGE.read_text()
    assert with_table(page, table(dict.fromkeys(DEFINED, True))) == page, "the grid has changed: run `make grid`"
