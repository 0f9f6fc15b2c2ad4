"""Administrators sign in to the operator's pages at the issuer of tokens: by code, with a proof, and back to the
browser that went."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import pytest
from doors.issuers import AUDIENCE, CONFIG, ISSUER, KEYS, NOW, Issuer, key
from inmemory import GREETER, Visitor, gateway
from reader import Document, Reader, signed_in
from virtualtime import FakeClock, settle

from toolgate import config as configs
from toolgate.app import App
from toolgate.auth import authenticator, cross_checks, page_sign_in
from toolgate.auth.page_sign_in import MOST_ADDRESSES, MOST_AT_ONCE, NotSignedIn, PageSignIn, SignedIn
from toolgate.auth.safe_net import Fetched
from toolgate.config import Auth, Config, ConfigError
from toolgate.config.access import PagesClient
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.state.audit import Trail

CLIENT, SECRET = "gate", "a secret: of/the gateway"
SIGN_IN = msgspec.structs.replace(
    CONFIG, auth=Auth(ISSUER, AUDIENCE, pages=PagesClient(CLIENT, SECRET, ("profile", "groups")))
)
STAFF = {"sub": "erin", "groups": ["staff"]}


class Provider(Issuer):
    """An issuer at which people sign in. `user` are the claims of who does, `told` is put into what it says of itself,
    `answer` into what its token endpoint does; `asked` are the forms that it was sent there."""

    def __init__(self) -> None:
        super().__init__()
        self.user: dict[str, Any] = dict(STAFF)
        self.told: dict[str, Any] = {"authorization_response_iss_parameter_supported": True}
        self.answer: dict[str, Any] = {}
        self.by: Any = None
        self.asked: list[tuple[dict[str, str], dict[str, str]]] = []
        self._codes: dict[str, dict[str, str]] = {}

    async def fetch(self, url: str, method: str = "GET", **more: Any) -> Fetched:
        if method == "POST":
            self.fetched.append(url)
            assert not more["follow"] and url == f"{ISSUER}/token"
            return self._token(dict(parse_qsl(more["body"].decode())), more["headers"])
        metadata = {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/jwks",
            "authorization_endpoint": f"{ISSUER}/authorize?of=pages",
            "token_endpoint": f"{ISSUER}/token",
        }
        self.answers.setdefault(
            "https://idp.example/.well-known/oauth-authorization-server/realm", {**metadata, **self.told}
        )
        return await super().fetch(url)

    def authorize(self, url: str, **changed: str | None) -> str:
        """Its user agrees: the query of the way back. None takes something out."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": ISSUER} | changed
        return urlencode({name: value for name, value in answer.items() if value is not None})

    def _token(self, sent: dict[str, str], headers: dict[str, str]) -> Fetched:
        self.asked.append((sent, headers))
        begun = self._codes.pop(sent["code"], None)
        if not begun or encoded(sent["code_verifier"]) != begun["code_challenge"]:
            return Fetched(400, {}, b'{"error": "invalid_grant"}', "")
        claims = {"aud": CLIENT, "nonce": begun["nonce"], "iat": NOW, "exp": NOW + 3600, "scope": ..., **self.user}
        token = self.token({"typ": "JWT"}, by=self.by, **claims)
        return Fetched(200, {}, json.dumps({"access_token": "x", "id_token": token, **self.answer}).encode(), "")


