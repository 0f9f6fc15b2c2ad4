"""Who comes in, by which key or token, at each door; and how everybody else is told (RFC 6750, RFC 9068, RFC 9728)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from doors.issuers import (
    AUDIENCE,
    AUTH,
    CONFIG,
    ISSUER,
    KEYS,
    NOW,
    OFF,
    Issuer,
    bearer,
    client,
    encoded,
    issuer,
    key,
    public,
)
from doors.pipes import WebSocket
from inmemory import LATEST, MODERN, Exchange, Scripted, UnreadStore, Visitor, gateway, said, tools
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.auth import keys
from toolgate.config import Auth, Config, Limits
from toolgate.config.access import Permissions, Rate, Rates
from toolgate.core.model import Principal
from toolgate.state import changes
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings

__all__ = ["issuer"]

Json = dict[str, Any]
Headers = dict[str, str]
PING: Json = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
METADATA = f"{AUDIENCE}/.well-known/oauth-protected-resource/mcp"
HELLO: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}


def server() -> Scripted:
    listed = tools("echo", "delete", "odd")
    return Scripted(tools_list=listed, tools_call=said("done"))


ES256: Json = {"alg": "ES256", "kid": "e1"}


def nested(member: str) -> str:
    """Deeper than any reader goes."""
    return encoded(b'{"%b":' % member.encode() + b"[" * 4000)


def nested_claims() -> Any:
    return b'{"iss":' + b"[" * 6000 + b"]" * 6000 + b"}"


# The transports, each as one request of a stranger: (status, WWW-Authenticate).


async def _modern(app: App, headers: Headers, path: str) -> tuple[int, str]:
    response = await Visitor(app, path, **headers).ask_modern("tools/list")
    return response.status, response.headers.get("www-authenticate", "")


async def _legacy(app: App, headers: Headers, path: str) -> tuple[int, str]:
    response = await Visitor(app, path, **headers).post(HELLO)
    return response.status, response.headers.get("www-authenticate", "")


async def _get(app: App, headers: Headers, path: str) -> tuple[int, str]:
    exchange = Visitor(app, path, **headers).begin("GET", headers={"mcp-session-id": "any"})
    response = await exchange.response()
    return response.status, response.headers.get("www-authenticate", "")


async def _sse(app: App, headers: Headers, path: str) -> tuple[int, str]:
    exchange = Visitor(app, path, **headers).begin("GET", headers={"accept": "text/event-stream"}, path=path)
    await settle()
    found = exchange.so_far.status, exchange.so_far.headers.get("www-authenticate", "")
    await exchange.gone()
    return found


async def _websocket(app: App, headers: Headers, path: str) -> tuple[int, str]:
    socket = WebSocket(app.http, path, headers.items())
    await settle()
    if not socket.task.done():
        await socket.leave()
    return (101 if socket.accepted else socket.status or 0), socket.headers.get("www-authenticate", "")


async def _admin(app: App, headers: Headers, path: str) -> tuple[int, str]:
    response = await Visitor(app, **headers).send("GET", path="/admin/servers")
    return response.status, response.headers.get("www-authenticate", "")


Door = Callable[[App, Headers, str], Any]
DOORS: dict[str, Door] = {"modern": _modern, "legacy": _legacy, "websocket": _websocket}


# Who is not let in. Each with what is wrong: the status, the error of the challenge.

NOBODY: dict[str, tuple[Callable[[Issuer], Headers], int, str]] = {
    "nothing": (lambda i: {}, 401, ""),
    "an empty header": (lambda i: {"authorization": ""}, 401, ""),
    "Basic": (lambda i: {"authorization": "Basic " + encoded(f"x:{KEYS['ada']}".encode())}, 401, ""),
    "a key without Bearer": (lambda i: {"authorization": KEYS["ada"]}, 401, ""),
    "a key in a header of its own": (lambda i: {"x-api-key": KEYS["ada"]}, 401, ""),
    "a key in a cookie": (lambda i: {"cookie": f"access_token={KEYS['ada']}"}, 401, ""),
    "Bearer and nothing": (lambda i: {"authorization": "Bearer "}, 400, "invalid_request"),
    "two tokens in one": (lambda i: bearer(f"{i.token()} {i.token()}"), 400, "invalid_request"),
    "two with a comma": (lambda i: bearer(f"{i.token()},{i.token()}"), 400, "invalid_request"),
    "not ASCII": (lambda i: bearer("schlüssel-der-lang-genug-ist"), 400, "invalid_request"),
    "garbage": (lambda i: bearer("garbage"), 401, "invalid_token"),
    "dots": (lambda i: bearer(".."), 401, "invalid_token"),
    "parts that are no base64": (lambda i: bearer("!!.!!.!!"), 401, "invalid_token"),
    "a header that is no object": (lambda i: bearer(f"{encoded([])}.{encoded({})}.x"), 401, "invalid_token"),
    "a header that is nested without end": (lambda i: bearer(f"{nested('alg')}.{encoded({})}.x"), 401, "invalid_token"),
    "an extension that is nested without end": (
        lambda i: bearer(f"{nested('crit')}.{encoded({})}.x"),
        401,
        "invalid_token",
    ),
    "claims that are nested without end": (
        lambda i: bearer(i.by_hand(ES256, nested_claims(), i.ec)),
        401,
        "invalid_token",
    ),
    "a part too many": (lambda i: bearer(i.token() + ".x"), 401, "invalid_token"),
    "a token that is far too long": (lambda i: bearer(i.token(more="x" * 20000)), 401, "invalid_token"),
    "another's key": (lambda i: bearer(KEYS["ada"][:-1] + "X"), 401, "invalid_token"),
    "a key with something behind it": (lambda i: bearer(KEYS["ada"] + "x"), 401, "invalid_token"),
    "the hash that is configured": (lambda i: bearer(CONFIG.clients[1].key), 401, "invalid_token"),
    "the key of a disabled client": (lambda i: bearer(OFF), 401, "invalid_token"),
    "a made key that nobody made": (lambda i: bearer("tg_0011223344_" + "x" * 43), 401, "invalid_token"),
    "the beginning of a made key": (lambda i: bearer("tg_"), 401, "invalid_token"),
    "another audience": (lambda i: bearer(i.token(aud="https://other.example/mcp")), 401, "invalid_token"),
    "the whole host": (lambda i: bearer(i.token(aud=AUDIENCE)), 401, "invalid_token"),
    "another path's token": (lambda i: bearer(i.token(aud=f"{AUDIENCE}/mcp/meta")), 401, "invalid_token"),
    "an audience with a slash": (lambda i: bearer(i.token(aud=f"{AUDIENCE}/mcp/")), 401, "invalid_token"),
    "an audience in capitals": (lambda i: bearer(i.token(aud=f"{AUDIENCE}/MCP")), 401, "invalid_token"),
    "no audience": (lambda i: bearer(i.token(aud=...)), 401, "invalid_token"),
    "an audience that is a number": (lambda i: bearer(i.token(aud=7)), 401, "invalid_token"),
    "other audiences": (lambda i: bearer(i.token(aud=["a", {"x": 1}, 7])), 401, "invalid_token"),
    "another issuer": (lambda i: bearer(i.token(iss="https://evil.example")), 401, "invalid_token"),
    "an issuer below": (lambda i: bearer(i.token(iss=ISSUER + "/x")), 401, "invalid_token"),
    "no issuer": (lambda i: bearer(i.token(iss=...)), 401, "invalid_token"),
    "alg none": (lambda i: bearer(i.unsigned()), 401, "invalid_token"),
    "alg None": (lambda i: bearer(i.unsigned("None")), 401, "invalid_token"),
    "alg none with a signature": (lambda i: bearer(i.unsigned() + i.token().split(".")[2]), 401, "invalid_token"),
    "no alg": (lambda i: bearer(f"{encoded({'typ': 'JWT'})}.{encoded(i.claims())}.x"), 401, "invalid_token"),
    "HS256 with the public key as PEM": (
        lambda i: bearer(i.by_secret(i.rsa.as_pem(private=False), kid="r1")),
        401,
        "invalid_token",
    ),
    "HS256 with the public key as DER": (
        lambda i: bearer(i.by_secret(i.rsa.as_der(private=False), kid="r1")),
        401,
        "invalid_token",
    ),
    "HS256 with the public key as JWK": (
        lambda i: bearer(i.by_secret(json.dumps(public(i.rsa)).encode(), kid="r1")),
        401,
        "invalid_token",
    ),
    "HS256 and nothing": (lambda i: bearer(i.by_secret(b"")), 401, "invalid_token"),
    "an algorithm of another kind of key": (
        lambda i: bearer(i.token({"alg": "RS256"}, by=i.ec)),
        401,
        "invalid_token",
    ),
    "signed by somebody else": (
        lambda i: bearer(i.token({"kid": "e1"}, by=key("EC", "stranger"))),
        401,
        "invalid_token",
    ),
    "the signer's own key in the header": (
        lambda i: bearer(i.token({"jwk": public(key("EC", "own")), "kid": ...}, by=key("EC", "own"))),
        401,
        "invalid_token",
    ),
    "a URL of keys in the header": (
        lambda i: bearer(i.token({"jku": "https://evil.example/jwks", "kid": "own"}, by=key("EC", "own"))),
        401,
        "invalid_token",
    ),
    "no signature": (lambda i: bearer(i.token().rpartition(".")[0] + "."), 401, "invalid_token"),
    "half a signature": (lambda i: bearer(i.token()[:-20]), 401, "invalid_token"),
    "another's claims under a good signature": (
        lambda i: bearer(".".join((i.token().split(".")[0], encoded(i.claims(sub="erin")), i.token().split(".")[2]))),
        401,
        "invalid_token",
    ),
    "an unknown key": (lambda i: bearer(i.token({"kid": "nobody"})), 401, "invalid_token"),
    "an unknown extension": (lambda i: bearer(i.token({"crit": ["x"], "x": 1})), 401, "invalid_token"),
    "a payload that is not encoded": (lambda i: bearer(i.token({"b64": False})), 401, "invalid_token"),
    "a token of another kind": (lambda i: bearer(i.token({"typ": "logout+jwt"})), 401, "invalid_token"),
    "a proof": (lambda i: bearer(i.token({"typ": "dpop+jwt"})), 401, "invalid_token"),
    "a token bound to a key": (lambda i: bearer(i.token(cnf={"jkt": "x"})), 401, "invalid_token"),
    "expired": (lambda i: bearer(i.token(exp=NOW - 120)), 401, "invalid_token"),
    "expired long ago": (lambda i: bearer(i.token(exp=1)), 401, "invalid_token"),
    "no end": (lambda i: bearer(i.token(exp=...)), 401, "invalid_token"),
    "an end that is no number": (lambda i: bearer(i.token(exp=str(NOW + 3600))), 401, "invalid_token"),
    "an end that is true": (lambda i: bearer(i.token(exp=True)), 401, "invalid_token"),
    "not valid yet": (lambda i: bearer(i.token(nbf=NOW + 600)), 401, "invalid_token"),
    "made in the future": (lambda i: bearer(i.token(iat=NOW + 600)), 401, "invalid_token"),
    "nobody's": (lambda i: bearer(i.token(sub=...)), 401, "invalid_token"),
    "an empty subject": (lambda i: bearer(i.token(sub="")), 401, "invalid_token"),
    "a subject that is a list": (lambda i: bearer(i.token(sub=["dora"])), 401, "invalid_token"),
    "claims that are a list": (
        lambda i: bearer(i.by_hand({"alg": "ES256", "kid": "e1"}, [1], i.ec)),  # type: ignore[arg-type]
        401,
        "invalid_token",
    ),
    "a stranger's good token": (lambda i: bearer(i.token(sub="zoe")), 403, ""),
    "a token of a disabled client": (lambda i: bearer(i.token(sub="gone")), 403, ""),
    "a disabled client's, which fits another too": (
        lambda i: bearer(i.token(sub="gone", groups=["nobody"])),
        403,
        "",
    ),
    "claims within a claim's members": (
        lambda i: bearer(i.token(sub="zoe", groups=[["staff"], [["staff"]], {"staff": 1}])),
        403,
        "",
    ),
    "claims that only look alike": (lambda i: bearer(i.token(sub="zoe", groups=["staffer", True, 1])), 403, ""),
    "no scope": (lambda i: bearer(i.token(scope=...)), 403, "insufficient_scope"),
    "another scope": (lambda i: bearer(i.token(scope="other mcpx")), 403, "insufficient_scope"),
    "a scope that is a number": (lambda i: bearer(i.token(scope=7)), 403, "insufficient_scope"),
}


def challenge_of(found: str) -> dict[str, str]:
    scheme, _, rest = found.partition(" ")
    assert scheme == "Bearer"
    return {name: value.strip('"') for name, _, value in (part.partition("=") for part in rest.split(", "))}


@pytest.mark.promise("001.auth.bearer")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("who", NOBODY)
async def test_who_is_nobody_is_told_so(who: str, door: str, issuer: Issuer) -> None:
    shown, status, error = NOBODY[who]
    docs = server()
    async with gateway(config=CONFIG, scripts={"there": docs}) as app:
        found, challenge = await DOORS[door](app, shown(issuer), "/mcp")
        assert found == status
        assert not app.sessions.all() and not docs.requests
        if challenge or status == 401:
            told = challenge_of(challenge)
            assert told.get("error", "") == error
            assert (told["resource_metadata"], told["scope"]) == (METADATA, "mcp")
        else:
            assert not error


# Who is let in, and as whom.

SOMEBODY: dict[str, tuple[Callable[[Issuer], Headers], str, str]] = {
    "a key of the configuration": (lambda i: bearer(KEYS["ada"]), "client:ada", "ada"),
    "one whose hash is there": (lambda i: bearer(KEYS["bob"]), "client:bob", "bob"),
    "bearer in small letters": (lambda i: {"authorization": f"bearer {KEYS['ada']}"}, "client:ada", "ada"),
    "a token": (lambda i: bearer(i.token()), f"token:{ISSUER}|dora", "dora"),
    "one signed by RSA": (lambda i: bearer(i.token(by=i.rsa)), f"token:{ISSUER}|dora", "dora"),
    "one signed by PS256": (
        lambda i: bearer(_signed(i, "PS256", i.rsa)),
        f"token:{ISSUER}|dora",
        "dora",
    ),
    "one signed by Ed25519": (lambda i: bearer(i.token(by=i.okp)), f"token:{ISSUER}|dora", "dora"),
    "one signed by EdDSA": (lambda i: bearer(i.token({"alg": "EdDSA"}, by=i.okp)), f"token:{ISSUER}|dora", "dora"),
    "one that names no key": (lambda i: bearer(i.token({"kid": ...})), f"token:{ISSUER}|dora", "dora"),
    "one that names no kind": (lambda i: bearer(i.token({"typ": ...})), f"token:{ISSUER}|dora", "dora"),
    "one of the kind JWT": (lambda i: bearer(i.token({"typ": "JWT"})), f"token:{ISSUER}|dora", "dora"),
    "one of the long kind": (
        lambda i: bearer(i.token({"typ": "application/at+jwt"})),
        f"token:{ISSUER}|dora",
        "dora",
    ),
    "one for several": (lambda i: bearer(i.token(aud=["x", f"{AUDIENCE}/mcp"])), f"token:{ISSUER}|dora", "dora"),
    "one with more scopes": (lambda i: bearer(i.token(scope="a mcp b")), f"token:{ISSUER}|dora", "dora"),
    "one with scp": (lambda i: bearer(i.token(scope=..., scp=["mcp"])), f"token:{ISSUER}|dora", "dora"),
    "one of a clock that is a little late": (lambda i: bearer(i.token(exp=NOW - 20)), f"token:{ISSUER}|dora", "dora"),
    "one of a group": (lambda i: bearer(i.token(sub="eve", groups=["a", "staff"])), f"token:{ISSUER}|eve", "erin"),
    "one with an extra header": (lambda i: bearer(i.token({"x": "y"})), f"token:{ISSUER}|dora", "dora"),
}


def _signed(issuer: Issuer, algorithm: str, by: Any) -> str:
    from joserfc import jws

    head = {"alg": algorithm, "kid": by.kid, "typ": "at+jwt"}
    return jws.serialize_compact(head, json.dumps(issuer.claims()).encode(), by, [algorithm])


@pytest.mark.promise("001.auth.bearer")
@pytest.mark.parametrize("who", SOMEBODY)
async def test_who_is_somebody_comes_in_as_that_one(who: str, issuer: Issuer) -> None:
    shown, id, client_id = SOMEBODY[who]
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        for door in DOORS.values():
            status, _ = await door(app, shown(issuer), "/mcp")
            assert status in (200, 101)
        (session,) = app.sessions.all()
        principal = session.client.principal
        assert (principal.id, principal.client, principal.is_admin) == (id, client_id, client_id == "erin")


@pytest.mark.parametrize("who", ["nothing", "garbage", "alg none", "expired", "another path's token"])
@pytest.mark.parametrize("door", [_get, _sse, _admin], ids=["get", "sse", "admin"])
async def test_other_requests_are_judged_as_well(who: str, door: Door, issuer: Issuer) -> None:
    shown, status, _ = NOBODY[who]
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        path = "/mcp/sse" if door is _sse else "/mcp"
        found, challenge = await door(app, shown(issuer), path)
        assert (found, challenge.startswith("Bearer ")) == (status, True)


@pytest.mark.parametrize("name", ["access_token", "token", "key", "session_id"])
async def test_a_token_in_the_query_is_not_even_looked_at(name: str, issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        for shown in (KEYS["ada"], issuer.token()):
            response = await Visitor(app).send(
                "POST", json.dumps(HELLO).encode(), query_string=f"{name}={shown}".encode()
            )
            assert response.status == 401
            assert shown not in response.body.decode() + str(response.headers)
        assert not issuer.fetched


async def test_two_authorizations_are_one_too_many(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        response = await Visitor(app, **bearer(KEYS["ada"])).post(HELLO, twice="authorization")
        assert response.status == 400


async def test_a_token_is_good_for_its_own_path_alone(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        for path in ("/mcp", "/mcp/meta", "/mcp/servers/there", "/mcp/sse", "/sse"):
            for other in ("/mcp", "/mcp/meta", "/mcp/servers/there"):
                shown = bearer(issuer.token(aud=AUDIENCE + other))
                if path.endswith("/sse"):
                    status, _ = await _sse(app, shown, path)
                else:
                    status, _ = await _legacy(app, shown, path)
                assert status == (200 if path == other else 401), (path, other)


async def test_to_who_is_nobody_all_paths_are_alike(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        for path in ("/mcp", "/mcp/servers/there", "/mcp/servers/nowhere", "/nowhere", "/admin/servers", "/admin/x"):
            response = await Visitor(app, path).post(HELLO)
            assert response.status == 401, path
            described = await Visitor(app, "/.well-known/oauth-protected-resource" + path).send("GET")
            assert described.status == (404 if path == "/nowhere" else 200)
        assert (await Visitor(app, "/nowhere", **bearer(KEYS["ada"])).post(HELLO)).status == 404


# What the gateway says of itself (RFC 9728).


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/servers/there", "/mcp/servers/there"), ("/sse", "/sse"), ("/mcp/", "/mcp")],
)
async def test_each_endpoint_says_who_gives_tokens_for_it(path: str, endpoint: str, issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        response = await Visitor(app, "/.well-known/oauth-protected-resource" + path).send("GET")
        assert response.status == 200 and response.headers["content-type"] == "application/json"
        assert response.last == {
            "resource": AUDIENCE + endpoint,
            "authorization_servers": [ISSUER],
            "bearer_methods_supported": ["header"],
            "resource_name": "toolgate",
            "scopes_supported": ["mcp"],
        }


async def test_without_an_issuer_nothing_is_said_of_tokens() -> None:
    async with gateway(config=Config(clients=CONFIG.clients), scripts={"there": server()}) as app:
        assert (await Visitor(app, "/.well-known/oauth-protected-resource/mcp").send("GET")).status == 404
        response = await Visitor(app).post(HELLO)
        assert (response.status, response.headers["www-authenticate"]) == (401, 'Bearer realm="toolgate"')


async def test_the_guards_stand_before_the_metadata_too(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        place = "/.well-known/oauth-protected-resource/mcp"
        assert (await Visitor(app, place, host="evil.example").send("GET")).status == 403
        assert (await Visitor(app, place).send("POST")).status == 405


@pytest.mark.parametrize("via", ["key", "token"])
async def test_a_program_of_its_own_may_know_its_clients_by_another_header(via: Any) -> None:
    async def by_header(headers: Mapping[str, str], address: str, path: str) -> Principal:
        return Principal(headers["x-who"], client=headers["x-who"], via=via, credential=headers["x-who"])

    config = Config(clients=(client("ann"),))
    async with gateway(config=config, scripts={"there": server()}, identify=by_header) as app:
        reply = await Visitor(app, x_who="ann").ask("tools/call", name="there__echo", arguments={})
        assert reply.result == said("done")
        both = Visitor(app, x_who="ann", authorization="Bearer of-something-else")
        assert (await both.ask("tools/call", name="there__echo", arguments={})).result == said("done")


async def test_an_open_gateway_asks_for_nothing() -> None:
    async with gateway() as app:
        assert (await Visitor(app).post(HELLO)).status == 200
        assert (await Visitor(app, **bearer("whatever")).post(HELLO)).status == 200


# The issuer.


async def test_the_issuer_is_asked_once(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        for number in range(5):
            assert (await _legacy(app, bearer(issuer.token(jti=str(number))), "/mcp"))[0] == 200
        assert issuer.looks == 1


async def test_a_new_key_is_found_by_one_look_and_strangers_cause_no_more(issuer: Issuer) -> None:
    clock = FakeClock()
    async with gateway(config=CONFIG, scripts={"there": server()}, clock=clock) as app:
        assert (await _legacy(app, bearer(issuer.token()), "/mcp"))[0] == 200
        await clock.advance(60)
        new = key("EC", "e2")
        issuer.keys.append(public(new))
        assert (await _legacy(app, bearer(issuer.token(by=new)), "/mcp"))[0] == 200
        assert issuer.looks == 2
        for number in range(50):
            assert (await _legacy(app, bearer(issuer.token({"kid": f"x{number}"})), "/mcp"))[0] == 401
        assert issuer.looks == 2
        await clock.advance(60)
        for number in range(50):
            assert (await _legacy(app, bearer(issuer.token({"kid": f"y{number}"})), "/mcp"))[0] == 401
        assert issuer.looks == 3


async def test_a_key_that_its_issuer_has_withdrawn_opens_no_more(issuer: Issuer) -> None:
    clock = FakeClock()
    async with gateway(config=CONFIG, scripts={"there": server()}, clock=clock) as app:
        shown = bearer(issuer.token(exp=NOW + 30000))
        assert (await _legacy(app, shown, "/mcp"))[0] == 200
        issuer.keys = [public(issuer.rsa)]
        await clock.advance(3700)
        assert (await _legacy(app, bearer(issuer.token(by=issuer.rsa, exp=NOW + 30000)), "/mcp"))[0] == 200
        assert (await _legacy(app, shown, "/mcp"))[0] == 401


async def test_while_the_issuer_is_not_there_its_keys_hold_for_a_day(issuer: Issuer) -> None:
    clock = FakeClock()
    async with gateway(config=CONFIG, scripts={"there": server()}, clock=clock) as app:
        assert (await _legacy(app, bearer(issuer.token()), "/mcp"))[0] == 200
        issuer.is_there = False
        await clock.advance(7200)
        assert (await _legacy(app, bearer(issuer.token(exp=NOW + 10000)), "/mcp"))[0] == 200
        await clock.advance(90000)
        assert (await _legacy(app, bearer(issuer.token(exp=NOW + 200000)), "/mcp"))[0] == 503
        assert (await _legacy(app, bearer(KEYS["ada"]), "/mcp"))[0] == 200, "keys need no issuer"
        issuer.is_there = True
        await clock.advance(60)
        assert (await _legacy(app, bearer(issuer.token(exp=NOW + 200000)), "/mcp"))[0] == 200


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "https://evil.example", "jwks_uri": "https://evil.example/jwks"},
        {"jwks_uri": "https://idp.example/realm/jwks"},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": "http://idp.example/realm/jwks"},
        {"issuer": ISSUER, "jwks_uri": 7},
        [],
        b"<html>",
    ],
)
async def test_an_issuer_that_says_nonsense_lets_nobody_in(said: Any, issuer: Issuer) -> None:
    issuer.answers["https://idp.example/.well-known/oauth-authorization-server/realm"] = said
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        assert (await _legacy(app, bearer(issuer.token()), "/mcp"))[0] == 503


@pytest.mark.parametrize(
    "keys_said", [[], "x", [7], [{"kty": "oct", "k": "AAAA"}], [{"kty": "RSA", "n": "x", "e": "AQAB"}], [{"kty": "EC"}]]
)
async def test_a_key_set_without_a_key_lets_nobody_in(keys_said: Any, issuer: Issuer) -> None:
    issuer.keys = keys_said
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        assert (await _legacy(app, bearer(issuer.token()), "/mcp"))[0] == 503


async def test_a_key_for_something_else_checks_no_signature(issuer: Issuer) -> None:
    issuer.keys = [public(issuer.rsa), public(issuer.ec, use="enc"), public(issuer.okp, alg="ES256")]
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        assert (await _legacy(app, bearer(issuer.token(by=issuer.ec)), "/mcp"))[0] == 401
        assert (await _legacy(app, bearer(issuer.token(by=issuer.okp)), "/mcp"))[0] == 401


@pytest.mark.parametrize("place", ["openid-configuration/realm", "openid"])
async def test_an_issuer_is_found_where_openid_has_it(place: str, issuer: Issuer) -> None:
    issuer.answers["https://idp.example/.well-known/oauth-authorization-server/realm"] = None
    url = f"https://idp.example/.well-known/{place}" if "/" in place else f"{ISSUER}/.well-known/openid-configuration"
    issuer.answers[url] = {"issuer": ISSUER + "/", "jwks_uri": f"{ISSUER}/jwks"}
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        assert (await _legacy(app, bearer(issuer.token(iss=ISSUER + "/")), "/mcp"))[0] == 200


async def test_a_token_without_a_client_of_its_own_has_the_permissions_that_are_named(issuer: Issuer) -> None:
    config = msgspec.structs.replace(CONFIG, auth=msgspec.structs.replace(AUTH, client="ada"))
    async with gateway(config=config, scripts={"there": server()}) as app:
        assert (await _legacy(app, bearer(issuer.token(sub="zoe")), "/mcp"))[0] == 200
        (session,) = app.sessions.all()
        assert (session.client.principal.id, session.client.principal.client) == (f"token:{ISSUER}|zoe", "ada")
        assert (await _legacy(app, bearer(issuer.token(sub="gone")), "/mcp"))[0] == 403


# Step-up: more scopes for some tools.


async def _call(app: App, era: str, shown: Headers, tool: str, path: str = "/mcp", /, **more: Any) -> Any:
    visitor = Visitor(app, path, **shown)
    if era == MODERN:
        return await visitor.ask_modern("tools/call", name=tool, arguments=more)
    await visitor.initialize(era)
    return await visitor.ask("tools/call", name=tool, arguments=more)


STEPS = [("there__delete", "mcp write"), ("there__odd", "mcp odd write")]


@pytest.mark.parametrize("era", ["2025-03-26", LATEST, MODERN])
@pytest.mark.parametrize(("tool", "needed"), STEPS)
async def test_a_tool_may_need_more_scopes(tool: str, needed: str, era: str, issuer: Issuer) -> None:
    docs = server()
    async with gateway(config=CONFIG, scripts={"there": docs}) as app:
        assert (await _call(app, era, bearer(issuer.token()), "there__echo")).result["content"]
        before = len(docs.requests)
        response = await _call(app, era, bearer(issuer.token()), tool)
        assert response.status == 403
        told = challenge_of(response.headers["www-authenticate"])
        assert (told["error"], told["scope"], told["resource_metadata"]) == ("insufficient_scope", needed, METADATA)
        assert response.error["data"]["code"] == "INSUFFICIENT_SCOPE"
        assert not [each for each in docs.requests[before:] if each["method"] == "tools/call"]
        assert (await _call(app, era, bearer(issuer.token(scope=needed)), tool)).result["content"]
        assert (await _call(app, era, bearer(KEYS["ada"]), tool)).result["content"], "keys have no scopes"


META_CALLS: dict[str, Json] = {
    "mcp_call": {"server": "there", "tool": "delete", "args": {}},
    "call_tool": {"server_name": "there", "tool_name": "delete", "arguments": {}},
    "execute_child_tool": {"server_id": "there", "tool_name": "delete", "arguments": {}},
}


@pytest.mark.parametrize("era", [LATEST, MODERN])
@pytest.mark.parametrize("control", ["mcp_call", "call_tool", "execute_child_tool"])
async def test_no_control_tool_is_a_way_around_a_step_up(control: str, era: str, issuer: Issuer) -> None:
    docs = server()
    async with gateway(config=CONFIG, scripts={"there": docs}) as app:
        path = "/mcp/all"
        few = bearer(issuer.token(aud=AUDIENCE + path))
        response = await _call(app, era, few, control, path, **META_CALLS[control])
        assert response.status == 403, response.messages
        assert challenge_of(response.headers["www-authenticate"])["scope"] == "mcp write"
        assert not [each for each in docs.requests if each["method"] == "tools/call"]
        enough = bearer(issuer.token(aud=AUDIENCE + path, scope="mcp write"))
        assert (await _call(app, era, enough, control, path, **META_CALLS[control])).result["content"]


CONTROLS: dict[str, Json] = {**META_CALLS, "list_mcp_servers": {}}


@pytest.mark.parametrize("era", [LATEST, MODERN])
@pytest.mark.parametrize("control", CONTROLS)
async def test_a_control_tool_may_need_more_scopes_itself(control: str, era: str, issuer: Issuer) -> None:
    docs = server()
    auth = msgspec.structs.replace(AUTH, step_up={f"toolgate__{control}": ("steer",)})
    async with gateway(config=msgspec.structs.replace(CONFIG, auth=auth), scripts={"there": docs}) as app:
        path = "/mcp/all"
        response = await _call(app, era, bearer(issuer.token(aud=AUDIENCE + path)), control, path, **CONTROLS[control])
        assert response.status == 403, response.messages
        assert challenge_of(response.headers["www-authenticate"])["scope"] == "mcp steer"
        assert not [each for each in docs.requests if each["method"] == "tools/call"]
        enough = bearer(issuer.token(aud=AUDIENCE + path, scope="mcp steer"))
        assert not (await _call(app, era, enough, control, path, **CONTROLS[control])).result.get("isError")


MEANT = ("there__*", "*delete", "there__*let*", "There__delete", "*")
NOT_MEANT = ("there__del", "delete", "there__*x")


@pytest.mark.parametrize("pattern", [*MEANT, *NOT_MEANT])
async def test_a_step_up_is_written_as_permissions_are(pattern: str, issuer: Issuer) -> None:
    auth = msgspec.structs.replace(AUTH, step_up={pattern: ("write",)})
    async with gateway(config=msgspec.structs.replace(CONFIG, auth=auth), scripts={"there": server()}) as app:
        response = await _call(app, MODERN, bearer(issuer.token()), "there__delete")
        assert (response.status == 403) is (pattern in MEANT)


@pytest.mark.parametrize("era", [LATEST, MODERN])
async def test_what_lacks_a_scope_is_not_charged(era: str, issuer: Issuer) -> None:
    limits = Limits(rates=Rates(principal=Rate(1, 60.0)))
    async with gateway(config=msgspec.structs.replace(CONFIG, limits=limits), scripts={"there": server()}) as app:
        few, enough = bearer(issuer.token()), bearer(issuer.token(scope="mcp write"))
        for _ in range(3):
            assert (await _call(app, era, few, "there__delete")).status == 403
        assert (await _call(app, era, enough, "there__delete")).result["content"]
        assert (await _call(app, era, enough, "there__delete")).error["data"]["code"] == "RATE_LIMITED"


async def test_a_session_has_the_scopes_of_each_request(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        visitor = Visitor(app, **bearer(issuer.token()))
        await visitor.initialize()
        assert (await visitor.ask("tools/call", name="there__delete")).status == 403
        visitor.headers |= bearer(issuer.token(scope="mcp write"))
        assert (await visitor.ask("tools/call", name="there__delete")).status == 200
        visitor.headers |= bearer(issuer.token())
        assert (await visitor.ask("tools/call", name="there__delete")).status == 403
        assert len(app.sessions.all()) == 1


async def test_over_a_websocket_a_step_up_is_an_error_of_the_call(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        heard: list[bytes] = []
        socket = WebSocket(app.http, "/mcp", bearer(issuer.token()).items(), heard.append)
        socket.say(HELLO)
        await settle()
        socket.say({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "there__delete"}})
        await settle()
        error = json.loads(heard[-1])["error"]
        assert (error["code"], error["data"]["scopes"]) == (-32600, ["mcp", "write"])
        await socket.leave()


# A server that a client may not know of, at its own path (behaviour.md, ruling 12).

BLIND = msgspec.structs.replace(CONFIG, clients=(client("ada", key=KEYS["ada"], servers="none"),), auth=Auth())
FULL = msgspec.structs.replace(BLIND, clients=(client("ada", key=KEYS["ada"]),))
NO_DELETE = client("ada", key=KEYS["ada"], permissions=Permissions(tools={"there__delete": "off"}))


@pytest.mark.promise("b.rulings.12-403")
@pytest.mark.parametrize("era", ["2025-03-26", LATEST, MODERN])
async def test_at_the_path_of_a_server_that_is_out_of_reach_it_is_403(era: str) -> None:
    docs = server()
    async with gateway(config=BLIND, scripts={"there": docs}) as app:
        visitor = Visitor(app, "/mcp/servers/there", **bearer(KEYS["ada"]))
        response = await (visitor.ask_modern("tools/list") if era == MODERN else visitor.initialize(era))
        assert (response.status, response.error["code"]) == (403, -32600)
        assert response.error["data"]["code"] == "ACCESS_DENIED"
        assert "www-authenticate" not in response.headers
        assert not docs.requests


@pytest.mark.promise("b.rulings.12-403")
@pytest.mark.parametrize("era", ["2025-03-26", LATEST, MODERN])
async def test_whose_permission_goes_while_a_request_comes_in_is_told_403_as_well(era: str) -> None:
    configs = [FULL]
    settings = Settings(lambda: configs[0], {})
    docs = server()
    async with gateway(config=FULL, scripts={"there": docs}, settings=settings) as app:
        visitor = Visitor(app, "/mcp/servers/there", **bearer(KEYS["ada"]))
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config, clients=BLIND.clients)
        if era != MODERN:
            await visitor.initialize(era)
            message = visitor.request("tools/call", name="echo")
        else:
            message = visitor.modern_request("tools/call", name="echo")
        told = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo"} if era == MODERN else {}
        exchange = visitor.begin("POST", b" ", None, headers=told)
        await settle()
        await app.reload()
        exchange.more(json.dumps(message).encode())
        response = await exchange.response()
        assert response.error["data"]["code"] == "ACCESS_DENIED"
        assert response.status == 403
        assert not [each for each in docs.requests if each["method"] == "tools/call"]


@pytest.mark.promise("b.rulings.12-403")
@pytest.mark.parametrize("path", ["/mcp/servers/there", "/mcp", "/mcp/aggregate"])
@pytest.mark.parametrize("era", [LATEST, MODERN])
async def test_every_other_denial_is_an_error_of_the_call(era: str, path: str) -> None:
    config = msgspec.structs.replace(FULL, clients=(NO_DELETE,))
    async with gateway(config=config, scripts={"there": server()}) as app:
        name = "delete" if path.endswith("there") else "there__delete"
        response = await _call(app, era, bearer(KEYS["ada"]), name, path)
        assert (response.error["code"], response.error["data"]["code"]) == (-32600, "ACCESS_DENIED")
        assert response.status == (400 if era == MODERN else 200)


# Keys that are made, revoked, rotated; clients that are disabled.


async def _made(store: MemoryStore, lasts: float | None = None) -> tuple[str, str]:
    return await keys.create(store, "made", FakeClock().wall(), lasts)


async def test_a_made_key_is_good_until_it_is_revoked() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=clock) as app:
        id, made = await _made(store)
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 200, "who has just made it need not wait"
        for near in (made[:-1], made + "x", made.upper(), made.replace(id, "0000000000"), f"tg_{id}_", f"tg_{id}"):
            assert (await _legacy(app, bearer(near), "/mcp"))[0] == 401
        await keys.revoke(store, id)
        await changes.tell(store, "keys")
        await clock.advance(1)
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 401


class ReadStore(MemoryStore):
    """A store in which something happens once, when the keys were read for the first time."""

    then: Callable[[], object] | None = None

    def items(self, space: str) -> Mapping[str, bytes]:
        found = super().items(space)
        if space == keys.SPACE and (then := self.then):
            self.then = None
            then()
        return found


async def test_a_key_that_is_revoked_while_the_gateway_starts_is_refused() -> None:
    clock = FakeClock()
    store = ReadStore(clock)
    id, made = await _made(store)
    store.then = lambda: store.delete(keys.SPACE, id, ["keys"])
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=clock) as app:
        await clock.advance(1)
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 401


async def test_an_edit_while_the_store_cannot_be_read_ends_no_session_of_a_made_key() -> None:
    configs = [CONFIG]
    settings = Settings(lambda: configs[0], {})
    clock = FakeClock()
    store = UnreadStore(clock)
    id, made = await _made(store)
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, settings=settings, clock=clock) as app:
        visitor = Visitor(app, **bearer(made))
        await visitor.initialize()
        stream = visitor.begin("GET", headers={"accept": "text/event-stream"})
        await clock.advance(1)
        store.is_unread = True
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config, limits=Limits(result_limit=2**20))
        await app.reload()
        await settle()
        assert not stream.work.done()
        assert (await visitor.ask("ping")).status == 200
        await store.delete(keys.SPACE, id, ["keys"])  # heard of once it can be read
        await clock.advance(1)
        store.is_unread = False
        await clock.advance(1)
        assert stream.work.done()
        assert (await visitor.ask("ping")).status == 401


class CountingStore(MemoryStore):
    """How often keys are read in it: one, and all."""

    points = wholes = 0

    def get(self, space: str, key: str) -> bytes | None:
        self.points += space == keys.SPACE
        return super().get(space, key)

    def items(self, space: str) -> Mapping[str, bytes]:
        self.wholes += space == keys.SPACE
        return super().items(space)


async def test_who_shows_keys_that_do_not_exist_has_one_point_of_the_store_read_and_no_more() -> None:
    store = CountingStore(FakeClock())
    id, made = await _made(store)
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=FakeClock()) as app:
        for wrong in (
            "tg_",
            "tg_x",
            "tg_../keys_secret",
            f"tg_{id.upper()}_secret",
            f"{made}x",
            f"tg_{'0' * 600}_x",
            "x",
        ):
            points, wholes = store.points, store.wholes
            assert (await _legacy(app, bearer(wrong), "/mcp"))[0] == 401
            assert (store.points, store.wholes) == (points, wholes), wrong
        points, wholes = store.points, store.wholes
        for number in range(20):
            assert (await _legacy(app, bearer(f"tg_{number:010x}_{'s' * 43}"), "/mcp"))[0] == 401
        assert (store.points - points, store.wholes) == (20, wholes)
        await store.put(keys.SPACE, "0" * 10, b"no record")
        assert (await _legacy(app, bearer(f"tg_{'0' * 10}_{'s' * 43}"), "/mcp"))[0] == 401
        assert store.wholes == wholes, "what cannot be read is no key"


async def test_a_new_key_brings_no_other_key_of_its_id() -> None:
    store = CountingStore(FakeClock())
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=FakeClock()) as app:
        id, made = await _made(store, lasts=60)
        for wrong in (f"tg_{id}_{'s' * 43}", f"{made}x"):
            assert (await _legacy(app, bearer(wrong), "/mcp"))[0] == 401
        _, over = await _made(store, lasts=0)
        assert (await _legacy(app, bearer(over), "/mcp"))[0] == 401
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 200


async def test_who_was_let_in_by_a_key_is_not_when_its_time_is_over() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    _, made = await _made(store, lasts=60)
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=clock) as app:
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 200
        await clock.advance(59)
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 200
        await clock.advance(1)
        assert (await _legacy(app, bearer(made), "/mcp"))[0] == 401


async def test_a_key_is_not_called_revoked_where_the_store_cannot_be_read() -> None:
    clock = FakeClock()
    _, made = await _made(MemoryStore(clock))
    store = MemoryStore(clock, problem="it is from a newer toolgate")
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=clock) as app:
        assert await _legacy(app, bearer(made), "/mcp") == (503, "")
        status, challenge = await _legacy(app, bearer("no-key-of-ours"), "/mcp")
        assert status == 401 and "invalid_token" in challenge


async def test_only_a_hash_of_a_made_key_is_kept() -> None:
    store = MemoryStore(FakeClock())
    id, made = await _made(store)
    kept = b"".join(store.items(keys.SPACE).values())
    assert made.encode() not in kept and made.removeprefix(f"tg_{id}_").encode() not in kept


async def test_what_a_revoked_key_has_begun_ends_at_once() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    slow = Scripted(tools_list=tools("slow"), tools_call=...)
    id, made = await _made(store)
    other_id, other = await _made(store)
    async with gateway(config=CONFIG, scripts={"there": slow}, store=store, clock=clock) as app:
        visitor = Visitor(app, **bearer(made))
        await visitor.initialize()
        accepts = {"accept": "text/event-stream"}
        stream = visitor.begin("GET", headers=accepts)
        call = visitor.request("tools/call", name="there__slow")
        calling = visitor.begin("POST", json.dumps(call).encode())
        modern = Visitor(app, **bearer(made))
        told = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        listen = modern.modern_request("subscriptions/listen", notifications={"toolsListChanged": True})
        listening = modern.begin("POST", json.dumps(listen).encode(), headers=told)
        sse = Visitor(app, "/mcp/sse", **bearer(made)).begin("GET", headers=accepts)
        socket = WebSocket(app.http, "/mcp", bearer(made).items())
        keeps = Visitor(app, **bearer(other))
        await keeps.initialize()
        stays = keeps.begin("GET", headers=accepts)
        await settle()
        assert len(app.http._active_requests.all) == 6 and not stream.work.done() and socket.accepted
        await keys.revoke(store, id)
        await changes.tell(store, "keys")
        await clock.advance(1)
        for exchange in (stream, calling, listening, sse):
            assert exchange.work.done()
            assert (await exchange.response()).status in (200, 401)
        assert (await socket.ended()).code == 1008
        assert (await visitor.ask("ping")).status == 401
        assert not stays.work.done() and (await keeps.ask("ping")).status == 200
        assert [session.client.principal.credential for session in app.sessions.all()] == [f"key:{other_id}"]
        await stays.gone()


async def test_a_rotated_key_is_good_for_its_grace() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=clock) as app:
        id, old = await _made(store)
        rotated = await keys.rotate(store, id, clock.wall(), grace=60)
        assert rotated and (await _legacy(app, bearer(rotated[1]), "/mcp"))[0] == 200
        await changes.tell(store, "keys")
        await clock.advance(1)
        visitor = Visitor(app, **bearer(old))
        await visitor.initialize()
        visitor.headers |= bearer(rotated[1])
        assert (await visitor.ask("ping")).status == 200, "the same client, so the same session"
        await clock.advance(60)
        assert (await _legacy(app, bearer(old), "/mcp"))[0] == 401
        assert (await visitor.ask("ping")).status == 200


@pytest.mark.parametrize("lasts", [None, 7 * 86400.0])
async def test_what_was_opened_by_a_key_before_it_was_rotated_ends_with_its_grace(lasts: float | None) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    slow, said_to_it = Scripted(tools_list=tools("slow"), tools_call=...), list[Any]()
    async with gateway(config=CONFIG, scripts={"there": slow}, store=store, clock=clock) as app:
        id, old = await _made(store, lasts)
        visitor = Visitor(app, **bearer(old))
        await visitor.initialize()
        stream = visitor.begin("GET", headers={"accept": "text/event-stream"})
        socket = WebSocket(app.http, headers=bearer(old).items(), on_message=said_to_it.append)
        calling = visitor.begin("POST", json.dumps(visitor.request("tools/call", name="there__slow")).encode())
        await settle()
        await keys.rotate(store, id, clock.wall(), grace=20)
        await clock.advance(19)
        assert not stream.work.done() and not socket.task.done()
        socket.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
        await settle()
        assert said_to_it
        await clock.advance(2)
        assert stream.work.done() and socket.task.done() and socket.code == 1008
        assert not calling.work.done(), "what was begun in time may end"
        slow.answer_last(said("late"))
        await settle()
        assert (await calling.response()).result == said("late")


async def test_a_key_rotated_without_grace_is_none_at_once() -> None:
    store = MemoryStore(FakeClock())
    id, _ = await _made(store)
    assert await keys.rotate(store, id, FakeClock().wall(), grace=0)
    assert id not in keys.records(store)
    assert await keys.rotate(store, id, FakeClock().wall(), grace=0) is None


@pytest.mark.parametrize("by", ["key", "token"])
async def test_what_lasts_ends_when_its_key_or_token_expires(by: str, issuer: Issuer) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    _, made = await _made(store, 40)
    slow = Scripted(tools_list=tools("slow"), tools_call=...)
    async with gateway(config=CONFIG, scripts={"there": slow}, store=store, clock=clock) as app:
        visitor = Visitor(app, **bearer(made if by == "key" else issuer.token(exp=NOW + 10)))
        await visitor.initialize()
        stream = visitor.begin("GET", headers={"accept": "text/event-stream"})
        call = visitor.request("tools/call", name="there__slow")
        calling = visitor.begin("POST", json.dumps(call).encode())
        await clock.advance(20)
        assert not stream.work.done()
        await clock.advance(25)
        assert stream.work.done()
        assert not calling.work.done(), "what was begun in time may end"
        assert (await visitor.ask("ping")).status == 401
        slow.answer_last(said("late"))
        await settle()
        assert (await calling.response()).result == said("late")


@pytest.mark.parametrize("by", ["key", "token"])
async def test_what_lasts_ends_though_the_machine_slept_while_its_key_or_token_expired(by: str, issuer: Issuer) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    _, made = await _made(store, 3600)
    async with gateway(config=CONFIG, scripts={"there": server()}, store=store, clock=clock) as app:
        shown = bearer(made if by == "key" else issuer.token(exp=NOW + 3600))
        visitor = Visitor(app, **shown)
        await visitor.initialize()
        stream = visitor.begin("GET", headers={"accept": "text/event-stream"})
        socket = WebSocket(app.http, "/mcp", shown.items())
        await clock.advance(120)
        assert not stream.work.done() and not socket.task.done()
        clock.ahead = 8 * 3600.0
        await clock.advance(61)
        assert stream.work.done() and socket.task.done()


async def test_who_is_disabled_leaves_at_once(issuer: Issuer) -> None:
    configs = [CONFIG]
    settings = Settings(lambda: configs[0], {})
    async with gateway(config=CONFIG, scripts={"there": server()}, settings=settings) as app:
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config)
        visitors = {name: Visitor(app, **bearer(KEYS[name])) for name in ("ada", "bob")}
        visitors["dora"] = Visitor(app, **bearer(issuer.token()))
        streams = {}
        for name, visitor in visitors.items():
            await visitor.initialize()
            streams[name] = visitor.begin("GET", headers={"accept": "text/event-stream"})
        await settle()
        without = tuple(
            msgspec.structs.replace(each, enabled=False) if each.id in ("ada", "dora") else each
            for each in CONFIG.clients
        )
        configs[0] = msgspec.structs.replace(configs[0], clients=without)
        await app.reload()
        await settle()
        assert {name: stream.work.done() for name, stream in streams.items()} == {
            "ada": True,
            "bob": False,
            "dora": True,
        }
        assert (await visitors["ada"].ask("ping")).status == 401
        assert (await visitors["dora"].ask("ping")).status == 403
        assert (await visitors["bob"].ask("ping")).status == 200
        await streams["bob"].gone()


async def test_a_gateway_that_is_closed_while_it_runs_has_no_guests_left() -> None:
    configs: list[Config] = []
    settings = Settings(lambda: configs[0], {})
    async with gateway(config=Config(), scripts={"there": server()}, settings=settings) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        stream = visitor.begin("GET", headers={"accept": "text/event-stream"})
        await settle()
        configs.append(msgspec.structs.replace(app.gateway.snapshot.config, clients=CONFIG.clients))
        await app.reload()
        await settle()
        assert stream.work.done() and not app.sessions.all()
        assert (await visitor.ask("ping")).status == 401


# Sessions are of who began them.


@pytest.mark.parametrize("other", ["bob", "dora", "carl"])
async def test_a_session_of_another_does_not_exist(other: str, issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        ada = Visitor(app, **bearer(KEYS["ada"]))
        await ada.initialize()
        shown = bearer(KEYS[other] if other in KEYS else issuer.token())
        stranger = Visitor(app, **shown)
        stranger.headers["mcp-session-id"] = ada.headers["mcp-session-id"]
        for method in ("POST", "GET", "DELETE"):
            response = await stranger.send(method, json.dumps(PING).encode())
            unknown = await stranger.send(method, json.dumps(PING).encode(), headers={"mcp-session-id": "x"})
            assert (response.status, response.body) == (unknown.status, unknown.body)
            assert response.status == 404
        assert (await ada.ask("ping")).status == 200


async def test_a_session_alone_is_no_proof_of_anything(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        ada = Visitor(app, **bearer(KEYS["ada"]))
        await ada.initialize()
        assert (await ada.post(PING, headers={"authorization": None})).status == 401
        assert (await ada.post(PING, headers=bearer("x" * 30))).status == 401


# What a client is shown, and who administers.


@pytest.mark.promise("b.surfaces.default")
async def test_the_plain_path_serves_the_surface_of_the_client() -> None:
    configured = (client("plain", key="p" * 24), client("meta", key="m" * 24, surface="meta"))
    async with gateway(config=Config(clients=configured), scripts={"there": server()}) as app:
        shown: dict[str, set[str]] = {}
        for each in configured:
            visitor = Visitor(app, **bearer(each.key))
            await visitor.initialize()
            shown[each.id] = {tool["name"] for tool in (await visitor.ask("tools/list")).result["tools"]}
            assert (await visitor.ask("ping")).status == 200
        assert "there__echo" in shown["plain"] and "mcp_call" in shown["meta"] and shown["plain"] != shown["meta"]


async def test_a_client_that_is_shown_another_surface_begins_anew_and_no_other_does() -> None:
    configured = tuple(client(id, key=id[0] * 24, surface="aggregate") for id in ("moved", "stays"))
    configs = [Config(clients=configured)]
    settings = Settings(lambda: configs[0], {})
    async with gateway(config=configs[0], scripts={"there": server()}, settings=settings) as app:
        lasting: dict[str, list[asyncio.Future[None]]] = {}
        exchanges: list[Exchange] = []
        sockets: list[WebSocket] = []
        for name, path in (("moved", "/mcp"), ("moved", "/mcp/meta"), ("stays", "/mcp")):
            shown = bearer(name[0] * 24)
            visitor = Visitor(app, path, **shown)
            await visitor.initialize()
            sse = Visitor(app, f"{path}/sse", **shown)
            listening = visitor.modern_request("subscriptions/listen", notifications={"toolsListChanged": True})
            told = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen", "mcp-session-id": None}
            opened = [each.begin("GET", headers={"accept": "text/event-stream"}) for each in (visitor, sse)]
            opened.append(visitor.begin("POST", json.dumps(listening).encode(), headers=told))
            sockets.append(WebSocket(app.http, path, shown.items()))
            lasting[name + path] = [each.work for each in opened] + [sockets[-1].task]
            exchanges += opened
        await settle()
        meta = (client("moved", key="m" * 24, surface="meta"), configured[1])
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config, clients=meta)
        await app.reload()
        await settle()
        ended = {name: [each.done() for each in works] for name, works in lasting.items()}
        assert ended == {"moved/mcp": [True] * 4, "moved/mcp/meta": [False] * 4, "stays/mcp": [False] * 4}
        assert sockets[0].code == 1008 and len(app.sessions) == 2
        for each in exchanges:
            await each.gone()
        for socket in sockets[1:]:
            await socket.leave()


@pytest.mark.promise("b.surfaces.admin")
async def test_only_who_administers_changes_servers(issuer: Issuer) -> None:
    async with gateway(config=CONFIG, scripts={"there": server()}) as app:
        for shown, status in (
            (bearer(KEYS["ada"]), 403),
            (bearer(KEYS["carl"]), 200),
            (bearer(KEYS["carl"]) | {"origin": "http://localhost:3000"}, 403),
            (bearer(issuer.token(groups=["staff"], sub="e")), 401),
            (bearer(issuer.token(groups=["staff"], sub="e", aud=f"{AUDIENCE}/admin")), 200),
            (bearer(issuer.token(aud=f"{AUDIENCE}/admin")), 403),
        ):
            assert (await _admin(app, shown, ""))[0] == status


async def test_tokens_are_taken_without_clients_of_keys(issuer: Issuer) -> None:
    config = Config(clients=(client("any"),), auth=Auth(ISSUER, AUDIENCE, client="any"))
    async with gateway(config=config, scripts={"there": server()}) as app:
        assert (await _legacy(app, bearer(issuer.token(scope=...)), "/mcp"))[0] == 200
        assert (await _legacy(app, {}, "/mcp"))[0] == 401
