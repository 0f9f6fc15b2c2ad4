"""The gateway as an OAuth client, against an authorization server that may do anything wrong."""

import asyncio
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from authority import Authority, Reached, challenge
from joserfc import jwt
from joserfc.jwk import ECKey
from virtualtime import FakeClock

from toolgate.auth.oauth.base import NOWHERE, Begun, Refusal
from toolgate.auth.oauth.challenge import read, scopes
from toolgate.auth.oauth.credentials import OAuth
from toolgate.config import Config, Server, ServerAuth
from toolgate.core.fault import Fault
from toolgate.core.redaction import GONE, LONGEST_TOKEN, Redactor
from toolgate.frontends.web.connect import PLACES
from toolgate.state.memory import MemoryStore

KEY = b"k" * 32
BASE = "http://127.0.0.1:8765"


class Rig:
    """One gateway's credentials, one server `docs`, and the authorities that there are."""

    def __init__(
        self, *authorities: Authority, store: MemoryStore | None = None, base: str = BASE, **auth: Any
    ) -> None:
        self.authority = authorities[0] if authorities else Authority()
        self.outside = Reached(*(authorities or (self.authority,)))
        self.store = store or MemoryStore(FakeClock())
        self.redactor = Redactor()
        self.granted: list[tuple[str, str]] = []
        self.oauth = OAuth(
            self.store, [KEY], FakeClock(), self.outside, self.redactor, lambda: base,
            lambda *who: self.granted.append(who),
        )  # fmt: skip
        self.oauth.served_at(PLACES)
        self.server = Server(id="docs", name="docs", type="http", url=self.authority.server, auth=ServerAuth(**auth))
        self.oauth.prepared(Config(servers=(self.server,)))()
        self.credential = self.badge_of("ann")

    def badge_of(self, principal: str) -> Any:
        return self.oauth.credential(self.server, principal)

    async def fault(self, credential: Any = None, status: int = 401, shown: str = "", **wants: str) -> Fault:
        with pytest.raises(Fault) as raised:
            await (credential or self.credential).refused(
                Refusal(status, challenge(**wants) if wants else "Bearer", shown)
            )
        return raised.value

    async def begun(self, fault: Fault) -> Begun:
        """The user has read the page and pressed its button."""
        id = link_of(fault)
        offered = self.oauth.find(id)
        assert offered
        begun = await self.oauth.begin(id, offered.confirm)
        assert begun
        return begun

    async def sign_in(self, credential: Any = None, shown: str = "", **wants: str) -> str:
        """From a refusal to a token: what is shown then."""
        begun = await self.begun(await self.fault(credential, shown=shown, **wants))
        assert await self.back(begun) == "docs"
        return await (credential or self.credential).shown()

    async def back(self, begun: Begun, answer: dict[str, str] | None = None, cookie: str | None = None) -> str:
        """The browser comes back to where it was to be sent; without an `answer`, with what the authority gave it."""
        if answer is None:
            authority = next(each for each in self.outside.authorities if begun.url.startswith(each.issuer))
            answer = authority.authorize(begun.url)
        path = urlsplit(dict(parse_qsl(urlsplit(begun.url).query))["redirect_uri"]).path
        return await self.oauth.finish(answer, begun.cookie if cookie is None else cookie, path)

    def grant(self) -> Any:
        return self.oauth.vault.grant(self.server, "ann")


def link_of(fault: Fault) -> str:
    found = re.search(r"/connect/([\w-]{40,})$", fault.message)
    assert found, fault.message
    return found[1]


@pytest.mark.promise("spec.2026.authorization.resource")
async def test_a_refused_user_is_sent_to_a_page_and_what_it_was_granted_is_shown_from_then_on() -> None:
    rig = Rig()
    assert await rig.credential.shown() == ""
    shown = await rig.sign_in()
    assert shown.removeprefix("Bearer ") in rig.authority.tokens
    assert rig.granted == [("docs", "ann")]
    asked, told = rig.authority.asked("/authorize")[0], rig.authority.asked("/token")[0]
    assert asked["resource"] == told["resource"] == rig.server.url
    assert re.fullmatch(re.escape(BASE) + "/connect/callback/[0-9a-f]{32}", asked["redirect_uri"])
    assert "scope" not in asked
    assert rig.authority.asked("/register")[0]["application_type"] == "native"