def encoded(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    found = Provider()
    monkeypatch.setattr(authenticator, "SafeNet", lambda _allowed, own: found)
    return found


def browser(app: App) -> Reader:
    app.port = 8765  # as if it listened
    return Reader(app)


async def begun(reader: Reader) -> str:
    """Where the browser is led."""
    response = await reader.send("GET", "/ui/oidc")
    assert response.status == 303, response.body
    return response.headers["location"]


async def back(reader: Reader, query: str, status: int = 200) -> Document:
    return await reader.open(f"/ui/oidc/callback?{query}", status)


@pytest.mark.promise("b.operator.issuer")
async def test_an_administrator_signs_in_at_the_issuer_with_a_proof_of_this_gateway(provider: Provider) -> None:
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        page = await reader.open("/ui/login")
        assert "Sign in at idp.example" in page.text
        went = await begun(reader)
        assert went.startswith(f"{ISSUER}/authorize?of=pages&")
        asked = dict(parse_qsl(urlsplit(went).query))
        assert asked["redirect_uri"] == f"{AUDIENCE}/ui/oidc/callback" and asked["scope"] == "openid profile groups"
        assert asked["code_challenge_method"] == "S256" and asked["client_id"] == CLIENT
        held = reader.cookie
        assert all(part not in went for part in held.partition("=")[2].split("."))
        page = await back(reader, provider.authorize(went))
        assert "Signed in" in page.text and [each for each in page.all("meta") if each.get("http-equiv") == "refresh"]
        assert "What needs you" in (await reader.open("/ui")).text
        ((sent, headers),) = provider.asked
        assert sent["grant_type"] == "authorization_code" and sent["redirect_uri"] == asked["redirect_uri"]
        pair = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
        assert pair == "gate:a%20secret%3A%20of%2Fthe%20gateway" and "client_secret" not in sent


async def test_the_cookies_are_what_they_must_be(provider: Provider) -> None:
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        begin = await reader.send("GET", "/ui/oidc")
        flags = "; Path=/ui/oidc; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
        assert begin.headers["set-cookie"].endswith(flags) and begin.headers["cache-control"] == "no-store"
        done = await reader.send("GET", f"/ui/oidc/callback?{provider.authorize(begin.headers['location'])}")
        assert done.headers["set-cookie"].endswith("; Path=/ui; HttpOnly; SameSite=Strict; Secure")
        assert (await reader.send("POST", "/ui/oidc")).status == 405


async def test_a_client_without_a_secret_names_itself_alone(provider: Provider) -> None:
    config = msgspec.structs.replace(CONFIG, auth=Auth(ISSUER, AUDIENCE, pages=PagesClient(CLIENT)))
    async with gateway(GREETER, config=config) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))
        ((sent, headers),) = provider.asked
        assert sent["client_id"] == CLIENT and "Authorization" not in headers and "client_secret" not in sent


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"sub": "dora"}, "no administrator here"),
        ({"sub": "gone", "groups": None}, "matches no enabled client"),
        ({"sub": "nobody", "groups": []}, "matches no enabled client"),
        ({"aud": "other"}, "for another client"),
        ({"aud": f"{AUDIENCE}/mcp"}, "for another client"),
        ({"aud": [CLIENT, "other"]}, "for another client"),
        ({"aud": [CLIENT, "other"], "azp": "other"}, "for another client"),
        ({"azp": "other"}, "for another client"),
        ({"nonce": "of another"}, "of another sign-in"),
        ({"nonce": ...}, "of another sign-in"),
        ({"iss": "https://evil.example"}, "from another issuer"),
        ({"exp": NOW - 3600}, "has expired"),
        ({"exp": ...}, "has no expiry"),
        ({"sub": ...}, "has no subject"),
    ],
)
async def test_nobody_else_is_let_in(provider: Provider, user: dict[str, Any], says: str) -> None:
    base = {} if "sub" in user and user["sub"] != ... else dict(STAFF)
    provider.user = {name: value for name, value in (base | user).items() if value is not None}
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        page = await back(reader, provider.authorize(await begun(reader)), 403)
        assert says in page.text, page.text
        assert "Key of an administrator" in (await reader.open("/ui")).text


async def test_of_several_audiences_the_authorized_one_may_be_this_client(provider: Provider) -> None:
    provider.user |= {"aud": ["other", CLIENT], "azp": CLIENT}
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))


@pytest.mark.parametrize(
    ("answer", "by", "says"),
    [
        ({"id_token": 5}, None, "answered with something that is no token"),
        ({"id_token": None}, None, "gave no ID token"),
        ({"id_token": ""}, None, "gave no ID token"),
        ({"id_token": "a.b.c"}, None, "not a valid token"),
        ({}, key("EC", "e1-of-another"), "key is unknown to its issuer"),
    ],
)
async def test_what_is_no_token_of_the_issuer_lets_nobody_in(
    provider: Provider, answer: dict[str, Any], by: Any, says: str
) -> None:
    provider.answer, provider.by = answer, by
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        assert says in (await back(reader, provider.authorize(await begun(reader)), 403)).text


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"iss": "https://evil.example"}, f"not from {ISSUER}"),
        ({"iss": ISSUER + "/"}, f"not from {ISSUER}"),
        ({"iss": None}, f"not from {ISSUER}"),
        ({"iss": "https://evil.example", "error": "access_denied"}, f"not from {ISSUER}"),
        ({"code": None, "error": "<b>access_denied</b>"}, "idp.example says: <b>access_denied</b>"),
        ({"code": "guessed"}, "gave no ID token: invalid_grant"),
        ({"state": "guessed"}, "not begun in this browser"),
        ({"state": None}, "not begun in this browser"),
        ({"state": "ä"}, "not begun in this browser"),
    ],
)
async def test_an_answer_that_is_not_to_this_question_is_no_answer(
    provider: Provider, changed: dict[str, str | None], says: str
) -> None:
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        page = await back(reader, provider.authorize(await begun(reader), **changed), 403)
        assert says in page.text
        assert bool(provider.asked) == ("invalid_grant" in says)


