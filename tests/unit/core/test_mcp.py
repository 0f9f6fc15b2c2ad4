"""The tables of MCP: every method has who handles it, revisions stand in order, and what is derived agrees."""

from __future__ import annotations

import pytest

from toolgate.core import mcp
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.session import Session

HANDLERS = {
    "legacy": Session._HANDLERS,  # pyright: ignore[reportPrivateUsage]
    "modern": ModernResponses._HANDLERS,  # pyright: ignore[reportPrivateUsage]
}
REFUSES = {
    "legacy": Session._refuse,  # pyright: ignore[reportPrivateUsage]
    "modern": ModernResponses._refuse,  # pyright: ignore[reportPrivateUsage]
}


@pytest.mark.parametrize("era", HANDLERS)
@pytest.mark.parametrize("name", mcp.METHODS)
def test_a_method_is_handled_in_the_eras_that_have_it_unless_servers_alone_make_it(name: str, era: mcp.Era) -> None:
    method = mcp.METHODS[name]
    is_refused = HANDLERS[era][name] is REFUSES[era]
    assert is_refused is (era not in method.eras or method.role == "ask")


def test_a_role_that_no_frontend_has_is_refused() -> None:
    assert mcp.handlers("legacy", {"ping": "answer"}, "refuse") == {
        name: "answer" if name == "ping" else "refuse" for name in mcp.METHODS
    }


def test_each_kind_of_list_has_one_method_and_one_row_of_kinds() -> None:
    assert mcp.LIST_OF_KIND.keys() == mcp.KINDS.keys()
    assert len(mcp.LIST_OF_KIND) == len(mcp.LISTS)


def test_what_a_call_or_a_subscription_names_stands_in_a_list_that_there_is() -> None:
    kinds = {*mcp.KINDS, "tasks", ""}
    assert {method.kind for method in mcp.TARGETED.values()} <= kinds
    assert {kind for each in mcp.NOTIFICATIONS.values() for kind in each.lists} == set(mcp.KINDS)


def test_what_is_filtered_by_is_declared_by_a_capability_that_is_served() -> None:
    assert all("listChanged" in mcp.CAPABILITIES[capability] for capability, _ in mcp.LIST_FILTERS.values())
    assert all(mcp.METHODS[method].target for method in mcp.WATCH_FILTERS.values())


def test_revisions_stand_in_order_and_the_modern_ones_after_those_with_a_handshake() -> None:
    assert list(mcp.REVISIONS) == sorted(mcp.REVISIONS)
    assert (*mcp.dates("legacy"), *mcp.dates("modern")) == tuple(mcp.REVISIONS)
    assert {"legacy": mcp.newest("legacy"), "modern": mcp.newest("modern")} == mcp.LATEST


def test_a_revision_is_known_in_its_own_era_only() -> None:
    assert mcp.revision("legacy", "2025-06-18") is mcp.REVISIONS["2025-06-18"]
    assert mcp.revision("modern", "2025-06-18") is mcp.revision("modern", "2030-01-01") is None
    assert mcp.revision("modern", None) is mcp.revision("modern", ["2026-07-28"]) is None


@pytest.mark.parametrize(("date", "is_modern"), [("2025-11-25", False), ("2026-07-28", True), ("2030-01-01", True)])
def test_a_revision_that_we_do_not_know_has_an_era_by_its_date(date: str, is_modern: bool) -> None:
    assert mcp.is_modern(date) is is_modern
    assert not mcp.is_modern(f"v{date}")


def test_the_newest_revision_that_both_sides_have_is_spoken() -> None:
    assert mcp.newest("modern", ["2030-01-01", *mcp.REVISIONS]) is mcp.LATEST["modern"]
    assert mcp.newest("legacy", ("2024-11-05", "2025-03-26")) is mcp.REVISIONS["2025-03-26"]
    assert mcp.newest("modern", ("2030-01-01",)) is None
