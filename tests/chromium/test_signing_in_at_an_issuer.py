"""An administrator signs in to the pages at an issuer, in a real browser, and out again at both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from chromium.conftest import ROOT, Tab, serving
from chromium.issuer_double import CLIENT, serving_issuer

pytestmark = pytest.mark.browser


@pytest.mark.promise("b.operator.sign_out")
def test_an_administrator_signs_in_there_works_and_signs_out_at_both(chromium: Any, tmp_path: Path) -> None:
    root = {"id": "root", "key": ROOT, "admin": True, "mcp_server_access": "all"}
    staff = {"id": "staff", "claims": {"groups": "staff"}, "admin": True, "mcp_server_access": "all"}
    with serving_issuer() as issuer, serving(tmp_path, {"mcpServers": {}, "clients": [root]}) as gateway:
        auth = {"issuer": issuer.url, "audience": gateway.url, "pages": {"client_id": CLIENT}}
        (tmp_path / "toolgate.json").write_text(json.dumps({"clients": [root, staff], "auth": auth}))
        gateway.run("reload")
        opened = Tab(chromium, gateway, 1400, "light")
        page = opened.page
        opened.open("/ui/login")
        page.get_by_role("link", name="Sign in at 127.0.0.1").click()
        page.wait_for_selector("text=What needs you")
        opened.find("/ui/audit", "pages.sign_in")
        there = urlsplit(issuer.url).netloc
        assert {urlsplit(url).netloc for url in opened.requests} == {urlsplit(gateway.url).netloc, there}
        opened.requests[:] = [url for url in opened.requests if urlsplit(url).netloc != there]
        opened.check_all()
        opened.press("Sign out")
        page.wait_for_url(f"{issuer.url}/logout?**")
        (left,) = issuer.left
        assert left["client_id"] == CLIENT and left["id_token_hint"].count(".") == 2
        opened.open("/ui")
        page.get_by_role("link", name="Sign in at 127.0.0.1").wait_for()
        page.context.close()