async def test_an_issuer_that_does_not_name_itself_in_answers_need_not(provider: Provider) -> None:
    provider.told = {}
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader), iss=None))
        other = browser(app)
        evil = provider.authorize(await begun(other), iss="https://evil.example")
        assert "not from" in (await back(other, evil, 403)).text


async def test_only_the_browser_that_went_comes_back_and_within_ten_minutes(provider: Provider) -> None:
    clock = FakeClock()
    async with gateway(GREETER, config=SIGN_IN, clock=clock) as app:
        reader, other = browser(app), browser(app)
        query = provider.authorize(await begun(reader))
        assert f"not begun in this browser: open {AUDIENCE}/ui" in (await back(other, query, 403)).text
        await begun(other)
        assert "not begun in this browser" in (await back(other, query, 403)).text
        for cookie in ("x", "toolgate-sign-in=1.x", f"toolgate-sign-in={NOW}.x", "toolgate-sign-in=" + "9" * 4000):
            other.cookie = cookie
            assert "not begun in this browser" in (await back(other, query, 403)).text
        await clock.advance(601)
        assert "ten minutes" in (await back(reader, query, 403)).text
        assert not provider.asked


async def test_a_code_is_good_once(provider: Provider) -> None:
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        query = provider.authorize(await begun(reader))
        held = reader.cookie
        await back(reader, query)
        reader.cookie = held
        assert "tried already: begin again" in (await back(reader, query, 403)).text
        assert len(provider.asked) == 1  # or anybody could have it asked without end


async def test_a_session_ends_with_the_token_and_with_the_client(provider: Provider) -> None:
    clock = FakeClock()
    async with gateway(GREETER, config=SIGN_IN, clock=clock) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))
        await clock.advance(1800)
        assert "What needs you" in (await reader.open("/ui")).text
        await clock.advance(1900)
        assert "Key of an administrator" in (await reader.open("/ui")).text


LEAVE = "https://idp.example/realm/logout?theme=dark"


@pytest.mark.promise("b.operator.sign_out")
async def test_who_signs_out_is_led_to_sign_out_at_the_issuer_too(provider: Provider, tmp_path: Path) -> None:
    provider.told |= {"end_session_endpoint": LEAVE}
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    async with gateway(GREETER, config=SIGN_IN, clock=clock, audit=trail) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))
        page = await reader.open("/ui")
        held, fetched = reader.cookie, len(provider.fetched)
        left = await reader.send("POST", "/ui/logout", page.hidden)
        assert left.status == 200 and left.headers["set-cookie"] == "toolgate-session=; Path=/ui; Max-Age=0"
        assert left.headers["cache-control"] == "no-store" and left.headers["referrer-policy"] == "same-origin"
        shown = Document(left.body.decode())
        (link,) = [each["href"] for each in shown.all("a") if each["href"].startswith("https:")]
        (meta,) = [each["content"] for each in shown.all("meta") if each.get("http-equiv") == "refresh"]
        assert (
            meta == f"0; url={link}" and link.startswith(f"{LEAVE}&") and "Sign out at idp.example, too" in shown.text
        )
        told = dict(parse_qsl(urlsplit(link).query))
        assert told["client_id"] == CLIENT and set(told) == {"theme", "client_id", "id_token_hint"}
        head, claims, _ = told["id_token_hint"].split(".")
        assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "erin" and head
        assert len(provider.fetched) == fetched  # an issuer that is away keeps nobody signed in
        reader.cookie = held
        assert "Your session has ended" in (await reader.open("/ui")).text
    await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (out,) = [each for each in lines if each["event"] == "pages.sign_out"]
    assert out["issuer"] == "idp.example" and out["who"] == f"token:{ISSUER}|erin"
    assert told["id_token_hint"] not in (tmp_path / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    "endpoint", [None, "", 7, "http://idp.example/out", "javascript:alert(1)", "https://[", "/out"]
)
async def test_an_issuer_that_says_nothing_of_signing_out_keeps_nobody_in(provider: Provider, endpoint: Any) -> None:
    provider.told |= {"end_session_endpoint": endpoint}
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))
        await reader.open("/ui")
        assert "You are signed out." in (await reader.press("/ui/logout")).text


