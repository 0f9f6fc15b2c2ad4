"""Who has tokens of the issuer that are good for something else, or none at all, ends nobody's session by showing them,
and what a refused token costs has a bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doors.issuers import AUDIENCE, CONFIG, NOW, Issuer, bearer, client, encoded, issuer, key, public
from inmemory import GREETER, Visitor, gateway
from joserfc.jwk import RSAKey
from joserfc.jws import JWSRegistry

from toolgate.auth import tokens as tokens_module
from toolgate.auth.issuer import LONGEST_KEY, read_keys
from toolgate.auth.tokens import MOST_TRIED, Tokens, Verified
from toolgate.state.settings import Settings

__all__ = ["issuer"]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "KEPT", 4)


@pytest.mark.parametrize("audience", [f"{AUDIENCE}/mcp/meta", "https://elsewhere.example", None])
async def test_tokens_for_something_else_push_nobody_out(issuer: Issuer, audience: Any) -> None:
    edited = msgspec.structs.replace(CONFIG, clients=(*CONFIG.clients, client("new")), servers=(GREETER,))
    async with gateway(config=CONFIG, settings=Settings(lambda: edited, {})) as app:
        dora = Visitor(app, **bearer(issuer.token()))
        await dora.initialize()
        for number in range(9):
            shown = issuer.token(sub=f"eve{number}", aud=audience)
            assert (await Visitor(app, **bearer(shown)).ask_modern("tools/list")).status == 401
        await app.reload()
        assert [each.id for each in app.gateway.snapshot.config.clients][-1] == "new"
        assert (await dora.ask("ping")).status == 200


@pytest.mark.parametrize("others", [1, 3])
async def test_who_has_most_tokens_loses_the_oldest_of_its_own(issuer: Issuer, others: int) -> None:
    found = tokens()
    for number in range(others):
        found.keep(verified(f"dora{number}", b"d%d" % number))
    for number in range(9):
        found.keep(verified("eve", b"e%d" % number))
    assert all(found.find("token:" + (b"d%d" % number).hex()) for number in range(others))
    kept = [number for number in range(9) if found.find("token:" + (b"e%d" % number).hex())]
    assert kept == list(range(9))[-(4 - others) :]


def test_where_each_has_one_the_oldest_gives_way() -> None:
    found = tokens()
    for number in range(6):
        found.keep(verified(f"{number}", b"%d" % number))
        found.keep(verified(f"{number}", b"%d" % number))
    assert [bool(found.find("token:" + (b"%d" % number).hex())) for number in range(6)] == [False] * 2 + [True] * 4


async def test_a_token_has_one_spelling(issuer: Issuer) -> None:
    """Else one good token would be as many as its bearer likes."""
    good = issuer.token()
    head, claims, signature = good.split(".")
    flipped = signature[:-1] + chr(ord(signature[-1]) + 1)  # bits that no byte has
    spellings = [f"{good}=", f"{good}~", f"{head}.{claims}.~{signature}", f"{head}~.{claims}.{signature}"]
    spellings += [f"{head}.{claims}~.{signature}", f"{head}.{claims}.{flipped}", f"{good}\x00"]
    async with gateway(config=CONFIG) as app:
        for shown in spellings:
            response = await Visitor(app, **bearer(shown)).ask_modern("tools/list")
            assert response.status == 401, shown
        assert (await Visitor(app, **bearer(good)).ask_modern("tools/list")).status == 200


@pytest.mark.parametrize("keys", [MOST_TRIED, MOST_TRIED + 1, 64])
@pytest.mark.parametrize("header", [{}, {"deep": [[[[[[]]]]]]}, {"kid": "same"}], ids=str)
async def test_a_refused_token_is_held_against_few_keys(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, keys: int, header: dict[str, Any]
) -> None:
    tried: list[Any] = []
    verify = type(JWSRegistry.algorithms["ES256"]).verify

    def counted(*args: Any) -> bool:
        tried.append(args)
        return verify(*args)

    monkeypatch.setattr(type(JWSRegistry.algorithms["ES256"]), "verify", counted)
    issuer.keys = [public(key("EC", f"e{number}")) | {"kid": "same"} for number in range(keys)]
    shown = issuer.by_hand({"alg": "ES256", **header}, issuer.claims(), key("EC", "of nobody"))
    async with gateway(config=CONFIG) as app:
        assert (await Visitor(app, **bearer(shown)).ask_modern("tools/list")).status == 401
        assert len(tried) == (keys if keys <= MOST_TRIED else 0)


async def test_a_token_without_a_key_id_is_good_where_there_are_few(issuer: Issuer) -> None:
    async with gateway(config=CONFIG) as app:
        shown = issuer.token({"kid": ...})
        assert (await Visitor(app, **bearer(shown)).ask_modern("tools/list")).status == 200


def test_a_key_that_takes_long_to_check_by_is_none() -> None:
    small = public(key("RSA", "r1"))
    large = small | {"kid": "large", "n": encoded(b"\xff" * (LONGEST_KEY * 3 // 4 + 3))}
    assert [each.id for each in read_keys({"keys": [large, small]})] == ["r1"]
    assert RSAKey.import_key(small)


class Believed:
    """An issuer that has every key."""

    name = exact = "https://idp.example"

    def holds(self, print: object) -> bool:
        return True


def tokens() -> Tokens:
    return Tokens(Believed(), None)  # type: ignore[arg-type]


def verified(subject: str, digest: bytes) -> Verified:
    return Verified(subject, (), NOW, frozenset(), {}, digest, (None, "", ""))