async def test_the_fault_is_a_question_for_a_page_in_the_protocols_own_words() -> None:
    fault = await Rig().fault()
    assert (fault.code, fault.rpc, fault.reach) == ("SIGN_IN_REQUIRED", -32042, "not_sent")
    assert fault.upstream
    (page,) = msgspec.json.decode(fault.upstream.data)["elicitations"]
    assert page["mode"] == "url" and page["url"].endswith(link_of(fault)) and page["elicitationId"] not in page["url"]


async def test_a_page_is_offered_once_however_often_its_user_is_refused() -> None:
    rig = Rig()
    pages = {link_of(await rig.fault()) for _ in range(5)}
    assert len(pages) == len(rig.authority.asked("/register")) == 1


def _another_issuer(authority: Authority) -> None:
    authority.metadata["issuer"] = "https://attacker.example"


def _issuer_with_a_slash(authority: Authority) -> None:
    authority.metadata["issuer"] += "/"


def _no_pkce(authority: Authority) -> None:
    del authority.metadata["code_challenge_methods_supported"]


def _plain_pkce(authority: Authority) -> None:
    authority.metadata["code_challenge_methods_supported"] = ["plain"]


def _resource(resource: str) -> Callable[[Authority], None]:
    def change(authority: Authority) -> None:
        authority.resource["resource"] = resource

    change.__name__ = resource
    return change


def _token_in_the_clear(authority: Authority) -> None:
    authority.metadata["token_endpoint"] = "http://as.example/token"


def _page_is_no_web_page(authority: Authority) -> None:
    authority.metadata["authorization_endpoint"] = "javascript:alert(1)"


def _page(more: str) -> Callable[[Authority], None]:
    def change(authority: Authority) -> None:
        authority.metadata["authorization_endpoint"] += more

    change.__name__ = more
    return change


def _issuer_in_the_clear(authority: Authority) -> None:
    authority.resource["authorization_servers"] = ["http://169.254.169.254"]


def _issuer_is_no_url(authority: Authority) -> None:
    authority.resource["authorization_servers"] = ["https://["]


@pytest.mark.promise("spec.2026.authorization.pkce")
@pytest.mark.promise("spec.2026.authorization.discovery")
@pytest.mark.parametrize(
    "wrong",
    [
        _another_issuer, _issuer_with_a_slash, _no_pkce, _plain_pkce, _token_in_the_clear, _page_is_no_web_page,
        _issuer_in_the_clear, _issuer_is_no_url,
        *map(_page, (
            "?client_id=honest", "?a=1&redirect_uri=https://evil.example", "?%63lient_id=x", "?Response_Type=token",
            "?request_uri=https://evil.example/r", "?state", "#part", "#", "?a=1#client_id=x",
        )),
        *map(_resource, (
            "https://evil.example/mcp", "http://mcp.example/mcp", "https://mcp.example:8443/mcp",
            "https://mcp.example/mcp/deeper", "https://mcp.example/mc", "https://mcp.example/mcp#part",
            "https://user@evil.example/mcp", "mcp.example/mcp",
        )),
    ],
    ids=lambda wrong: wrong.__name__.strip("_"),
)  # fmt: skip
async def test_nobody_is_sent_anywhere_where_the_documents_do_not_fit(wrong: Callable[[Authority], None]) -> None:
    rig = Rig()
    wrong(rig.authority)
    fault = await rig.fault()
    assert fault.code in ("SERVER_FAILED", "ACCESS_DENIED"), fault
    assert not rig.authority.asked("/register") and not rig.oauth.link("docs", "ann")