async def test_a_large_token_stands_in_no_url(provider: Provider) -> None:
    provider.told |= {"end_session_endpoint": LEAVE}
    provider.user |= {"more": "x" * 4000}
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))
        left = await reader.send("POST", "/ui/logout", (await reader.open("/ui")).hidden)
        assert f"{LEAVE}&client_id=gate".replace("&", "&amp;") in left.body.decode()
        assert "id_token_hint" not in left.body.decode()


async def test_who_has_signed_in_by_a_link_is_led_to_no_issuer(provider: Provider) -> None:
    provider.told |= {"end_session_endpoint": LEAVE}
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = await signed_in(app)
        assert "You are signed out." in (await reader.press("/ui/logout")).text


async def test_an_issuer_that_is_away_is_asked_seldom_and_keeps_nobody_from_other_ways(provider: Provider) -> None:
    clock = FakeClock()
    provider.is_there = False
    async with gateway(GREETER, config=SIGN_IN, clock=clock) as app:
        reader = browser(app)
        for _ in range(20):
            assert "idp.example cannot be asked" in (await reader.open("/ui/oidc", 403)).text
        assert len(provider.fetched) <= 3
        await reader.press("/ui/login", key=KEYS["carl"])
        assert "What needs you" in reader.page.text
        provider.is_there = True
        await clock.advance(6)
        for _ in range(20):
            await begun(browser(app))
        assert len(provider.fetched) <= 5


@pytest.mark.parametrize(
    "told",
    [
        {"token_endpoint": "http://idp.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": ""},
        {"token_endpoint": 7},
        {"issuer": "https://evil.example"},
    ],
)
async def test_metadata_that_would_lead_elsewhere_lead_nowhere(provider: Provider, told: dict[str, Any]) -> None:
    provider.told |= told
    async with gateway(GREETER, config=SIGN_IN) as app:
        await browser(app).open("/ui/oidc", 403)


async def test_without_a_client_at_the_issuer_nobody_signs_in_there(provider: Provider) -> None:
    for config in (CONFIG, Config()):
        async with gateway(GREETER, config=config) as app:
            reader = browser(app)
            assert "Sign in at" not in (await reader.open("/ui/login")).text
            for path in ("/ui/oidc", "/ui/oidc/callback?code=x&state=y"):
                assert (await reader.send("GET", path)).status == 403
            assert not provider.fetched


@pytest.mark.parametrize("query", ["&" * 200, "a=1&" * 90, "code=" + "&code=x" * 60, "state=%ff&" * 60])
@pytest.mark.parametrize("cookie", ["", "toolgate-sign-in=1.x"])
async def test_an_answer_of_very_many_fields_is_refused_as_any_other(
    provider: Provider, query: str, cookie: str
) -> None:
    for config in (CONFIG, Config()):
        async with gateway(GREETER, config=config) as app:
            headers = {"cookie": cookie} if cookie else {}
            asked = Visitor(app).begin("GET", path="/ui/oidc/callback", query_string=query.encode(), headers=headers)
            assert (await asked.response()).status == 403


@pytest.mark.promise("b.operator.issuer")
async def test_sign_ins_are_in_the_audit_failed_ones_too_and_nobody_floods_it(
    provider: Provider, tmp_path: Path
) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    async with gateway(GREETER, config=SIGN_IN, clock=clock, audit=trail) as app:
        reader = browser(app)
        await back(reader, provider.authorize(await begun(reader)))
        await reader.open("/ui")
        await reader.press("/ui/logout")
        for _ in range(500):
            await back(reader, "code=x&state=y", 403)
            await reader.send("POST", "/ui/link/nothing")
        await reader.open("/ui/login")
        await reader.press("/ui/login", 403, key=KEYS["ada"])
        await clock.advance(120)
    await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    ours = [each for each in lines if each["event"].startswith("pages.")]
    assert [(each["event"], each.get("way"), each.get("decision")) for each in ours[:2]] == [
        ("pages.sign_in", "issuer", "allow"),
        ("pages.sign_out", None, None),
    ]
    assert ours[0]["who"] == ours[1]["who"] == f"token:{ISSUER}|erin"
    refused = [each for each in ours if each.get("decision") == "deny"]
    assert {each["way"] for each in refused} == {"issuer", "link", "key"} and len(refused) < 200
    assert sum(each.get("not_noted", 0) + 1 for each in refused) >= 1000


