"""The operator's pages in a real browser: small and large, light and dark, by keyboard, with servers that attack, and
judged by axe-core."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from chromium.conftest import ANN, ROOT, Gateway, Tab, people, serving

from toolgate.frontends.web.views import VIEWS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NAMES = {"/servers/{name}": "hostile", "/pins/{name}": "changing", "/access/{name}": "ann"}
QUERIES = {"/tools/tool": "?name=hostile__echo", "/tools": "?q=echo", "/registry": "?q=convert+a+document+to+pdf"}
PAGES = [path for path, methods in VIEWS.items() if "GET" in methods]
LISTS = [path for path in PAGES if "{name}" not in path and path != "/tools/tool"]
THEIRS = json.dumps({"mcpServers": {"a": {"command": sys.executable, "args": ["-m", "toolgate.demo.clock"]}}})


@pytest.mark.promise("b.operator.accessible")
def test_each_page_fits_is_harmless_and_has_no_serious_fault(tab: Any, furnished: dict[str, str]) -> None:
    opened = tab()
    for server in ("hostile", "changing"):
        opened.open(f"/ui/servers/{server}")
        opened.press("Start and list")
        opened.page.wait_for_selector("text=lists 2 tools")
    for path in PAGES:
        opened.open("/ui" + path.replace("{name}", {**NAMES, **furnished}.get(path, "")) + QUERIES.get(path, ""))
        assert not opened.page.title().startswith("Not "), path
        opened.check_all()


@pytest.mark.promise("b.operator.accessible")
def test_what_forms_answer_has_none_either(tab: Any) -> None:
    opened = tab()
    page = opened.page

    def answers(path: str, name: str, says: str, **fields: str) -> None:
        opened.open(path)
        for label, text in fields.items():
            page.locator(f"[name={label}]").fill(text)
        opened.press(name)
        page.wait_for_selector(f"text={says}")
        opened.check_all()

    answers("/ui/tools/tool?name=hostile__echo", "Call", "As JSON-RPC", a0="hello")
    answers("/ui/tools/tool?name=hostile__echo", "Call", "times: JSON", a0="hello", a1="many")
    answers("/ui/import", "Show what would be added", "What would be added", text=THEIRS)
    answers("/ui/import", "Show what would be added", "Import servers", text="no file of any program")
    answers("/ui/configuration", "Check", "It is not valid", text="servers = 1")
    answers("/ui/configuration", "Check", "It is valid", text="")
    answers("/ui/audit", "Verify every line", "Every line is as it was written")
    answers("/ui/configuration/edit", "Save and serve", "Edit the configuration", text="{")


@pytest.mark.promise("b.operator.accessible")
def test_what_is_refused_and_what_is_not_there_have_none_either(tab: Any) -> None:
    opened = tab()
    page = opened.page
    for path in ("/ui/nothing", "/ui/servers/nothing", "/ui/tools/tool?name=nothing", "/ui/approvals/nothing"):
        opened.open(path)
        assert page.locator("h1").inner_text() == "Not found"
        opened.check_all()
    opened.open("/ui/audit")
    page.evaluate("document.querySelectorAll('[name=csrf]').forEach((each) => (each.value = 'guessed'))")
    opened.press("Verify every line")
    page.wait_for_selector("text=This form is of another session")
    opened.check_all()
    opened.open("/ui/audit")
    page.context.clear_cookies()
    page.context.add_cookies([{"name": "toolgate-session", "value": "old", "url": opened.gateway.url + "/ui"}])
    opened.press("Search")
    page.wait_for_selector("text=Your session has ended")
    opened.check_all()


@pytest.mark.promise("b.operator.accessible")
def test_the_pages_of_who_is_nobody_have_none_either(chromium: Any, gateway: Gateway) -> None:
    opened = Tab(chromium, gateway, 1400, "light")
    page = opened.page
    opened.check_all()
    opened.sign_in().press("Sign out")
    page.wait_for_selector("text=You are signed out.")
    opened.check_all()
    page.get_by_label("Key of an administrator").fill("wrong")
    opened.press("Sign in")
    page.wait_for_selector("text=This is not the key of an administrator.")
    opened.check_all()
    page.get_by_label("Key of an administrator").fill(ROOT)
    opened.press("Sign in")
    page.wait_for_selector("nav")
    page.context.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("empty"), {"mcpServers": {}}) as running:
        yield running


@pytest.mark.promise("b.operator.accessible")
def test_pages_on_which_nothing_stands_yet_have_none_either(chromium: Any, empty: Gateway) -> None:
    opened = Tab(chromium, empty, 1400, "light").sign_in()
    for path in LISTS:
        opened.open("/ui" + path)
        opened.check_all()
    opened.page.context.close()


CROWD = """
import json, sys
TOOLS = [{"name": f"tool_{n:04}_" + "long" * 20, "description": "words " * 40, "inputSchema": {"type": "object"}}
         for n in range(700)]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "crowd", "version": "1"}}
        answers = {"initialize": {"protocolVersion": "2025-11-25", **info}, "tools/list": {"tools": TOOLS}}
        answers["tools/call"] = {"content": []}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}), flush=True)
"""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Seven hundred tools, and forty servers."""
    home = tmp_path_factory.mktemp("crowded")
    (home / "crowd.py").write_text(CROWD)
    crowd = {"command": sys.executable, "args": [str(home / "crowd.py")]}
    others = {f"server-{number:02}": {"command": "no_such_program"} for number in range(40)}
    with serving(home, {"mcpServers": {"crowd": crowd, **others}, **people()}) as running:
        running.call(ANN, f"crowd__tool_0001_{'long' * 20}")
        yield running


@pytest.mark.promise("b.operator.accessible")
def test_pages_on_which_much_stands_have_none_either(chromium: Any, crowded: Gateway) -> None:
    opened = Tab(chromium, crowded, 1400, "light").sign_in()
    for path in ("/ui", "/ui/servers", "/ui/tools", "/ui/access", "/ui/access/ann", "/ui/pins"):
        opened.open(path)
        opened.check_all()
    opened.page.context.close()


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
