"""When the operator names another issuer or another client for a server, nothing that the old one has granted is used:
not its token, not what renews it, not a sign-in that is under way."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from authority import Authority
from unit.auth.test_oauth import Rig, link_of

from toolgate.config import Config, ServerAuth
from toolgate.core.fault import Fault
from toolgate.state.changes import StoreChanges
from toolgate.state.memory import MemoryStore

NEW = "https://new.example"
DOCUMENT = "https://operator.example/client.json"


def configured_anew(rig: Rig, **auth: Any) -> Any:
    """The credential of the same gateway after its configuration was edited."""
    rig.server = msgspec.structs.replace(rig.server, auth=ServerAuth(**auth))
    rig.oauth.prepared(Config(servers=(rig.server,)))()
    return rig.badge_of("ann")


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
    rig = Rig(Authority(), **before)
    shown = await rig.sign_in()
    assert shown
    if restarts:
        rig = Rig(rig.authority, store=rig.store, **after)
        credential = rig.credential
    else:
        credential = configured_anew(rig, **after)
    assert await credential.shown() == ""
    renewals = [told for told in rig.authority.asked("/token") if told["grant_type"] == "refresh_token"]
    assert not renewals


@pytest.mark.parametrize(("before", "after"), SAME, ids=str)
async def test_a_change_that_names_no_other_costs_nobody_a_sign_in(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    rig = Rig(Authority(), **before)
    shown = await rig.sign_in()
    assert await configured_anew(rig, **after).shown() == shown


async def test_a_refusal_does_not_bring_it_back_and_nothing_of_it_reaches_the_new_issuer() -> None:
    old, new = Authority(), Authority(issuer=NEW)
    rig = Rig(old, new)
    first = await rig.sign_in()
    old.resource["authorization_servers"] = [old.issuer, new.issuer]
    credential = configured_anew(rig, issuer=new.issuer)
    asked = len(old.asked("/token"))
    shown = await rig.sign_in(credential, shown=first)
    assert shown != first and shown.removeprefix("Bearer ") in new.tokens
    assert len(old.asked("/token")) == asked
    told = str(new.requests)
    assert not any(secret in told for secret in (*old.clients.values(), *old.tokens, *old.refreshes))


async def test_a_sign_in_that_was_begun_before_the_change_is_not_finished() -> None:
    rig = Rig()
    begun = await rig.begun(await rig.fault())
    configured_anew(rig, issuer=NEW)
    with pytest.raises(Fault, match="was reconfigured"):
        await rig.back(begun)
    assert not rig.authority.asked("/token")


async def test_a_page_that_was_offered_before_the_change_is_not_offered_again() -> None:
    old, new = Authority(), Authority(issuer=NEW)
    rig = Rig(old, new)
    before = link_of(await rig.fault())
    old.resource["authorization_servers"] = [new.issuer]
    credential = configured_anew(rig, issuer=new.issuer)
    after = link_of(await rig.fault(credential))
    assert before != after
    offered = rig.oauth.find(after)
    assert offered and (offered.authority, offered.leads_to) == ("https://new.example", "new.example")


async def test_what_is_forgotten_is_forgotten_whatever_it_was_granted_by() -> None:
    store = MemoryStore(Rig().oauth.clock)  # type: ignore[arg-type]
    rig = Rig(store=store)
    await rig.sign_in()
    configured_anew(rig, issuer=NEW)
    assert await rig.oauth.forget(rig.server, "ann")
    assert await configured_anew(rig).shown() == ""


def other_gateway(rig: Rig) -> Rig:
    """Another gateway on the same store, which has used the grant and knows it."""
    return Rig(rig.authority, store=rig.store)


async def test_what_one_gateway_forgets_no_other_shows() -> None:
    there = Rig()
    changes = StoreChanges(there.store, there.oauth.clock)
    changes.listen("sign-ins", there.oauth.vault.look)
    following = asyncio.get_running_loop().create_task(changes.follow())
    shown = await there.sign_in()
    assert shown and await there.credential.shown() == shown
    assert await other_gateway(there).oauth.forget(there.server, "ann")
    await there.oauth.clock.sleep(1)
    assert await there.credential.shown() == ""
    assert (await there.fault(shown=shown)).code == "SIGN_IN_REQUIRED"
    following.cancel()


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_renewal_does_not_bring_back_what_was_forgotten_meanwhile(is_refused: bool) -> None:
    """By a gateway that has not heard of it yet, before its token ends or when a server refuses that."""
    there = Rig()
    shown = await there.sign_in()
    assert await other_gateway(there).oauth.forget(there.server, "ann")
    if is_refused:
        assert (await there.fault(shown=shown)).code == "SIGN_IN_REQUIRED"
    else:
        await there.oauth.clock.sleep(3600 * 24)
        assert await there.credential.shown() == ""
    assert there.oauth.vault.read_again(there.server, "ann") is None


async def test_a_forget_that_comes_while_a_grant_is_renewed_wins() -> None:
    there = Rig()
    await there.sign_in()
    grant = there.oauth.vault.grant(there.server, "ann")
    assert grant
    renewed = msgspec.structs.replace(grant, token="after")
    assert await other_gateway(there).oauth.forget(there.server, "ann")
    assert not await there.oauth.vault.renew(grant, renewed)
    assert there.oauth.vault.grant(there.server, "ann") is None


async def test_a_grant_that_was_only_written_anew_is_renewed() -> None:
    there = Rig()
    await there.sign_in()
    grant = there.oauth.vault.grant(there.server, "ann")
    assert grant
    await other_gateway(there).oauth.vault.keep(msgspec.structs.replace(grant, kept=grant.kept + 1))
    assert await there.oauth.vault.renew(grant, msgspec.structs.replace(grant, token="after"))
    found = there.oauth.vault.read_again(there.server, "ann")
    assert found and found.token == "after"
