"""A page of another site calls the gateway with `fetch`, in a real browser: where its origin is allowed, and not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from chromium.conftest import ANN, HOSTILE, MODERN, serving
from chromium.issuer_double import serving_issuer

pytestmark = pytest.mark.browser

CALLS = """async ([url, key, modern]) => {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const sent = async (message, more) => {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, ...message });
    const answer = await fetch(url + "/mcp", { method: "POST", headers: { ...headers, ...more }, body });
    return [answer.status, answer.headers, await answer.text()];
  };
  const shown = { authorization: `Bearer ${key}` };
  try {
    const info = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "page", version: "1" } };
    const [refused, challenge] = await sent({ method: "initialize", params: info }, {});
    const [opened, about] = await sent({ method: "initialize", params: info }, shown);
    const session = about.get("mcp-session-id");
    const own = { ...shown, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25", "last-event-id": "" };
    const [listed, , tools] = await sent({ method: "tools/list", params: {} }, own);
    const prefix = "io.modelcontextprotocol/";
    const _meta = { [prefix + "protocolVersion"]: modern, [prefix + "clientCapabilities"]: {} };
    const params = { name: "hostile__echo", arguments: { text: "from a page" }, _meta };
    const routed = { "mcp-protocol-version": modern, "mcp-method": "tools/call", "mcp-name": params.name };
    const called = [];
    for (let i = 0; i < 3; i += 1)
      called.push((await sent({ method: "tools/call", params }, { ...shown, ...routed }))[2]);
    const ended = await fetch(url + "/mcp", { method: "DELETE", headers: own });
    const told = challenge.get("www-authenticate");
    return { refused, told, opened, listed, tools, called, ended: ended.status };
  } catch (error) {
    return String(error);
  }
}"""
READS = """async ([url, key]) => {
  const headers = { authorization: `Bearer ${key}` };
  const asked = ["/ui", "/admin/status", "/metrics"].map((path) => fetch(url + path, { headers }));
  return (await Promise.allSettled(asked)).map((each) => each.status);
}"""


def test_a_page_whose_origin_is_allowed_calls_tools_and_no_other_page_does(chromium: Any, tmp_path: Path) -> None:
    ann = {"id": "ann", "key": ANN, "mcp_server_access": "all"}
    servers = {"hostile": {"command": sys.executable, "args": [str(HOSTILE)]}}
    with serving_issuer() as site, serving_issuer() as other:
        table = {"mcpServers": servers, "clients": [ann], "http": {"allowed_origins": [site.url]}}
        with serving(tmp_path, table) as gateway:
            page = chromium.new_context().new_page()
            page.goto(site.url + "/jwks")
            found = page.evaluate(CALLS, [gateway.url, ANN, MODERN])
            assert (found["refused"], found["opened"], found["listed"], found["ended"]) == (401, 200, 200, 204), found
            assert found["told"].startswith("Bearer") and "hostile__echo" in found["tools"]
            assert all("from a page" in json.dumps(each) for each in found["called"])
            assert page.evaluate(READS, [gateway.url, ANN]) == ["rejected"] * 3
            page.goto(other.url + "/jwks")
            assert page.evaluate(CALLS, [gateway.url, ANN, MODERN]) == "TypeError: Failed to fetch"
            page.context.close()
