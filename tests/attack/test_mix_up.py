"""A hostile authorization server that leads users to an honest one gets neither that one's code nor its token, whether
or not either of them names itself in its answers (RFC 9207)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from authority import Answer, Authority, Json
from unit.auth.test_oauth import BASE, Rig

from toolgate.config import Config, Server, ServerAuth
from toolgate.core.fault import Fault

GATE = "https://gate.example"


class Strict(Authority):
    """As honest ones are: it sends browsers back to where their client was registered for, or described, only."""

    rig: Rig

    def __init__(self, issuer: str = "https://as.example", server: str = "https://mcp.example/mcp") -> None:
        super().__init__(issuer, server)
        self.places: dict[str, list[str]] = {}  # redirect URIs by client

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        status, said = super().answer(method, url, headers, body)
        if urlsplit(url).path == "/register" and status == 201:
            self.places[said["client_id"]] = self.requests[-1][2]["redirect_uris"]
        return status, said

    def authorize(self, url: str, **changed: str | None) -> dict[str, str]:
        asked = dict(parse_qsl(urlsplit(url).query))
        places = self.places.get(asked["client_id"]) or self._described(asked["client_id"])
        if asked["redirect_uri"] not in places:
            raise Stayed(f"{asked['redirect_uri']} is not of {asked['client_id']}")
        return super().authorize(url, **changed)

    def _described(self, client: str) -> list[str]:

        is_ours = client == GATE + "/connect/client.json"
        return json.loads(self.rig.oauth.document() or b"{}")["redirect_uris"] if is_ours else []


class Stayed(Exception):
    """The browser is not sent back."""


def names_itself(authority: Authority, does: bool) -> None:
    authority.metadata["authorization_response_iss_parameter_supported"] = does


def the_way_back(authority: Authority, url: str, does: bool) -> dict[str, str]:
    return authority.authorize(url) if does else authority.authorize(url, iss=None)


class Scene:
    """An honest and a hostile server, each with its authorization server, at one gateway."""

    def __init__(self, does: bool = False, base: str = BASE, hostile_does: bool = False, **auth: Any) -> None:
        self.does = does
        self.honest = Strict()
        self.hostile = Authority("https://evil.example", "https://evil-mcp.example/mcp")
        names_itself(self.honest, does)
        names_itself(self.hostile, hostile_does)
        self.rig = self.honest.rig = Rig(self.honest, self.hostile, base=base, **auth)
        evil = Server(id="evil", name="evil", type="http", url=self.hostile.server, auth=ServerAuth(**auth))
        self.rig.oauth.prepared(Config(servers=(self.rig.server, evil)))()
        self.credential = self.rig.oauth.credential(evil, "ann")

    async def signed_in_at_the_honest_one(self) -> str:
        """Its client id there, which its users' browsers show to anybody who can see an address bar."""
        begun = await self.rig.begun(await self.rig.fault())
        await self.rig.back(begun, the_way_back(self.honest, begun.url, self.does))
        return self.honest.asked("/authorize")[0]["client_id"]

    async def led_on(self, **changed: str) -> None:
        """Ann signs in at the hostile one, and finds herself at the honest one, which knows her."""
        begun = await self.rig.begun(await self.rig.fault(self.credential))
        asked = dict(parse_qsl(urlsplit(begun.url).query)) | changed
        url = f"{self.honest.issuer}/authorize?{urlencode(asked)}"
        answer = the_way_back(self.honest, url, self.does)
        await self.rig.oauth.finish(answer, begun.cookie, urlsplit(asked["redirect_uri"]).path)

    def has_leaked(self) -> bool:
        told = str(self.hostile.requests)
        of_the_honest = urlsplit(self.honest.issuer).netloc
        return any(f"{what}-{n}-of-{of_the_honest}" in told for what in ("code", "token") for n in range(50))


