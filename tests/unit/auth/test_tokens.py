"""Tokens of an issuer: what is checked of one, in which words it is refused, and how long what was found good holds.
What doors make of them is in `tests/doors/test_who_comes_in.py`."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from doors.issuers import ISSUER, NOW, Issuer, encoded, key, public
from joserfc import jws
from joserfc.jwk import ECKey

from toolgate.auth import tokens
from toolgate.auth.issuer import PublicKey, read_keys
from toolgate.auth.tokens import BadToken, Tokens, Verified


class At:
    """A clock that stands."""

    def __init__(self, wall: float = NOW) -> None:
        self.at = wall

    def wall(self) -> float:
        return self.at


class Known:
    """An issuer whose keys are at hand, but for those in `withdrawn`. `asked` is which it was asked for."""

    def __init__(self, keys: Sequence[PublicKey], name: str = ISSUER, exact: str = ISSUER) -> None:
        self.name, self.exact = name, exact
        self.all = list(keys)
        self.withdrawn: set[str | None] = set()
        self.asked: list[str | None] = []

    async def keys(self, id: str | None, address: str) -> list[PublicKey]:
        self.asked.append(id)
        return [each for each in self.all if id is None or each.id == id]

    def holds(self, print: tuple[str | None, str, str]) -> bool:
        return print[0] not in self.withdrawn


class Bench:
    def __init__(self, keys: Sequence[Any] = (), **more: Any) -> None:
        self.signs = Issuer()
        self.clock = At()
        self.known = Known(read_keys({"keys": list(keys) or self.signs.keys}), **more)
        self.tokens = Tokens(self.known, self.clock)  # type: ignore[arg-type]

    async def verify(self, token: str | None = None, **claims: Any) -> Verified:
        return await self.tokens.verify(self.signs.token(**claims) if token is None else token)

    async def refused(self, token: str | None = None, **claims: Any) -> str:
        with pytest.raises(BadToken) as raised:
            await self.verify(token, **claims)
        return str(raised.value)

    async def let_in(self, **claims: Any) -> Verified:
        verified = await self.verify(**claims)
        self.tokens.keep(verified)
        return verified


async def test_a_good_token_says_whose_it_is_for_whom_until_when_and_for_what() -> None:
    bench = Bench()
    token = bench.signs.token(groups=["staff"])
    found = await bench.verify(token)
    assert (found.subject, found.audience, found.expires) == ("dora", ("https://gate.example/mcp",), NOW + 3600)
    assert (found.scopes, found.claims["groups"]) == (frozenset({"mcp"}), ["staff"])
    assert found.digest == hashlib.sha256(token.encode()).digest() and found.name == f"token:{found.digest.hex()}"
    assert found.signed_by == bench.known.all[1].print
    assert bench.known.asked == ["e1"]


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://other.example"}, "the token is from another issuer"),
        ({"iss": ...}, "the token is from another issuer"),
        ({"exp": ...}, "the token has no expiry"),
        ({"exp": None}, "the token has no expiry"),
        ({"exp": NOW - 30}, "the token has expired"),
        ({"exp": "tomorrow"}, "the token's exp is not a valid time"),
        ({"exp": True}, "the token's exp is not a valid time"),
        ({"nbf": [NOW]}, "the token's nbf is not a valid time"),
        ({"iat": "now"}, "the token's iat is not a valid time"),
        ({"nbf": NOW + 30.5}, "the token is not valid yet"),
        ({"iat": NOW + 31}, "the token is not valid yet"),
        ({"cnf": {"jkt": "x"}}, "the token is bound to a client key, which is not supported"),
        ({"cnf": None}, "the token is bound to a client key, which is not supported"),
        ({"sub": ...}, "the token has no subject"),
        ({"sub": ""}, "the token has no subject"),
        ({"sub": "a\nb"}, "the subject of the token has control characters"),
        ({"sub": 7}, "the token has no subject"),
    ],
)
async def test_a_token_that_lacks_what_is_checked_is_refused_with_the_reason(claims: Any, why: str) -> None:
    assert await Bench().refused(**claims) == why


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "none"}, "the token's signature algorithm is not accepted"),
        ({"alg": "HS256"}, "the token's signature algorithm is not accepted"),
        ({"alg": "es256"}, "the token's signature algorithm is not accepted"),
        ({"typ": "id+jwt"}, "the token is not an access token"),
        ({"crit": ["exp"]}, "the token is not an access token"),
        ({"crit": []}, "the token is not an access token"),
        ({"b64": False}, "the token is not an access token"),
        ({"kid": "gone"}, "the token's key is unknown to its issuer"),
        ({"alg": "EdDSA"}, "the token's key is unknown to its issuer"),
        ({"alg": "RS256"}, "the token's key is unknown to its issuer"),
        ({"kid": 7}, "not a valid token"),
        ({"alg": ...}, "not a valid token"),
    ],
)
async def test_a_header_that_is_not_taken_is_refused_with_the_reason(header: Any, why: str) -> None:
    assert await Bench().refused(header=header) == why


async def test_what_a_token_holds_to_be_critical_is_refused_unread() -> None:
    head = urlsafe_b64encode(b'{"alg":"ES256","kid":"e1","typ":"at+jwt","crit":[1e999]}').rstrip(b"=").decode()
    with pytest.raises(BadToken, match="the token is not an access token"):
        await Bench().verify(f"{head}.e30.e30")
    assert (await Bench().verify(header={"crit": None})).subject == "dora"


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", "AT+JWT", "application/at+jwt", "", ...])
async def test_an_access_token_may_say_in_some_ways_what_it_is(typ: Any) -> None:
    assert (await Bench().verify(header={"typ": typ})).subject == "dora"


async def test_times_may_differ_by_half_a_minute_and_no_more() -> None:
    bench = Bench()
    assert (await bench.verify(exp=NOW - 29.9)).expires == NOW - 29.9
    assert await bench.refused(exp=NOW - 30) == "the token has expired"
    assert (await bench.verify(nbf=NOW + 30, iat=NOW + 30)).subject == "dora"
    assert (await bench.verify(nbf=..., iat=...)).subject == "dora"


@pytest.mark.parametrize("far", [1e12, 1e13, 10**299, 1e300, 10**400])
async def test_no_time_is_too_far_to_be_one(far: float) -> None:
    bench = Bench()
    assert (await bench.verify(exp=far)).expires == 1e12
    assert await bench.refused(nbf=far) == "the token is not valid yet"
    assert (await bench.verify(exp=999_999_999_999)).expires == 999_999_999_999


@pytest.mark.parametrize("early", [0, -5, -1e300, -(10**400)])
async def test_no_time_is_too_early_to_be_one(early: float) -> None:
    bench = Bench()
    bench.clock.at = 30
    assert await bench.refused(exp=early, nbf=..., iat=...) == "the token has expired"
    bench.clock.at = 29
    assert (await bench.verify(exp=early, nbf=early, iat=early)).expires == 0


@pytest.mark.parametrize("name", [ISSUER, ISSUER + "/"])
async def test_an_issuer_is_named_as_it_says_itself_or_as_it_is_configured(name: str) -> None:
    bench = Bench(exact=ISSUER + "/")
    assert (await bench.verify(iss=name)).subject == "dora"
    assert await bench.refused(iss=ISSUER + "//") == "the token is from another issuer"


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b  c"}, {"a", "b", "c"}),
        ({"scope": "a\u00a0b\tc\u2003d\ne"}, {"a\u00a0b\tc\u2003d\ne"}),  # no scope of ours: it has no such letters
        ({"scope": ["a", "b", 7]}, {"a", "b"}),
        ({"scope": ..., "scp": "a b"}, {"a", "b"}),
        ({"scope": ..., "scp": ["a b", "c"]}, {"a b", "c"}),
        ({"scope": "a", "scp": "b"}, {"a"}),
        ({"scope": ...}, set()),
        ({"scope": 7}, set()),
    ],
)
async def test_scopes_are_read_as_issuers_write_them(claims: Any, scopes: set[str]) -> None:
    assert (await Bench().verify(**claims)).scopes == scopes


@pytest.mark.parametrize(("aud", "audience"), [("a", ("a",)), (["a", 7, "b"], ("a", "b")), (..., ()), ({}, ())])
async def test_a_token_is_for_one_or_for_several(aud: Any, audience: tuple[str, ...]) -> None:
    assert (await Bench().verify(aud=aud)).audience == audience


# What is no token.


@pytest.mark.parametrize(
    "token",
    ["", "a", "a.b", "..", ".b.c", "a..c", "a.b.c.d", "e30.e30.", "e30.e30.eA", "!.e30.eA", encoded([]) + ".e30.eA"],
)
async def test_what_is_not_three_parts_with_a_header_is_no_token(token: str) -> None:
    assert await Bench().refused(token) == "not a valid token"


async def test_with_one_part_less_or_more_it_is_no_token() -> None:
    bench = Bench()
    head, content, signature = bench.signs.token().split(".")
    for token in (f"{head}.{content}", f"{head}.{content}.{signature}.{signature}", f"{head}.{content}.{signature}."):
        assert await bench.refused(token) == "not a valid token"


async def test_a_signature_may_end_with_any_letter() -> None:
    wide = ECKey.generate_key("P-384")
    bench = Bench([public(wide, kid="w")])
    content = f"{encoded({'alg': 'ES384', 'kid': 'w'})}.{encoded(bench.signs.claims())}"
    signs = jws.JWSRegistry.algorithms["ES384"]
    signatures = (encoded(signs.sign(content.encode(), wide)) for _ in range(100_000))
    assert await bench.verify(f"{content}.{next(each for each in signatures if each.endswith('X'))}")


async def test_each_part_has_one_spelling() -> None:
    bench = Bench()
    head, content, signature = bench.signs.token().split(".")
    padded = [f"{head}=.{content}.{signature}", f"{head}.{content}=.{signature}", f"{head}.{content}.{signature}="]
    padded.append(f"{head}.{content}.{signature[:-1]}!")
    assert [await bench.refused(each) for each in padded] == ["not a valid token"] * 4


async def test_what_is_signed_is_all_that_stands_before_the_signature() -> None:
    bench = Bench()
    head, _, signature = bench.signs.token().split(".")
    other = encoded(bench.signs.claims(sub="ada"))
    assert await bench.refused(f"{head}.{other}.{signature}") == "the token's signature is invalid"
    assert await bench.refused(f"{head}.{other}.") == "the token's signature is invalid"
    assert await bench.refused(f"{head}.{other}.eA") == "the token's signature is invalid"


@pytest.mark.parametrize("content", [b"[]", b"no JSON", b"[" * 5000, b'{"iss":"\xff"}'])
async def test_claims_that_cannot_be_read_are_refused(content: bytes) -> None:
    bench = Bench()
    token = bench.signs.by_hand({"alg": "ES256", "kid": "e1"}, content, bench.signs.ec)  # type: ignore[arg-type]
    assert await bench.refused(token) == "the token's claims cannot be read"


async def test_a_header_that_nests_without_end_is_no_token() -> None:
    assert await Bench().refused(encoded(b'{"alg":' + b"[" * 5000) + ".e30.eA") == "not a valid token"


async def test_a_token_has_a_longest_length_and_so_has_its_header() -> None:
    bench = Bench()
    longest = "x" * tokens.LONGEST
    assert await bench.refused(longest + "x") == "the token is too long"
    assert await bench.refused(longest) == "not a valid token"
    for more, why in ((0, "the token's key is unknown to its issuer"), (1, "not a valid token")):
        padding = "p" * (tokens.LONGEST_HEADER * 3 // 4 - len('{"alg":"ES256","kid":"n","p":""}') + more)
        head = encoded(json.dumps({"alg": "ES256", "kid": "n", "p": padding}, separators=(",", ":")).encode())
        assert (len(head) > tokens.LONGEST_HEADER) is bool(more)
        assert await bench.refused(f"{head}.e30.eA") == why


# Which key.


async def test_a_token_that_names_no_key_is_tried_with_each_of_its_kind() -> None:
    bench = Bench()
    for by in (bench.signs.rsa, bench.signs.ec, bench.signs.okp):
        found = await bench.verify(bench.signs.token({"kid": ...}, by))
        assert found.signed_by[0] == by.kid
    assert bench.known.asked == [None, None, None]


async def test_of_an_issuers_many_keys_eight_are_tried_at_most() -> None:
    several = [public(key("EC", f"many{number}")) for number in range(9)]
    last = key("EC", "many7")
    eight, nine = Bench(several[:8]), Bench(several)
    assert (await eight.verify(eight.signs.token({"kid": ...}, last))).signed_by[0] == "many7"
    why = "the token does not name its key, and its issuer has too many"
    assert await nine.refused(nine.signs.token({"kid": ...}, last)) == why
    assert (await nine.verify(nine.signs.token(by=last))).signed_by[0] == "many7"


async def test_a_key_that_is_for_one_algorithm_is_for_no_other() -> None:
    signs = Issuer()
    assert (await Bench([public(signs.rsa, alg="RS256")]).verify(by=signs.rsa)).subject == "dora"
    other = Bench([public(signs.rsa, alg="PS256")])
    assert await other.refused(by=signs.rsa) == "the token's key is unknown to its issuer"


async def test_a_key_of_another_curve_has_signed_nothing_and_the_next_is_tried() -> None:
    signs = Issuer()
    wide = ECKey.generate_key("P-384")
    wide = ECKey.import_key(wide.as_dict(private=True) | {"kid": "e1"})
    bench = Bench([public(wide), public(signs.ec)])
    assert (await bench.verify(by=signs.ec)).signed_by == bench.known.all[1].print
    alone = Bench([public(wide)])
    assert await alone.refused(by=signs.ec) == "the token's signature is invalid"


# What was found good.


async def test_what_somebody_was_let_in_by_is_found_again_by_its_name_and_is_not_checked_again() -> None:
    bench = Bench()
    assert not bench.tokens.has_any
    token = bench.signs.token()
    first = await bench.verify(token)
    assert bench.tokens.find(first.name) is None and not bench.tokens.has_any  # not let in yet
    bench.tokens.keep(first)
    bench.tokens.keep(first)
    assert bench.tokens.has_any and bench.tokens.find(first.name) is first
    assert await bench.verify(token) is first
    assert bench.known.asked == ["e1"]


async def test_a_token_whose_key_is_withdrawn_is_found_no_more_and_is_checked_anew() -> None:
    bench = Bench()
    token = bench.signs.token()
    bench.tokens.keep(await bench.verify(token))
    name = (await bench.verify(token)).name
    bench.known.withdrawn.add("e1")
    assert bench.tokens.find(name) is None
    bench.known.all.clear()
    assert await bench.refused(token) == "the token's key is unknown to its issuer"
    assert not bench.tokens.has_any


async def test_a_token_that_was_good_is_refused_when_its_time_is_over() -> None:
    bench = Bench()
    token = bench.signs.token(exp=NOW + 60)
    bench.tokens.keep(await bench.verify(token))
    bench.clock.at = NOW + 89.9
    assert (await bench.verify(token)).subject == "dora"
    assert bench.known.asked == ["e1"]  # once: it was not checked again
    bench.clock.at = NOW + 90
    assert await bench.refused(token) == "the token has expired"
    assert not bench.tokens.has_any
    bench.tokens.keep(await bench.verify())  # as if it had never been
    assert bench.tokens.has_any


async def test_of_too_many_the_oldest_of_whoever_has_most_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "KEPT", 3)
    bench = Bench()
    one = await bench.let_in(sub="one")
    several = [await bench.let_in(sub="several", jti=str(number)) for number in range(3)]
    held = [bench.tokens.find(each.name) is each for each in (one, *several)]
    assert held == [True, False, True, True]
    again = [await bench.let_in(sub="one", jti=str(number)) for number in range(2)]
    held = [bench.tokens.find(each.name) is each for each in (one, *several, *again)]
    assert held == [False, False, True, True, False, True]  # of two who have as many, of whoever came first