async def test_who_cannot_be_asked_to_sign_in_since_nothing_can_be_stored_hears_so() -> None:
    rig = Rig()
    await rig.store.close()
    fault = await rig.fault()
    assert fault.code == "SERVER_FAILED" and "the gateway cannot store it" in fault.message


@pytest.mark.parametrize("resource", ["https://mcp.example/mcp", "https://mcp.example/mcp/", "https://mcp.example"])
async def test_a_resource_is_named_to_the_authority_as_its_server_writes_it(resource: str) -> None:
    rig = Rig()
    rig.authority.resource["resource"] = resource
    rig.authority.described.append("")
    await rig.sign_in()
    assert rig.authority.asked("/authorize")[0]["resource"] == resource


ANSWERS: dict[str, dict[str, str | None]] = {
    "of another": {"iss": "https://attacker.example"},
    "of none though it says that it names itself": {"iss": None},
    "that is the same only when tidied up": {"iss": "https://as.example/"},
    "in other letters": {"iss": "https://AS.example"},
    "of another, and an error": {"iss": "https://attacker.example", "code": None, "error": "call-this-number"},
}


@pytest.mark.promise("spec.2026.authorization.issuer")
@pytest.mark.parametrize("changed", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_not_acted_on_that_is_not_of_the_issuer_asked(changed: dict[str, str | None]) -> None:
    rig = Rig()
    begun = await rig.begun(await rig.fault())
    with pytest.raises(Fault, match=r"is not from https://as\.example") as raised:
        await rig.back(begun, rig.authority.authorize(begun.url, **changed))
    assert "call-this-number" not in raised.value.message
    assert not rig.authority.asked("/token") and await rig.credential.shown() == ""


async def test_an_authority_that_does_not_name_itself_is_believed_when_it_does_not_say_that_it_would() -> None:
    rig = Rig()
    rig.authority.metadata["authorization_response_iss_parameter_supported"] = False
    begun = await rig.begun(await rig.fault())
    await rig.back(begun, rig.authority.authorize(begun.url, iss=None))
    assert await rig.credential.shown()


async def test_an_answer_is_taken_once_from_the_browser_that_went_and_with_its_state() -> None:
    rig = Rig()
    begun = await rig.begun(await rig.fault())
    answer = rig.authority.authorize(begun.url)
    for wrong, cookie in (
        (answer | {"state": "x"}, begun.cookie),
        ({"code": "c"}, begun.cookie),
        (answer, "other"),
        (answer, ""),
    ):
        with pytest.raises(Fault):
            await rig.back(begun, wrong, cookie)
    assert not rig.authority.asked("/token")
    await rig.back(begun, answer)
    with pytest.raises(Fault, match="unknown or has expired"):
        await rig.back(begun, answer)
    assert len(rig.authority.asked("/token")) == 1


async def test_a_link_is_begun_once_and_with_what_stood_on_its_page() -> None:
    rig = Rig()
    id = link_of(await rig.fault())
    offered = rig.oauth.find(id)
    assert offered
    assert await rig.oauth.begin(id, "guessed") is None
    assert await rig.oauth.begin("guessed", offered.confirm) is None
    both = await asyncio.gather(*(rig.oauth.begin(id, offered.confirm) for _ in range(2)))
    assert sum(begun is not None for begun in both) == 1
    assert rig.oauth.find(id) is None


async def test_a_link_and_what_was_begun_with_it_last_for_ten_minutes() -> None:
    rig = Rig()
    begun = await rig.begun(await rig.fault())
    id = link_of(await rig.fault())
    await asyncio.sleep(601)
    assert rig.oauth.find(id) is None
    with pytest.raises(Fault, match="has expired"):
        await rig.back(begun)


async def test_what_one_was_granted_is_no_one_elses() -> None:
    rig = Rig()
    ann = await rig.sign_in()
    assert await rig.badge_of("ben").shown() == ""
    ben = await rig.sign_in(rig.badge_of("ben"))
    assert ben != ann and await rig.credential.shown() == ann
    elsewhere = msgspec.structs.replace(rig.server, url="https://other.example/mcp")
    assert await rig.oauth.credential(elsewhere, "ann").shown() == ""


async def test_what_is_kept_cannot_be_read_without_the_keys_and_is_not_shown_in_texts() -> None:
    rig = Rig()
    token = (await rig.sign_in()).removeprefix("Bearer ")
    kept = b"".join(
        value + key.encode()
        for space in ("oauth/grants", "oauth/clients", "oauth/sign-ins", "oauth/issuers")
        for key, value in rig.store.items(space).items()
    )
    secrets = [token, *rig.authority.refreshes, *rig.authority.clients.values()]
    assert kept and not any(secret.encode() in kept for secret in secrets)
    assert rig.redactor.of("docs").text(" ".join(secrets)) == " ".join([GONE] * len(secrets))
    again = Rig(rig.authority, store=rig.store)
    assert await again.credential.shown() == f"Bearer {token}"
    other = OAuth(rig.store, [b"x" * 32], FakeClock(), rig.outside, Redactor(), lambda: BASE)
    assert await other.credential(rig.server, "ann").shown() == ""


async def test_a_token_near_its_end_is_renewed_once_however_many_want_it() -> None:
    rig = Rig()
    first = await rig.sign_in()
    await asyncio.sleep(3590)
    shown = await asyncio.gather(*(rig.badge_of("ann").shown() for _ in range(20)))
    assert len(set(shown)) == 1 and shown[0] != first
    assert [told["grant_type"] for told in rig.authority.asked("/token")] == ["authorization_code", "refresh_token"]
    assert rig.authority.asked("/token")[1]["resource"] == rig.server.url


async def test_a_token_that_is_refused_is_renewed_once_however_many_were_refused() -> None:
    rig = Rig()
    first = await rig.sign_in()
    shown = await asyncio.gather(*(rig.badge_of("ann").refused(Refusal(401, "Bearer", first)) for _ in range(20)))
    assert len(set(shown)) == 1 and shown[0] != first
    assert len(rig.authority.asked("/token")) == 2
    assert await rig.credential.refused(Refusal(401, "Bearer", first)) == shown[0]  # who comes late
    assert len(rig.authority.asked("/token")) == 2


async def test_of_two_gateways_with_one_store_the_slower_takes_what_the_quicker_was_given() -> None:
    rig = Rig()
    first = await rig.sign_in()
    other = Rig(rig.authority, store=rig.store)
    assert await other.credential.shown() == first
    quicker = await rig.credential.refused(Refusal(401, "Bearer", first))
    assert await other.credential.refused(Refusal(401, "Bearer", first)) == quicker
    await asyncio.sleep(3590)  # both have the same one, and both renew it: it is good for one of them
    both = await asyncio.gather(rig.credential.shown(), other.credential.shown())
    assert len(set(both)) == 1 and both[0].removeprefix("Bearer ") in rig.authority.tokens


async def test_who_goes_away_does_not_end_what_others_wait_for() -> None:
    rig = Rig()
    first = await rig.sign_in()
    leaving, staying = (asyncio.ensure_future(rig.credential.refused(Refusal(401, "Bearer", first))) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying != first
    assert len(rig.authority.asked("/token")) == 2


async def test_where_nothing_renews_a_token_its_user_is_asked_again() -> None:
    rig = Rig()
    first = await rig.sign_in()
    rig.authority.refreshes.clear()
    fault = await rig.fault(shown=first)
    assert fault.code == "SIGN_IN_REQUIRED" and link_of(fault)


@pytest.mark.parametrize(
    "given",
    [
        {"access_token": "with a space"}, {"access_token": "two\r\nX-Lines: yes"}, {"access_token": ""},
        {"token_type": "DPoP"}, {"token_type": ""}, {"access_token": "ü" * 20},
    ],
    ids=str,
)  # fmt: skip
async def test_what_could_not_stand_in_a_header_or_is_no_bearers_is_no_token(given: dict[str, str]) -> None:
    rig = Rig()
    rig.authority.gives |= given
    begun = await rig.begun(await rig.fault())
    with pytest.raises(Fault, match="no bearer token"):
        await rig.back(begun)
    assert await rig.credential.shown() == ""


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
@pytest.mark.parametrize("length", [LONGEST_TOKEN, LONGEST_TOKEN + 1, 1_000_000])
async def test_a_token_that_no_header_has_room_for_is_refused_and_said_so(length: int, name: str) -> None:
    rig = Rig()
    rig.authority.gives[name] = "t" * length
    begun = await rig.begun(await rig.fault())
    if length == LONGEST_TOKEN:
        await rig.back(begun)
        assert len(await rig.credential.shown()) >= (length if name == "access_token" else 1)
    else:
        with pytest.raises(Fault, match="a token of more than 16,384 characters, which no header has room for"):
            await rig.back(begun)
        assert await rig.credential.shown() == ""


async def test_what_an_authority_or_a_server_says_by_null_is_left_out() -> None:
    rig = Rig()
    rig.authority.resource |= {"scopes_supported": None, "resource_name": None}
    rig.authority.metadata |= {
        "scopes_supported": None,
        "client_id_metadata_document_supported": None,
        "service_documentation": None,
    }
    rig.authority.gives |= {"expires_in": None, "scope": None, "error": None}
    await rig.sign_in()
    assert (await rig.credential.shown()).startswith("Bearer token-")


async def test_scopes_that_cannot_be_asked_for_are_none() -> None:
    rig = Rig()
    wrong = ["a b", "\u202egnp", "", "caf\u00e9", 'a"b', "a\\b", "a\nb"]
    rig.authority.resource["scopes_supported"] = [*wrong, "read", "read", *(f"scope-{each}" for each in range(100))]
    await rig.sign_in()
    [asked] = rig.authority.asked("/authorize")
    assert asked["scope"].split(" ") == ["read", *(f"scope-{each}" for each in range(63))]


async def test_scopes_are_those_of_the_challenge_else_those_that_the_server_knows_else_none() -> None:
    rig = Rig()
    rig.authority.resource["scopes_supported"] = ["read", "write"]
    await rig.sign_in(rig.badge_of("challenged"), scope="read")
    await rig.sign_in(rig.badge_of("unchallenged"))
    assert [asked["scope"] for asked in rig.authority.asked("/authorize")] == ["read", "read write"]


async def test_offline_access_is_asked_for_only_where_the_authority_knows_it() -> None:
    rig = Rig()
    rig.authority.metadata["scopes_supported"] = ["read", "offline_access"]
    await rig.sign_in(scope="read")
    assert rig.authority.asked("/authorize")[0]["scope"] == "read offline_access"


@pytest.mark.promise("spec.2026.authorization.step-up")
async def test_a_wider_operation_asks_for_what_it_needs_beside_what_was_asked_for_before() -> None:
    rig = Rig()
    first = await rig.sign_in(scope="read")
    fault = await rig.fault(status=403, shown=first, error="insufficient_scope", scope="write")
    begun = await rig.begun(fault)
    await rig.back(begun)
    assert rig.authority.asked("/authorize")[1]["scope"] == "read write"
    assert await rig.credential.shown() != first


async def test_a_scope_that_was_granted_and_does_not_help_is_not_asked_for_again() -> None:
    rig = Rig()
    first = await rig.sign_in(scope="admin")
    fault = await rig.fault(status=403, shown=first, error="insufficient_scope", scope="admin")
    assert fault.code == "UPSTREAM_ERROR" and "after a sign-in that requested it" in fault.message


@pytest.mark.promise("spec.2026.authorization.step-up")
async def test_a_scope_that_is_never_granted_is_asked_for_a_few_times() -> None:
    rig = Rig()
    rig.authority.grants = ["read"]
    shown = await rig.sign_in(scope="read")
    asked = 0
    while (fault := await rig.fault(status=403, shown=shown, error="insufficient_scope", scope="admin")).upstream:
        begun = await rig.begun(fault)
        await rig.back(begun)
        shown, asked = await rig.credential.shown(), asked + 1
        assert asked < 5
    assert asked == 3


@pytest.mark.promise("spec.2026.authorization.binding")
async def test_after_a_server_has_moved_to_another_authority_nothing_of_the_first_is_shown_to_it() -> None:
    old, new = Authority(), Authority(issuer="https://new.example")
    rig = Rig(old, new)
    first = await rig.sign_in()
    old.resource["authorization_servers"] = [new.issuer]
    shown = await rig.sign_in(shown=first)
    assert shown != first and shown.removeprefix("Bearer ") in new.tokens
    (registered,) = new.clients
    assert new.asked("/authorize")[0]["client_id"] == registered
    told = str(new.requests)
    assert not any(secret in told for secret in (*old.clients, *old.clients.values(), *old.tokens, *old.refreshes))
    assert len(old.asked("/token")) == 1


async def test_a_client_that_was_registered_by_hand_is_shown_to_the_first_issuer_alone() -> None:
    old, new = Authority(), Authority(issuer="https://new.example")
    rig = Rig(old, new, client_id="by-hand", client_secret="a secret by hand")
    old.clients["by-hand"] = "a secret by hand"
    first = await rig.sign_in()
    old.resource["authorization_servers"] = [new.issuer]
    fault = await rig.fault(shown=first)
    assert fault.code == "SERVER_FAILED" and "registered at https://as.example" in fault.message
    assert "by-hand" not in str(new.requests)


async def test_the_secret_of_a_client_is_that_of_the_configuration_as_it_is_now() -> None:
    authority = Authority()
    authority.clients["by-hand"] = "the leaked one"
    before = Rig(authority, client_id="by-hand", client_secret="the leaked one")
    first = await before.sign_in()
    authority.clients["by-hand"] = "the new one"
    after = Rig(authority, store=before.store, client_id="by-hand", client_secret="the new one")
    assert await after.credential.shown() == first
    renewed = await after.credential.refused(Refusal(401, "Bearer", first))
    assert renewed != first and renewed.removeprefix("Bearer ") in authority.tokens
    assert after.grant().client.secret == ""


async def test_who_is_registered_as_a_client_with_a_key_that_it_does_not_have_says_so() -> None:
    authority = Authority()
    authority.registered = {"token_endpoint_auth_method": "private_key_jwt"}
    fault = await Rig(authority).fault()
    assert "has registered a client that must sign with a private key" in fault.message
    assert "`private_key`" in fault.hint and not authority.asked("/authorize")


async def test_an_issuer_that_is_configured_is_the_only_one() -> None:
    rig = Rig(client_id="by-hand", issuer="https://right.example")
    fault = await rig.fault()
    assert "`auth.issuer` is https://right.example" in fault.message
    assert not rig.authority.asked("/.well-known/oauth-authorization-server")


async def test_where_the_gateway_is_reached_by_https_its_document_says_who_it_is() -> None:
    rig = Rig(base="https://gate.example")
    rig.authority.metadata["client_id_metadata_document_supported"] = True
    await rig.sign_in()
    asked = rig.authority.asked("/authorize")[0]
    document = msgspec.json.decode(rig.oauth.document() or b"")
    assert asked["client_id"] == document["client_id"] == "https://gate.example/connect/client.json"
    assert asked["redirect_uri"] in document["redirect_uris"] and document["application_type"] == "web"
    assert "refresh_token" in document["grant_types"] and not rig.authority.asked("/register")
    again = Rig(rig.authority, store=rig.store, base="https://gate.example")
    assert await again.credential.shown() == await rig.credential.shown() != ""
    again.oauth.served_at(NOWHERE)
    assert await again.credential.shown() == ""  # a client by itself has no document where none is served


async def test_no_browser_is_sent_back_over_a_network_in_the_clear() -> None:
    fault = await Rig(base="http://192.168.0.9:8765").fault()
    assert fault.code == "SERVER_FAILED" and "auth.audience" in fault.hint


async def test_where_no_browser_can_come_the_command_is_named() -> None:
    fault = await Rig(base="").fault()
    assert fault.code == "SIGN_IN_REQUIRED" and "toolgate connect docs" in fault.message and not fault.upstream


async def test_nobody_can_sign_in_where_no_page_for_it_is_served() -> None:
    rig = Rig()
    oauth = OAuth(rig.store, [KEY], FakeClock(), rig.outside, Redactor(), lambda: BASE)
    oauth.prepared(Config(servers=(rig.server,)))()
    fault = await rig.fault(oauth.credential(rig.server, "ann"))
    assert fault.code == "SIGN_IN_REQUIRED" and "toolgate connect docs" in fault.message and BASE not in fault.message
    assert oauth.document() is None and not oauth.link("docs", "ann")


async def test_what_all_share_is_for_the_operator_to_sign_in_at() -> None:
    rig = Rig(shared=True)
    fault = await rig.fault()
    assert "toolgate connect docs" in fault.message and "/connect/" not in fault.message and not fault.upstream
    assert rig.oauth.link("docs", "ann") == rig.oauth.link("docs", "ben") != ""


async def test_own_credentials_need_no_user_and_are_asked_with_once() -> None:
    rig = Rig(grant="client_credentials", client_id="robot", client_secret="of the robot")
    rig.authority.clients["robot"] = "of the robot"
    shown = await asyncio.gather(*(rig.badge_of(who).refused(Refusal(401, "Bearer")) for who in ("ann", "ben")))
    assert len(set(shown)) == 1 and len(rig.authority.asked("/token")) == 1
    assert rig.authority.asked("/token")[0]["resource"] == rig.server.url
    fault = await rig.fault(status=403, shown=shown[0], error="insufficient_scope")
    assert "after a sign-in that requested it" in fault.message


async def test_wrong_credentials_of_our_own_are_said_to_be_wrong() -> None:
    rig = Rig(grant="client_credentials", client_id="robot", client_secret="wrong")
    rig.authority.clients["robot"] = "right"
    fault = await rig.fault()
    assert fault.code == "SERVER_FAILED" and "invalid_client" in fault.message and "check `client_id`" in fault.hint


def state_of(rig: Rig) -> Any:
    (state,) = rig.oauth.credentials()
    return state


async def test_what_was_granted_says_when_it_ends_and_that_it_is_renewed() -> None:
    rig = Rig()
    await rig.fault()
    assert rig.oauth.credentials() == [], "a first sign-in that is asked for is no failure"
    await rig.sign_in()
    state = state_of(rig)
    assert (state.credential, state.server, state.principal) == ("sign-in", "docs", "ann")
    assert state.expires == pytest.approx(rig.oauth.clock.wall() + 3600, abs=5)
    assert state.renews and state.failing_since is None


async def test_a_grant_that_is_refused_for_good_fails_since_then_until_its_user_signs_in() -> None:
    rig = Rig()
    first = await rig.sign_in()
    rig.authority.refreshes.clear()
    await rig.fault(shown=first)
    since = state_of(rig).failing_since
    await asyncio.sleep(100)
    await rig.fault(shown=first)
    state = state_of(rig)
    assert since is not None and state.failing_since == since
    assert "sign in again" in state.problem and "/connect/" not in state.problem
    await rig.sign_in(shown=first)
    assert state_of(rig).failing_since is None


async def test_own_credentials_that_are_wrong_fail_until_they_are_right() -> None:
    rig = Rig(grant="client_credentials", client_id="robot", client_secret="wrong")
    rig.authority.clients["robot"] = "right"
    await rig.fault()
    state = state_of(rig)
    assert (state.credential, state.principal) == ("client_credentials", "")
    assert "invalid_client" in state.problem and state.failing_since
    rig.authority.clients["robot"] = "wrong"
    await rig.credential.refused(Refusal(401, "Bearer"))
    assert state_of(rig).problem == ""


async def test_no_state_of_a_credential_holds_it() -> None:
    rig = Rig()
    shown = await rig.sign_in()
    assert shown.removeprefix("Bearer ") not in repr(rig.oauth.credentials())


async def test_a_key_signs_who_we_are_for_this_issuer_and_a_minute() -> None:
    key = ECKey.generate_key("P-256")
    rig = Rig(grant="client_credentials", client_id="robot", private_key=key.as_pem(private=True).decode())
    await rig.credential.refused(Refusal(401, "Bearer"))
    told = rig.authority.asked("/token")[0]
    signed = jwt.decode(told["client_assertion"], key, algorithms=["ES256"])
    assert signed.claims["iss"] == signed.claims["sub"] == told["client_id"] == "robot"
    assert signed.claims["aud"] == "https://as.example" and signed.claims["exp"] - signed.claims["iat"] == 60


async def test_a_key_that_is_none_fails_its_server_and_is_not_shown() -> None:
    rig = Rig(grant="client_credentials", client_id="robot", private_key="-----BEGIN not a key")
    fault = await rig.fault()
    assert fault.code == "SERVER_FAILED" and "not a key" not in fault.message


async def test_a_user_who_says_no_is_not_signed_in() -> None:
    rig = Rig()
    begun = await rig.begun(await rig.fault())
    answer = rig.authority.authorize(begun.url, code=None, error="access_denied")
    with pytest.raises(Fault, match="access_denied"):
        await rig.back(begun, answer)
    assert await rig.credential.shown() == ""


async def test_a_call_waits_for_its_user_until_it_has_signed_in() -> None:
    rig = Rig()
    begun = await rig.begun(await rig.fault())
    waiting = asyncio.ensure_future(rig.oauth.settled("docs", "ann", 25.0))
    await asyncio.sleep(5)
    assert not waiting.done()
    await rig.back(begun)
    await asyncio.sleep(1)
    assert waiting.done()
    await rig.fault(rig.badge_of("ben"))
    await rig.oauth.settled("docs", "ben", 25.0)  # who never does is not waited for any longer


@pytest.mark.parametrize(
    ("written", "wants"),
    [
        ('Bearer resource_metadata="https://a/b", scope="read write"', ("https://a/b", ("read", "write"), "")),
        (
            'Basic realm="x, Bearer scope=\\"no\\"", bearer error=insufficient_scope , scope="a"',
            ("", ("a",), "insufficient_scope"),
        ),
        ("Negotiate abc==, Bearer", ("", None, "")),
        ('Bearer scope=""', ("", (), "")),
        ('Digest nonce="1"', ("", None, "")),
        ('Bearer scope="a\\\\b é ok"', ("", ("ok",), "")),
        ("", ("", None, "")),
        ('Bearer scope="' + "x" * 100_000, ("", None, "")),
    ],
    ids=lambda each: each[:30] if isinstance(each, str) else "",
)  # fmt: skip
async def test_challenges_are_read_as_they_are_written(written: str, wants: tuple[Any, ...]) -> None:
    found = read(written)
    assert (found.resource_metadata, found.scopes, found.error) == wants


async def test_what_is_offered_names_the_host_that_a_browser_is_led_to() -> None:
    rig = Rig()
    rig.authority.metadata["authorization_endpoint"] = "https://elsewhere.example/authorize?tenant=1"
    url = str(await rig.fault()).partition("open ")[2]
    offered = rig.oauth.find(url.rpartition("/")[2])
    assert offered and (offered.leads_to, offered.authority) == ("elsewhere.example", rig.authority.issuer)


def test_of_a_list_of_scopes_without_end_the_first_are_read_and_none_is_cut() -> None:
    class Never(str):
        def split(self, *_: Any) -> Any:
            raise AssertionError("all of it was taken apart")

    assert scopes("a b c") == ("a", "b", "c")
    assert scopes(Never("a b " + "c" * 1_000_000)) == ("a", "b")
    assert scopes(Never(" " * 1_000_000)) == scopes(Never("x" * 1_000_000)) == ()
