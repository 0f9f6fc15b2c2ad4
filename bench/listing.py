"""A client that fetches the whole list of tools, page by page, in either era."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

MODERN, LEGACY = "2026-07-28", "2025-11-25"
PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "bench", "version": "1.0.0"}
META = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientInfo": INFO, PREFIX + "clientCapabilities": {}}


class Listed(NamedTuple):
    names: list[str]
    pages: int


class Refused(Exception):
    """Another answer than was asked for."""


class Lister:
    """One client and its session."""

    def __init__(self, url: str, era: str = "modern", key: str = "", timeout: float = 60) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._path, self._era = parts.path, era
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        self._heads = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self._heads |= {"Authorization": f"Bearer {key}"} if key else {}
        self._next_id = 0
        if era == "legacy":
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
            self._ask("initialize", hello)
            self._heads["MCP-Protocol-Version"] = LEGACY
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}).read()

    def close(self) -> None:
        self._connection.close()

    def tools(self) -> Listed:
        names: list[str] = []
        pages, cursor = 0, None
        while pages == 0 or cursor:
            result = self._ask("tools/list", {"cursor": cursor} if cursor else {})
            names += [tool["name"] for tool in result["tools"]]
            pages, cursor = pages + 1, result.get("nextCursor")
        return Listed(names, pages)

    def _send(self, message: dict[str, Any], heads: dict[str, str] | None = None) -> http.client.HTTPResponse:
        self._connection.request("POST", self._path, json.dumps(message), {**self._heads, **(heads or {})})
        return self._connection.getresponse()

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._next_id += 1
        modern = self._era == "modern"
        params = {**params, "_meta": META} if modern else params
        heads = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method} if modern else {}
        response = self._send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}, heads)
        text = response.read().decode()
        if response.headers.get_content_type() == "text/event-stream":
            text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
        if session := response.headers.get("Mcp-Session-Id"):
            self._heads["Mcp-Session-Id"] = session
        if response.status != 200 or "result" not in (answer := json.loads(text)):
            raise Refused(f"{method}: HTTP {response.status}, {text[:500]}")
        return answer["result"]
