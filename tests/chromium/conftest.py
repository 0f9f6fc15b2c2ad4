"""A gateway's process in front of hostile servers, and a headless Chromium of the system."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="`make browser` installs it")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run", "--disable-quic", "--no-proxy-server", "--disable-lcd-text"]
MOST_LOADS = 200  # of a page that does not yet say what it is to say
HOSTILE = Path(__file__).with_name("hostile_server.py")
MODERN = "2026-07-28"
ENVELOPE: dict[str, Any] = {"protocolVersion": MODERN, "clientCapabilities": {}}
ANN, ROOT = "ann-has-a-key-of-24-chars", "root-has-a-key-of-24-chars"
AXE = Path(__file__).parents[2] / ".browser" / "node_modules" / "axe-core" / "axe.min.js"

JUDGE = """async () => {
  const found = await axe.run({ resultTypes: ["violations"] });
  const grave = found.violations.filter((each) => ["serious", "critical"].includes(each.impact));
  const faults = grave.map((each) => [each.id, each.impact, each.nodes.slice(0, 5).map((node) => node.html)]);
  return { faults, passes: found.passes.length };
}"""


def toolgate(*words: str) -> list[str]:
    return [sys.executable, "-m", "toolgate", *words]


class Gateway:
    """`url` is where its pages are, `folder` where it was started."""

    def __init__(self, folder: Path, environ: dict[str, str], url: str) -> None:
        self.url = url
        self.folder = folder
        self._environ = environ

    def run(self, *words: str, said: str = "") -> str:
        """A command of the operator's, which reads what is `said` to it."""
        about: dict[str, Any] = {"env": self._environ, "cwd": self.folder, "input": said, "timeout": 60, "check": True}
        return subprocess.run(toolgate(*words), capture_output=True, text=True, **about).stdout.strip()

    def call(self, key: str, tool: str, **arguments: Any) -> str:
        """What a client of that key is told."""
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in ENVELOPE.items()}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        asked = urllib.request.Request(self.url + "/mcp", body, {**headers, "authorization": f"Bearer {key}"})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.read().decode()


@contextmanager
def serving(home: Path, table: dict[str, Any]) -> Iterator[Gateway]:
    """A gateway with this configuration."""
    config = home / "toolgate.json"
    config.write_text(json.dumps(table))
    environ = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home)}
    environ["TOOLGATE_CONFIG"] = str(config)
    about: dict[str, Any] = {"env": environ, "cwd": home, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(toolgate("serve", "--port", "0"), text=True, **about) as process:
        assert process.stderr
        said = ""
        while not (found := re.search(r"listening on (http://127\.0\.0\.1:\d+)/mcp", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        try:
            yield Gateway(home, environ, found[1])
        finally:
            process.terminate()
            process.communicate(timeout=30)


def people(**asks: str) -> dict[str, Any]:
    """Two clients, of whom one is an administrator, and the other asks before these tools. The operator decides."""
    ann = {"id": "ann", "key": ANN, "mcp_server_access": "all", "mcp_permissions": {"tools": asks}}
    root = {"id": "root", "key": ROOT, "mcp_server_access": "all", "admin": True}
    return {"clients": [ann, root], "approvals": {"by": ["operator"], "wait": 0}, "telemetry": {"usage": True}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    hostile = {"command": sys.executable, "args": [str(HOSTILE)]}
    changing = {"command": sys.executable, "args": [str(HOSTILE), str(home / "changed")], "pinning": "quarantine"}
    servers = {"hostile": hostile, "<i>odd</i>": hostile, "broken": {"command": "no_such_program"}}
    with serving(home, {"mcpServers": {**servers, "changing": changing}, **people(hostile__delete="ask")}) as running:
        yield running


@pytest.fixture(scope="module")
def furnished(gateway: Gateway) -> dict[str, str]:
    """Something for each page that is about one thing: what stands for the name in its path."""
    assert "APPROVAL_REQUIRED" in gateway.call(ANN, "hostile__delete", text="anything")
    assert "anything" in gateway.call(ANN, "changing__echo", text="anything")
    (gateway.folder / "changed").touch()
    (waiting,) = json.loads(gateway.run("approvals", "list", "--json"))
    first = gateway.run("tasks", "create", "Read the manual", "--priority", "0", "-d", "all of it,\nfrom the start")
    gateway.run("tasks", "create", "Write a summary", "--label", "docs")
    gateway.run("tasks", "close", gateway.run("tasks", "create", "Find the manual"))
    hook = {"session_id": "s1", "cwd": str(gateway.folder), "prompt": "Summarize the manual"}
    for event in ("SessionStart", "UserPromptSubmit"):
        gateway.run("hook", "claude", "--wait", "5", said=json.dumps({**hook, "hook_event_name": event}))
    return {"/tasks/{name}": first, "/sessions/{name}": "s1", "/approvals/{name}": waiting["id"]}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


class Tab:
    """A signed-in page. `requests` are all that it has asked for, `errors` what its console had to say."""

    def __init__(self, chromium: Any, gateway: Gateway, width: int, scheme: str, height: int = 800) -> None:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.gateway = gateway
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._hears)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(gateway.run("open"))

    def _hears(self, said: Any) -> None:
        """That an answer is a refusal is no error of a page."""
        if said.type == "error" and "the server responded with a status of 4" not in said.text:
            self.errors.append(said.text)

    def sign_in(self) -> Tab:
        """By the link that it has opened."""
        self.page.get_by_role("button", name="Open the pages").click()
        self.page.wait_for_selector("nav")
        return self

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def open(self, path: str) -> None:
        self.page.goto(self.gateway.url + path)

    def find(self, path: str, text: str) -> None:
        """Load a page until it says so: the audit is written a moment after what it tells of."""
        for _ in range(MOST_LOADS):
            self.open(path)
            if text in self.page.locator("main").inner_text():
                return
        raise AssertionError(f"{text} is not on {path}")

    def check(self) -> None:
        """Nothing was run that a stranger wrote, nothing was asked of anybody else, and nothing is wider than the
        window."""
        assert "owned" not in self.page.title() and not self.page.query_selector("#owned")
        assert {urlsplit(url).netloc for url in self.requests} == {urlsplit(self.gateway.url).netloc}
        assert not self.errors
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    def check_all(self) -> None:
        """The same, and axe-core finds nothing serious; small and large, light and dark."""
        is_judged = self.page.evaluate("typeof axe === 'object'")
        if not is_judged and not AXE.exists():
            pytest.skip("axe-core is not there: `make browser` fetches it")
        if not is_judged:
            self.page.evaluate(AXE.read_text())
        for width in (360, 1400):
            self.page.set_viewport_size({"width": width, "height": 800})
            for scheme in ("light", "dark"):
                self.page.emulate_media(color_scheme=scheme)
                self.check()
                self._check_accessible()

    def _check_accessible(self) -> None:
        found = self.page.evaluate(JUDGE)
        assert not found["faults"] and found["passes"], (self.page.url, found)


@pytest.fixture
def tab(chromium: Any, gateway: Gateway) -> Iterator[Any]:
    """Opens one by its width and its scheme of colours."""
    tabs: list[Tab] = []

    def opened(width: int = 1400, scheme: str = "light") -> Tab:
        tabs.append(Tab(chromium, gateway, width, scheme).sign_in())
        return tabs[-1]

    yield opened
    for each in tabs:
        each.page.context.close()
