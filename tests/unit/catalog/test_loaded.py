"""What clients have loaded of tools is remembered in bounded memory."""

from __future__ import annotations

import pytest
from msgspec import Raw

from toolgate.catalog import loaded
from toolgate.catalog.loaded import LoadedTools
from toolgate.core.model import Client, Principal


def client(name: str) -> Client:
    return Client(Principal(name), name, path="/mcp")


def a_list(size: int) -> tuple[Raw, ...]:
    return (Raw(b"x" * size),)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> LoadedTools:
    monkeypatch.setattr(loaded, "MOST_BYTES", 1000)
    return LoadedTools()


def known(tools: LoadedTools) -> list[str]:
    return [each.client.session for each in tools.all()]


def test_of_clients_with_lists_of_their_own_the_latest_are_remembered(tools: LoadedTools) -> None:
    for name in ("ann", "bob", "cy"):
        tools.listed(client(name), a_list(400))
    assert known(tools) == ["cy", "bob"]
    tools.listed(client("bob"), a_list(400))
    tools.listed(client("cy"), a_list(5000))
    assert known(tools) == ["cy"]


def test_a_list_that_many_share_counts_once_and_as_long_as_one_has_it(tools: LoadedTools) -> None:
    shared, names = a_list(900), [f"client {number}" for number in range(50)]
    for name in names:
        tools.listed(client(name), shared)
        tools.listed(client(name), shared)
    assert len(known(tools)) == 50
    for name in names[1:]:
        tools.forget(client(name))
    tools.listed(client("ann"), a_list(50))
    assert known(tools) == ["ann", names[0]]
    tools.forget(client(names[0]))
    tools.listed(client("bob"), a_list(900))
    tools.listed(client("cy"), ())
    assert known(tools) == ["cy", "bob", "ann"]
