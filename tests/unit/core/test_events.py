"""Who is told of what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core.events import MOST_PARTS, Events, is_part
from toolgate.core.model import Client, Event, Principal

uris = st.text("ab:/?#", min_size=1, max_size=MOST_PARTS)  # so none has more parts


def heard(watched: list[str], updated: str) -> list[str]:
    """Of these resources those whose watchers are told that one was updated."""
    events, told = Events(), []
    for index, uri in enumerate(watched):
        client = Client(Principal(f"client {index}"), "")
        events.listen_for(lambda _event, uri=uri: told.append(uri), client).watch("there", "resources", uri)
    events.tell(Event("there", "updated", uri=updated))
    return told


@given(st.lists(uris, unique=True, max_size=16), uris)
def test_who_watches_what_a_resource_is_a_part_of_is_told_of_it(watched: list[str], updated: str) -> None:
    assert heard(watched, updated) == [uri for uri in watched if uri == updated or is_part(updated, uri)]


@pytest.mark.parametrize("parts", [MOST_PARTS + 2, 16_000])
def test_of_more_parts_the_watchers_of_the_first_ones_and_of_all_are_told(parts: int) -> None:
    uri = "x:" + "/a" * parts
    nearest, farther, farthest = "x:", uri[: 2 * MOST_PARTS - 2], uri[: 2 * MOST_PARTS]
    assert heard([nearest, farther, farthest, uri], uri) == [nearest, farther, uri]
