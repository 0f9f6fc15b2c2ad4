"""An operator's whole story in a real browser, by page alone. Its core without a browser is
`doors/test_the_story_by_page.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from chromium.conftest import ANN

pytestmark = pytest.mark.browser

THEIRS = {"mcpServers": {"clock": {"command": sys.executable, "args": ["-m", "toolgate.demo.clock"]}}}


def test_a_client_is_imported_tried_denied_approved_watched_and_found_again(tab: Any, tmp_path: Path) -> None:
    opened, watching = tab(), tab(360, "dark")
    page = opened.page

    def press(name: str) -> None:
        page.get_by_role("button", name=name, exact=True).click()

    # A client's configuration is imported from a file that the browser has.
    theirs = tmp_path / "mcp.json"
    theirs.write_text(json.dumps(THEIRS))
    opened.open("/ui/import")
    page.get_by_label("File", exact=True).set_input_files(theirs)
    page.wait_for_function("document.getElementById('text').value.includes('clock')")
    press("Show what would be added")
    assert f"run {sys.executable} -m toolgate.demo.clock" in page.locator("main").inner_text()
    opened.check()
    press("Add 1 and serve")
    page.wait_for_selector("text=Added: clock.")

    # Servers come up; a tool is tried.
    for server in ("clock", "hostile"):
        opened.open(f"/ui/servers/{server}")
        press("Start and list")
        page.wait_for_selector("text=It is ready and lists")
    opened.open("/ui/servers")
    for server in ("clock", "hostile"):
        assert "ready" in page.locator(f"tr:has(a:text-is('{server}'))").inner_text()
    opened.open("/ui/tools/tool?name=clock__now")
    press("Call")
    page.wait_for_selector("#result:has-text('Result')")

    # It is denied for a client.
    opened.open("/ui/access/ann")
    press("Deny: now of clock")
    page.wait_for_selector("text=now of clock is off for ann.")
    opened.check()
    assert "ACCESS_DENIED" in opened.gateway.call(ANN, "clock__now")

    # A call is approved with other arguments, and watched as it ends.
    watching.open("/ui/traffic")
    watching.page.wait_for_function("document.getElementById('feed').textContent.length > 0")
    assert "APPROVAL_REQUIRED" in opened.gateway.call(ANN, "hostile__delete", text="everything")
    opened.open("/ui/approvals")
    page.locator("#waiting a").first.click()
    page.get_by_label("Arguments.").fill('{"text": "little"}')
    press("Allow")
    page.wait_for_selector("text=with other arguments")
    assert "little" in opened.gateway.call(ANN, "hostile__delete", text="everything")
    watching.page.wait_for_selector("#calls tr:has-text('delete'):has-text('done')")
    watching.check()

    # It is found in the audit, which is as it was written: who allowed it, and that it went on with other arguments.
    opened.find("/ui/audit?q=hostile", "approvals.allow")
    opened.find("/ui/audit?q=%22edited%22%3Atrue", "allow hostile delete done")
    press("Verify every line")
    page.wait_for_selector("text=Every line is as it was written")

    # The file is edited, with its secrets masked.
    opened.open("/ui/configuration/edit")
    text = page.get_by_label("The file")
    assert ANN not in text.input_value() and '"clock__now": "off"' in text.input_value()
    text.fill(text.input_value().replace('"clock__now": "off"', '"clock__now": "allow"'))
    press("Save and serve")
    page.wait_for_selector("text=Saved, and served.")
    assert "ACCESS_DENIED" not in opened.gateway.call(ANN, "clock__now")
    opened.check()


def test_the_pages_that_edit_fit_into_a_small_window(tab: Any) -> None:
    for scheme in ("light", "dark"):
        opened = tab(360, scheme)
        for path in (
            "/ui/import",
            "/ui/registry?q=convert+a+document+to+pdf",
            "/ui/configuration/edit",
            "/ui/access/ann",
        ):
            opened.open(path)
            opened.check()
