"""Until when credentials are good that stand in the configuration, or were made for clients."""

from __future__ import annotations

import base64
import json

import pytest
from virtualtime import FakeClock

from toolgate.auth import keys
from toolgate.auth.credential_states import CredentialState, end_of, of_keys, of_servers
from toolgate.config import Server
from toolgate.state.memory import MemoryStore


def jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.c2lnbmVk"


def test_a_token_in_a_header_or_a_variable_says_when_it_ends() -> None:
    headers = {"Authorization": f"Bearer {jwt(exp=2_000_000_000)}", "X-Other": "plain"}
    child = Server(id="git", name="git", type="stdio", env={"TOKEN": jwt(exp=2_100_000_000), "HOME": "/home/ann"})
    found = list(of_servers([Server(id="docs", name="docs", type="http", headers=headers), child]))
    assert found == [
        CredentialState("header:Authorization", "docs", expires=2_000_000_000),
        CredentialState("variable:TOKEN", "git", expires=2_100_000_000),
    ]


@pytest.mark.parametrize(
    "token",
    ["", "plain", jwt(), jwt(exp="soon"), jwt(exp=1e400), jwt(exp=-1), jwt(exp=1) + "x" * 20_000, "eyJ.eyJ.x"],
)
def test_what_does_not_say_when_it_ends_or_is_no_token_is_not_listed(token: str) -> None:
    assert end_of(token) is None


async def test_a_key_that_ends_is_listed_by_its_id_and_one_that_does_not_is_not() -> None:
    store = MemoryStore(FakeClock())
    await keys.create(store, "ann", 1000.0)
    id, key = await keys.create(store, "bob", 1000.0, 3600.0)
    assert list(of_keys(store)) == [CredentialState(f"key:{id}", principal="client:bob", expires=4600.0)]
    assert key not in repr(list(of_keys(store)))
