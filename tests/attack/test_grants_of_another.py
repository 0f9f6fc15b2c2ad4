"""When the operator names another issuer or another client for a server, nothing that the old one has granted is used:
not its token, not what renews it, not a sign-in that is under way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from authority import Authority
from unit.test_oauth import House, link_of

from toolgate.config.access import ServerAuth
from toolgate.core.model import Fault
from toolgate.state.memory import MemoryStore

NEW = "https://new.example"
DOCUMENT = "https://operator.example/client.json"


def configured_anew(house: House, **auth: Any) -> Any:
    """The badge of the same gateway after its configuration was edited."""
    house.server = msgspec.structs.replace(house.server, auth=ServerAuth(**auth))
    house.oauth.knows({"docs": house.server})
    return house.badge_of("ann")


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"issuer": NEW}),
    ({"issuer": "https://as.example"}, {"issuer": NEW}),
    ({"client_id": "first"}, {"client_id": "second"}),
    ({}, {"client_id": "second"}),
    ({"client_id": "first"}, {}),
    ({"client_id": "first"}, {"client_id": DOCUMENT}),
    ({"client_id": "first", "issuer": "https://as.example"}, {"client_id": "first", "issuer": NEW}),
]
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"issuer": "https://as.example"}),
    ({}, {"issuer": "https://as.example/"}),
    ({"issuer": "https://as.example"}, {}),
    ({"client_id": "first"}, {"client_id": "first", "scopes": ("more",)}),
    ({"client_id": "first"}, {"client_id": "first", "client_secret": "another"}),
]


@pytest.mark.promise("b.attacks.grants-of-another")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("before", "after"), CHANGES, ids=str)
async def test_what_another_issuer_or_client_was_granted_is_not_shown(
    before: dict[str, Any], after: dict[str, Any], restarts: bool
) -> None:
    house = House(Authority(), **before)
    shown = await house.sign_in()
    assert shown
    if restarts:
        house = House(house.authority, store=house.store, **after)
        badge = house.badge
    else:
        badge = configured_anew(house, **after)
    assert await badge.shown() == ""
    renewals = [told for told in house.authority.asked("/token") if told["grant_type"] == "refresh_token"]
    assert not renewals


@pytest.mark.parametrize(("before", "after"), SAME, ids=str)
async def test_a_change_that_names_no_other_costs_nobody_a_sign_in(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    house = House(Authority(), **before)
    shown = await house.sign_in()
    assert await configured_anew(house, **after).shown() == shown


async def test_a_refusal_does_not_bring_it_back_and_nothing_of_it_reaches_the_new_issuer() -> None:
    old, new = Authority(), Authority(issuer=NEW)
    house = House(old, new)
    first = await house.sign_in()
    old.resource["authorization_servers"] = [old.issuer, new.issuer]
    badge = configured_anew(house, issuer=new.issuer)
    asked = len(old.asked("/token"))
    shown = await house.sign_in(badge, shown=first)
    assert shown != first and shown.removeprefix("Bearer ") in new.tokens
    assert len(old.asked("/token")) == asked
    told = str(new.requests)
    assert not any(secret in told for secret in (*old.clients.values(), *old.tokens, *old.refreshes))


async def test_a_sign_in_that_was_begun_before_the_change_is_not_finished() -> None:
    house = House()
    begun = await house.begun(await house.fault())
    configured_anew(house, issuer=NEW)
    with pytest.raises(Fault, match="no longer configured"):
        await house.back(begun)
    assert not house.authority.asked("/token")


async def test_a_page_that_was_offered_before_the_change_is_not_offered_again() -> None:
    old, new = Authority(), Authority(issuer=NEW)
    house = House(old, new)
    before = link_of(await house.fault())
    old.resource["authorization_servers"] = [new.issuer]
    badge = configured_anew(house, issuer=new.issuer)
    after = link_of(await house.fault(badge))
    assert before != after
    offered = house.oauth.find(after)
    assert offered and offered.authority == "new.example"


async def test_what_is_forgotten_is_forgotten_whatever_it_was_granted_by() -> None:
    store = MemoryStore(House().oauth.clock)  # type: ignore[arg-type]
    house = House(store=store)
    await house.sign_in()
    configured_anew(house, issuer=NEW)
    assert await house.oauth.forget(house.server, "ann")
    assert await configured_anew(house).shown() == ""
