"""The tour of `toolgate demo`: an old client and a new one, as small as they can be, over real HTTP.

Blocking, standard library only: it is a client, and shares no code with the gateway that it visits.
"""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

OLD, NEW = "2025-06-18", "2026-07-28"
META = "io.modelcontextprotocol/"
_ids = itertools.count(1)


def post(
    url: str, message: Json, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", where.path, json.dumps(message), accept | headers)
    return connection.getresponse(), connection


def messages(response: http.client.HTTPResponse) -> Iterator[Json]:
    """What the server says on one response: one JSON body, or the events of a stream."""
    if "event-stream" not in (response.getheader("Content-Type") or ""):
        body = response.read()
        yield from [json.loads(body)] if body else []
        return
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


class OldClient:
    """2025-06-18: a handshake, a session, and questions that come in mid-call."""

    revision = OLD

    def __init__(self, url: str) -> None:
        self._url = url
        self._headers: dict[str, str] = {}
        self.notes: list[str] = []
        opening: Json = {
            "protocolVersion": OLD,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "an old client", "version": "1"},
        }
        self.server = self._request("initialize", opening)
        self._headers["MCP-Protocol-Version"] = OLD
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, name: str, arguments: Json, **meta: Any) -> Json:
        params: Json = {"name": name, "arguments": arguments} | ({"_meta": meta} if meta else {})
        return self._request("tools/call", params)

    def list(self) -> list[Json]:
        return self._request("tools/list", {})["tools"]

    def _request(self, method: str, params: Json) -> Json:
        id = next(_ids)
        response, connection = post(
            self._url, {"jsonrpc": "2.0", "id": id, "method": method, "params": params}, self._headers
        )
        self._headers.setdefault("Mcp-Session-Id", response.getheader("Mcp-Session-Id") or "")
        for message in messages(response):
            if message.get("method") == "notifications/progress":
                self.notes.append(f"{message['params']['progress']:g} of {message['params'].get('total', '?')}")
            elif "method" in message and "id" in message:
                self.notes.append(f"asked: {message['params']['message']}")
                self._post({"jsonrpc": "2.0", "id": message["id"], "result": answer(message["params"])})
            elif message.get("id") == id:
                connection.close()
                return result_of(message)
        raise ConnectionError(f"no answer to {method}")

    def _post(self, message: Json) -> None:
        response, connection = post(self._url, message, self._headers)
        response.read()
        connection.close()


class NewClient:
    """2026-07-28: no handshake; a question is a result, and its answer a second request."""

    revision = NEW

    def __init__(self, url: str) -> None:
        self._url = url
        self.notes: list[str] = []

    def call(self, name: str, arguments: Json) -> Json:
        params: Json = {"name": name, "arguments": arguments}
        result = self._request("tools/call", params, name)
        while result.get("resultType") == "input_required":
            asked = result.get("inputRequests", {})
            self.notes += [f"asked: {ask['params']['message']}" for ask in asked.values()]
            answers = {key: answer(ask["params"]) for key, ask in asked.items()}
            params |= {"inputResponses": answers, "requestState": result["requestState"]}
            result = self._request("tools/call", params, name)
        return result

    def list(self) -> list[Json]:
        return self._request("tools/list", {})["tools"]

    def _request(self, method: str, params: Json, name: str | None = None) -> Json:
        meta: Json = {
            META + "protocolVersion": NEW,
            META + "clientCapabilities": {"elicitation": {"form": {}}},
            META + "clientInfo": {"name": "a new client", "version": "1"},
        }
        headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
        message: Json = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": params | {"_meta": meta}}
        response, connection = post(self._url, message, headers)
        *_, last = messages(response)
        connection.close()
        return result_of(last)


def answer(question: Json) -> Json:
    """What the visitor says to a form: yes, or a text of its own."""
    fields = question.get("requestedSchema", {}).get("properties", {})
    return {"action": "accept", "content": {name: _fill(field) for name, field in fields.items()}}


def _fill(field: Json) -> Any:
    if "enum" in field:
        return field["enum"][0]
    return {"boolean": True, "integer": 1, "number": 1}.get(field.get("type", ""), "Ada")


def result_of(message: Json) -> Json:
    if "error" in message:
        raise ConnectionError(f"{message['error']['code']}: {message['error']['message']}")
    return message["result"]


def text_of(result: Json) -> str:
    return " ".join(block.get("text", f"[{block['type']}]") for block in result.get("content", []))