def test_the_secret_may_be_a_reference_and_is_not_shown() -> None:
    text = f'[auth]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nclient = "a"\n'
    text += 'pages = { client_id = "gate", client_secret = "${GATE_SECRET}" }\n[[clients]]\nid = "a"\n'
    found = configs.read(text, file="toolgate.toml", environ={"GATE_SECRET": "hidden-words-1"}, format="toml")
    assert found.auth.pages.client_secret == "hidden-words-1"
    assert "hidden-words-1" in configs.secrets_of(found) and "hidden-words-1" not in repr(found)
    with pytest.raises(ConfigError, match="GATE_SECRET"):
        configs.read(text, file="toolgate.toml", environ={}, format="toml")


def test_an_id_token_must_not_be_a_token_for_the_gateway() -> None:
    auth = Auth(ISSUER, AUDIENCE, client="ada", pages=PagesClient(f"{AUDIENCE}/mcp"))
    (problem,) = cross_checks.problems(msgspec.structs.replace(CONFIG, auth=auth))
    assert problem.path == "auth.pages.client_id"


async def test_an_issuer_that_cannot_be_reached_with_the_code_says_so(provider: Provider) -> None:
    async with gateway(GREETER, config=SIGN_IN) as app:
        reader = browser(app)
        query = provider.authorize(await begun(reader))

        def away(*_: Any) -> Fetched:
            raise Fault("UPSTREAM_ERROR", "no route")

        provider._token = away  # type: ignore[method-assign]
        assert "cannot be asked: no route" in (await back(reader, query, 403)).text


async def test_a_stranger_leaves_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can begin a sign-in, and come back with any code."""
    forever = asyncio.Event()

    async def nobody(*_: Any) -> Any:
        await forever.wait()

    clock = FakeClock()
    sign_in = PageSignIn(lambda: SIGN_IN.auth, lambda: None, nobody, clock)
    monkeypatch.setattr(sign_in, "_found", nobody)

    def comes_back(address: str) -> asyncio.Task[SignedIn]:
        cookie = f"{int(clock.wall())}.{secrets.token_hex()}"
        return asyncio.create_task(sign_in.finish({"state": sign_in._made("state", cookie)}, cookie, "", address))  # pyright: ignore[reportPrivateUsage]

    strange = [comes_back("192.0.2.6") for _ in range(30)]
    await settle()
    assert sum(task.done() for task in strange) == 30 - MOST_AT_ONCE // 2
    others = [comes_back(f"192.0.2.{last}") for last in range(100, 100 + MOST_ADDRESSES)]
    await settle()
    assert sum(not task.done() for task in (*strange, *others)) == MOST_ADDRESSES
    assert not others[0].done()
    for task in (*strange, *others):
        task.cancel()
    await asyncio.gather(*strange, *others, return_exceptions=True)
    assert not sign_in._at_once  # pyright: ignore[reportPrivateUsage]


async def test_of_sign_ins_that_are_over_no_more_is_kept_than_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: Any) -> Any:
        raise NotSignedIn("x")

    clock = FakeClock()
    sign_in = PageSignIn(lambda: SIGN_IN.auth, lambda: None, nobody, clock)
    monkeypatch.setattr(sign_in, "_found", nobody)
    monkeypatch.setattr(page_sign_in, "MOST_USED", 5)
    for number in range(9):
        cookie = f"{int(clock.wall())}.{number}"
        with pytest.raises(NotSignedIn, match="x"):
            await sign_in.finish({"state": sign_in._made("state", cookie)}, cookie, "", "a")  # pyright: ignore[reportPrivateUsage]
    assert len(sign_in._used) == 5  # pyright: ignore[reportPrivateUsage]
    await clock.advance(601)
    sign_in._use(f"{int(clock.wall())}.later")  # pyright: ignore[reportPrivateUsage]
    assert len(sign_in._used) == 1  # pyright: ignore[reportPrivateUsage]
