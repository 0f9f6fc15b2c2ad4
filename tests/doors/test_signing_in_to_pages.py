"""Who may see the operator's pages: an administrator by a key, or somebody with a link that is good once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from doors.issuers import KEYS, client
from inmemory import GREETER, THE_SOCKET, Visitor, gateway
from reader import Reader, link, signed_in
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.auth import keys
from toolgate.config import Auth, Config
from toolgate.core.model import Principal
from toolgate.frontends.web import browser_sessions
from toolgate.frontends.web.browser_sessions import IDLE, LASTS, LINK_LASTS, BrowserSessions
from toolgate.frontends.web.views import VIEWS
from toolgate.state import changes
from toolgate.state.memory import MemoryStore

CONFIG = Config(clients=(client("ann", key=KEYS["ada"]), client("ops", key=KEYS["carl"], admin=True)))
PATHS = ["/ui", *(f"/ui{path.replace('{name}', 'greeter')}" for path in VIEWS if path != "/")]


async def by_key(app: App, key: str, status: int = 200) -> Reader:
    reader = Reader(app)
    await reader.open("/ui/login")
    await reader.press("/ui/login", status, key=key)
    return reader


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_sees_a_page_without_signing_in_on_this_machine_neither(path: str) -> None:
    async with gateway(GREETER) as app:
        for client in (("127.0.0.1", 5), THE_SOCKET):
            reader = Reader(app)
            reader.visitor.client = client
            for method in ("GET", "POST"):
                response = await reader.send(method, path, {"csrf": ""})
                assert (response.status, response.headers["location"]) == (303, "/ui/login")


async def test_an_administrator_signs_in_by_key_and_out_again() -> None:
    async with gateway(GREETER, config=CONFIG) as app:
        reader = await by_key(app, KEYS["carl"])
        assert "What needs you" in reader.page.text
        cookie = reader.cookie
        await reader.press("/ui/logout")
        assert "Key of an administrator" in reader.page.text
        reader.cookie = cookie
        assert "Key of an administrator" in (await reader.open("/ui")).text


@pytest.mark.parametrize("key", [KEYS["ada"], "nobody-has-a-key-like-this", "", "ä", "a b", "x" * 3000])
async def test_no_other_key_signs_in(key: str) -> None:
    async with gateway(GREETER, config=CONFIG) as app:
        reader = await by_key(app, key, 403)
        assert not reader.cookie and "not the key of an administrator" in reader.page.text


async def test_a_link_of_the_operator_signs_in_once_and_only_when_its_button_is_pressed() -> None:
    async with gateway(GREETER) as app:
        path = await link(app)
        for _ in range(2):  # programs that look at links do not use it up
            reader = Reader(app)
            await reader.open(path)
            assert not reader.cookie
        await reader.press(path)
        assert "What needs you" in reader.page.text
        again = Reader(app)
        assert "already used" in (await again.open(path, 404)).text
        assert (await again.send("POST", path)).status == 404 and not again.cookie


async def test_a_link_is_good_for_five_minutes() -> None:
    clock = FakeClock()
    async with gateway(GREETER, clock=clock) as app:
        path = await link(app)
        await clock.advance(LINK_LASTS + 1)
        assert "expired" in (await Reader(app).open(path, 404)).text


async def test_only_an_administrator_has_a_link_made() -> None:
    async with gateway(GREETER, config=CONFIG) as app:
        ann = Visitor(app, authorization=f"Bearer {KEYS['ada']}")
        assert (await ann.begin("POST", b"", path="/admin/links").response()).status == 403


async def test_a_gateway_that_does_not_listen_says_that_it_has_no_pages() -> None:
    async with gateway(GREETER) as app:
        made = await Visitor(app).begin("POST", b"", path="/admin/links", client=THE_SOCKET).response()
        assert made.status == 409 and "does not listen" in json.loads(made.body)["error"]


async def test_a_session_ends_after_an_hour_without_a_request_and_after_eight_hours() -> None:
    clock = FakeClock()
    async with gateway(GREETER, clock=clock) as app:
        reader = await signed_in(app)
        await clock.advance(IDLE - 1)
        assert "What needs you" in (await reader.open("/ui")).text
        await clock.advance(IDLE + 1)
        assert "Key of" in (await reader.open("/ui")).text
        await reader.sign_in()
        for _ in range(int(LASTS / IDLE * 2)):
            await clock.advance(IDLE / 2)
            await reader.open("/ui")
        assert "Key of" in reader.page.text


async def test_a_session_and_a_link_end_in_their_time_though_the_machine_slept() -> None:
    clock = FakeClock()
    sessions = BrowserSessions(clock, lambda _principal: True)
    link, cookie = sessions.link(Principal()), sessions.begin(Principal())
    clock.ahead = LINK_LASTS - 1
    assert sessions.has_link(link) and sessions.find(cookie)
    clock.ahead = LINK_LASTS + IDLE
    assert not sessions.has_link(link) and not sessions.redeemed(link) and not sessions.find(cookie)


async def test_a_revoked_key_ends_the_sessions_that_it_has_begun() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    id, made = await keys.create(store, "ops", clock.wall())
    async with gateway(GREETER, config=Config(clients=(client("ops", admin=True),)), store=store, clock=clock) as app:
        app.open()
        reader = await by_key(app, made)
        assert "What needs you" in reader.page.text
        await keys.revoke(store, id)
        await changes.tell(store, "keys")
        await clock.advance(1)
        await settle()
        assert "Key of" in (await reader.open("/ui")).text


async def test_there_are_never_more_links_and_sessions_than_a_bound() -> None:
    sessions = BrowserSessions(FakeClock(), lambda _principal: True)
    links = [sessions.link(Principal()) for _ in range(browser_sessions.MOST_LINKS + 1)]
    assert not sessions.has_link(links[0]) and all(sessions.has_link(each) for each in links[1:])
    cookies = [sessions.begin(Principal()) for _ in range(browser_sessions.MOST_SESSIONS + 1)]
    assert not sessions.find(cookies[0]) and all(sessions.find(each) for each in cookies[1:])


# What a browser holds against other pages.


async def test_the_cookie_is_for_these_pages_alone_and_secure_where_browsers_come_by_https() -> None:
    async with gateway(GREETER) as app:
        path = await link(app)
        response = await Reader(app).send("POST", path)
        assert response.headers["set-cookie"].endswith("; Path=/ui; HttpOnly; SameSite=Strict")
    async with gateway(GREETER, config=Config(auth=Auth(audience="https://gate.example"))) as app:
        response = await Reader(app).send("POST", await link(app))
        assert response.headers["set-cookie"].endswith("; Path=/ui; HttpOnly; SameSite=Strict; Secure")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": None},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site"},
        {"host": "evil.example"},
    ],
)
async def test_no_other_page_sends_a_form(headers: dict[str, str | None]) -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        form = {"csrf": reader.page.hidden["csrf"]}
        for path in ("/ui/servers/greeter/stop", "/ui/login", await link(app)):
            assert (await reader.send("POST", path, form, **headers)).status == 403


@pytest.mark.parametrize("csrf", ["", "guessed", "ä"])
async def test_a_form_needs_the_secret_of_its_session(csrf: str) -> None:
    async with gateway(GREETER) as app:
        reader, other = await signed_in(app), await signed_in(app)
        for each in (csrf, other.page.hidden["csrf"]):
            assert (await reader.send("POST", "/ui/servers/greeter/stop", {"csrf": each})).status == 403


async def test_every_answer_forbids_what_a_page_does_not_need() -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        paths = ["/ui", "/ui/login", "/ui/nothing", "/ui/static/ui.css", "/ui/static/ui.js", "/ui/static/icon.svg"]
        for response in [await reader.send("GET", path) for path in paths]:
            policy = response.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy and "http" not in policy and "frame-ancestors 'none'" in policy
            assert response.headers["x-content-type-options"] == "nosniff"
        assert (await reader.send("GET", "/ui")).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/uix", "/ui/static/../ui.py", "/ui/static/views.py", "/ui/static/"])
async def test_nothing_else_is_served_there(path: str) -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        assert (await reader.send("GET", path)).status == 404
        assert (await reader.send("PUT", "/ui")).status == 405


async def test_a_form_that_is_too_large_is_refused() -> None:
    async with gateway(GREETER) as app:
        assert (await Reader(app).send("POST", "/ui/login", {"key": "x" * 5000})).status == 413
        reader = await signed_in(app)
        csrf = reader.page.hidden["csrf"]
        assert (await reader.send("POST", "/ui/servers", {"csrf": csrf, "config": "x" * 1024 * 1024})).status == 413


def test_templates_are_imported_with_the_first_page() -> None:
    code = "import sys, toolgate.app; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