def registers_us_as(scene: Scene, client: str) -> None:
    before = scene.hostile.answer

    def answer(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        status, said = before(method, url, headers, body)
        return (201, {"client_id": client}) if urlsplit(url).path == "/register" else (status, said)

    scene.hostile.answer = answer  # type: ignore[method-assign]


@pytest.mark.promise("b.attacks.mix-up")
@pytest.mark.parametrize("does", [False, True], ids=["is silent", "names itself"])
async def test_an_authorization_server_that_names_the_page_of_another_as_its_own_gets_no_code(does: bool) -> None:
    scene = Scene(does)
    client = await scene.signed_in_at_the_honest_one()
    scene.hostile.metadata["authorization_endpoint"] = f"{scene.honest.issuer}/authorize"
    registers_us_as(scene, client)
    with pytest.raises((Fault, Stayed)):
        await scene.led_on()
    assert not scene.has_leaked() and not scene.hostile.asked("/token")


@pytest.mark.promise("b.attacks.mix-up")
@pytest.mark.parametrize("does", [False, True], ids=["is silent", "names itself"])
async def test_one_that_redirects_to_another_with_that_ones_client_and_place_gets_no_code(does: bool) -> None:
    scene = Scene(does)
    client = await scene.signed_in_at_the_honest_one()
    place = scene.honest.asked("/authorize")[0]["redirect_uri"]
    with pytest.raises((Fault, Stayed)):
        await scene.led_on(client_id=client, redirect_uri=place)
    assert not scene.has_leaked() and not scene.hostile.asked("/token")


@pytest.mark.parametrize("hostile_does", [False, True], ids=["hostile is silent", "hostile says that it names itself"])
@pytest.mark.parametrize("place", ["/connect/callback", ""], ids=["of the document", "its own"])
async def test_our_document_is_no_way_to_the_code_of_a_silent_one(hostile_does: bool, place: str) -> None:
    """It is one client for all who take it: an answer for it must name who it is from."""
    scene = Scene(base=GATE, hostile_does=hostile_does)
    for each in (scene.honest, scene.hostile):
        each.metadata["client_id_metadata_document_supported"] = True
    await scene.signed_in_at_the_honest_one()
    changed = {"client_id": GATE + "/connect/client.json"} | ({"redirect_uri": GATE + place} if place else {})
    with pytest.raises((Fault, Stayed)):
        await scene.led_on(**changed)
    assert not scene.has_leaked()


async def test_an_answer_at_the_place_of_another_ends_the_sign_in() -> None:
    """So that the same answer is of no use at the right place afterwards."""
    scene = Scene()
    begun = await scene.rig.begun(await scene.rig.fault(scene.credential))
    answer = scene.hostile.authorize(begun.url, iss=None)
    for path in ("/connect/callback", "/connect/callback/" + "0" * 32):
        with pytest.raises(Fault, match=r"is not from https://evil|unknown or has expired"):
            await scene.rig.oauth.finish(answer, begun.cookie, path)
    with pytest.raises(Fault, match="unknown or has expired"):
        await scene.rig.back(begun, answer)
    assert not scene.hostile.asked("/token")


async def test_each_issuer_has_a_place_of_its_own_and_one_made_by_hand_the_common_one() -> None:
    scene = Scene()
    places = set[str]()
    for credential in (scene.rig.credential, scene.credential):
        url = (await scene.rig.begun(await scene.rig.fault(credential))).url
        places.add(dict(parse_qsl(urlsplit(url).query))["redirect_uri"])
    assert len(places) == 2 and all(each.startswith(BASE + "/connect/callback/") for each in places)
    by_hand = Rig(client_id="by-hand")
    url = (await by_hand.begun(await by_hand.fault())).url
    assert dict(parse_qsl(urlsplit(url).query))["redirect_uri"] == BASE + "/connect/callback"


def _silent(metadata: Json) -> None:
    metadata["authorization_response_iss_parameter_supported"] = False


def _naming(metadata: Json) -> None: ...


@pytest.mark.parametrize(("change", "warnings"), [(_silent, 1), (_naming, 0)])
async def test_a_client_made_by_hand_at_one_that_does_not_name_itself_is_warned_of_once(
    change: Callable[[Json], None], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(client_id="by-hand", client_secret="a secret by hand")
    change(rig.authority.metadata)
    for who in ("ann", "ben"):
        await rig.fault(rig.badge_of(who))
    assert caplog.text.count("RFC 9207") == warnings
    assert "a secret by hand" not in caplog.text
