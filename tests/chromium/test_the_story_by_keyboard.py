"""The operator's story by keyboard alone: what is pressed or filled in is reached with Tab, and nothing is clicked."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from chromium.conftest import ANN

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

THEIRS = {"mcpServers": {"clock": {"command": sys.executable, "args": ["-m", "toolgate.demo.clock"]}}}
MOST_STEPS = 200  # of Tab, to anything on a page
NAMED = """(wanted) => {
  const at = document.activeElement;
  const label = at.labels?.length ? at.labels[0].textContent : "";
  return (at.getAttribute("aria-label") || label || at.textContent).trim().startsWith(wanted);
}"""


class Keys:
    def __init__(self, page: Any) -> None:
        self._page = page
        self._press = page.keyboard.press

    def reach(self, name: str) -> None:
        """With Tab, from the beginning of the page."""
        self._page.evaluate("document.activeElement.blur()")
        for _ in range(MOST_STEPS):
            self._press("Tab")
            if self._page.evaluate(NAMED, name):
                return
        raise AssertionError(f"{name} is not reached by Tab at {self._page.url}")

    def press(self, name: str, says: str) -> None:
        self.reach(name)
        self._press("Enter")
        self._page.wait_for_selector(f"text={says}")

    def fill(self, name: str, text: str) -> None:
        self.reach(name)
        self._press("Control+A")
        self._page.keyboard.insert_text(text)

    def go(self, letter: str, title: str) -> None:
        self._page.evaluate("document.activeElement.blur()")
        self._press("g")
        self._press(letter)
        self._page.wait_for_selector(f"h1:has-text('{title}')")


@pytest.mark.promise("b.operator.accessible")
def test_servers_are_imported_tried_denied_and_a_call_approved_otherwise(tab: Any) -> None:
    opened = tab()
    keys = Keys(opened.page)
    keys.go("s", "Servers")
    keys.press("import servers of another program", "Nothing is started before")
    keys.fill("Or its text", json.dumps(THEIRS))
    keys.press("Show what would be added", "What would be added")
    keys.press("Add 1 and serve", "Added: clock.")
    for server in ("clock", "hostile"):
        keys.go("s", "Servers")
        keys.press(server, "As configured")
        keys.press("Start and list", "It is ready and lists")
    keys.go("t", "Tools")
    keys.press("clock__now", "Try it")
    keys.press("Call", "As JSON-RPC")
    keys.go("c", "Access")
    keys.press("ann", "What ann may do")
    keys.press("Deny: now of clock", "now of clock is off for ann.")
    assert "ACCESS_DENIED" in opened.gateway.call(ANN, "clock__now")
    assert "APPROVAL_REQUIRED" in opened.gateway.call(ANN, "hostile__delete", text="everything")
    keys.go("a", "Approvals")
    keys.press("delete", "If allowed")
    keys.fill("Arguments.", '{"text": "little"}')
    keys.press("Allow", "with other arguments")
    assert "little" in opened.gateway.call(ANN, "hostile__delete", text="everything")
    keys.go("u", "Audit")
    keys.fill("Lines that hold", "approvals.allow")
    keys.press("Search", "approvals.allow")
    keys.press("Verify every line", "Every line is as it was written")
    opened.check()
    keys.press("Sign out", "You are signed out.")
