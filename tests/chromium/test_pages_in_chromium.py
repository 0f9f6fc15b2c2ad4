"""The operator's pages in a real browser: small and large, light and dark, by keyboard, with servers that attack, and
judged by axe-core."""

from __future__ import annotations

from typing import Any

import pytest
from chromium.conftest import ROOT

from toolgate.frontends.web.views import VIEWS

pytestmark = pytest.mark.browser

NAMES = {"/servers/{name}": "hostile", "/pins/{name}": "changing", "/access/{name}": "ann"}
QUERIES = {"/tools/tool": "?name=hostile__echo", "/tools": "?q=echo"}
PAGES = [path for path, methods in VIEWS.items() if "GET" in methods]


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_fits_is_harmless_and_has_no_serious_fault(
    tab: Any, furnished: dict[str, str], width: int, scheme: str
) -> None:
    opened = tab(width, scheme)
    for server in ("hostile", "changing"):
        opened.open(f"/ui/servers/{server}")
        opened.page.get_by_role("button", name="Start and list").click()
        opened.page.wait_for_selector("text=lists 2 tools")
    for path in PAGES:
        opened.open("/ui" + path.replace("{name}", {**NAMES, **furnished}.get(path, "")) + QUERIES.get(path, ""))
        assert "Not done" not in opened.page.title(), path
        opened.check()
        opened.check_accessible()


def test_the_page_of_who_is_nobody_has_no_serious_fault_either(tab: Any) -> None:
    opened = tab()
    opened.page.get_by_role("button", name="Sign out").click()
    opened.page.get_by_label("Key of an administrator").wait_for()
    opened.check_accessible()
    opened.page.get_by_label("Key of an administrator").fill(ROOT)
    opened.page.get_by_role("button", name="Sign in").click()
    opened.page.wait_for_selector("nav")


def test_pages_are_found_filtered_and_opened_by_keyboard_alone(tab: Any) -> None:
    opened = tab()
    press = opened.page.keyboard.press
    press("g")
    press("s")
    opened.page.wait_for_url("**/ui/servers")
    press("/")
    opened.page.keyboard.type("host")
    assert opened.page.locator("tbody tr:visible").count() == 1
    press("Escape")
    press("j")
    press("Enter")
    opened.page.wait_for_url("**/ui/servers/hostile")
    opened.check()


def test_what_cannot_be_undone_is_asked_first(tab: Any) -> None:
    opened = tab()
    opened.open("/ui/servers/hostile")
    opened.page.on("dialog", lambda dialog: dialog.dismiss())
    opened.page.get_by_role("button", name="Stop").click()
    assert opened.page.locator("[role=status]").count() == 0


def test_a_tool_is_tried_with_the_form_of_its_schema(tab: Any) -> None:
    opened = tab(360)
    opened.open("/ui/tools/tool?name=hostile__echo")
    opened.page.get_by_label("text").first.fill("hello")
    opened.page.get_by_role("button", name="Call").click()
    opened.page.wait_for_selector("#result")
    assert '"text": "hello", "times": 2' in opened.page.locator("#result + pre").inner_text()
    opened.check()


def test_calls_are_watched_as_they_end_and_paused(tab: Any) -> None:
    opened = tab()
    opened.open("/ui/traffic")
    opened.page.wait_for_selector("text=Waiting for calls.")
    opened.gateway.run("call", "hostile__echo", '{"text": "hello"}')
    opened.page.locator("#calls tr", has_text="echo").wait_for()
    assert "allow done" in opened.page.locator("#calls tr").inner_text()
    opened.page.get_by_role("button", name="Pause").click()
    opened.gateway.run("call", "hostile__echo", '{"text": "unseen"}')
    opened.page.get_by_role("button", name="Go on").click()
    opened.page.wait_for_selector("text=Waiting for calls.")
    opened.gateway.run("call", "hostile__delete", '{"text": "hello"}')
    opened.page.locator("#calls tr", has_text="delete").wait_for()
    assert opened.page.locator("#calls tr").count() == 2
    opened.check()
