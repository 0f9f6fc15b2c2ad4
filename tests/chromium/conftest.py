"""A gateway's process in front of hostile servers, and a headless Chromium of the system."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="`make browser` installs it")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run", "--disable-quic", "--no-proxy-server"]
HOSTILE = Path(__file__).with_name("hostile_server.py")


def toolgate(*words: str) -> list[str]:
    return [sys.executable, "-m", "toolgate", *words]


class Gateway:
    """`url` is where its pages are."""

    def __init__(self, config: Path, environ: dict[str, str], url: str) -> None:
        self.url = url
        self._config = config
        self._environ = environ

    def run(self, *words: str) -> str:
        command = toolgate(*words, "--config", str(self._config))
        return subprocess.run(
            command, env=self._environ, capture_output=True, text=True, timeout=60, check=True
        ).stdout.strip()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    config = home / "toolgate.json"
    hostile = {"command": sys.executable, "args": [str(HOSTILE)]}
    servers = {"hostile": hostile, "<i>odd</i>": hostile, "broken": {"command": "no_such_program"}}
    config.write_text(json.dumps({"mcpServers": servers}))
    environ = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home)}
    command = toolgate("serve", "--config", str(config), "--port", "0")
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        said = ""
        while not (found := re.search(r"listening on (http://127\.0\.0\.1:\d+)/mcp", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        try:
            yield Gateway(config, environ, found[1])
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


class Tab:
    """A signed-in page. `requests` are all that it has asked for, `errors` what its console had to say."""

    def __init__(self, chromium: Any, gateway: Gateway, width: int, scheme: str) -> None:
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.gateway = gateway
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(gateway.run("open"))
        self.page.get_by_role("button", name="Open the pages").click()
        self.page.wait_for_selector("nav")

    def open(self, path: str) -> None:
        self.page.goto(self.gateway.url + path)

    def check(self) -> None:
        """Nothing was run that a stranger wrote, nothing was asked of anybody else, and nothing is wider than the
        window."""
        assert "owned" not in self.page.title() and not self.page.query_selector("#owned")
        assert {urlsplit(url).netloc for url in self.requests} == {urlsplit(self.gateway.url).netloc}
        assert not self.errors
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
def tab(chromium: Any, gateway: Gateway) -> Iterator[Any]:
    """Opens one by its width and its scheme of colours."""
    tabs: list[Tab] = []

    def opened(width: int = 1400, scheme: str = "light") -> Tab:
        tabs.append(Tab(chromium, gateway, width, scheme))
        return tabs[-1]

    yield opened
    for each in tabs:
        each.page.context.close()
