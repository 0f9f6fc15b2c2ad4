"""A conversation with an HTTP API, whose operations are tools where there is a kind of server `openapi`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from inmemory import Json, Visitor
from processes.scripted_http import Request, ScriptedServer, serving

from toolgate import config
from toolgate.app import running

NUMBER = {"type": "integer"}
ITEM = {"type": "object", "properties": {"count": NUMBER}}
DOCUMENT = {
    "openapi": "3.1.0",
    "servers": [{"url": "/v1"}],
    "paths": {
        "/items/{name}": {
            "parameters": [],
            "get": {
                "operationId": "look",
                "summary": "Looks at an item",
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "most", "in": "query", "schema": NUMBER},
                ],
            },
        },
        "/items": {
            "post": {
                "operationId": "make",
                "requestBody": {"required": True, "content": {"application/json": {"schema": ITEM}}},
            }
        },
    },
}


async def never(request: Request) -> None:
    raise AssertionError(f"it is no server of MCP: {request.line}")


class Api(ScriptedServer):
    """It says what it was asked; of nothing it knows nothing."""

    def __init__(self) -> None:
        super().__init__(never)

    async def _respond(self, request: Request) -> None:
        if request.path == "/openapi.json":
            request.whole(json.dumps(DOCUMENT).encode())
        elif request.path.startswith("/v1/items/nothing"):
            request.whole(b"no such item", "404 Not Found")
        else:
            said = {
                "asked": f"{request.verb} {request.path}",
                "key": request.headers.get("x-key"),
                "body": request.message,
            }
            request.whole(json.dumps(said).encode(), "201 Created" if request.verb == "POST" else "200 OK")


async def talk(folder: Path) -> None:
    async with serving(Api()) as api:
        await talk_with(api, folder)
    if connections := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(connections, timeout=5)


async def talk_with(api: Api, folder: Path) -> None:
    told = f'{{type = "openapi", url = "http://127.0.0.1:{api.port}/openapi.json", headers = {{X-Key = "k"}}}}'
    file = folder / "toolgate.toml"
    file.write_text(f"mcpServers.api = {told}\n")
    file.chmod(0o600)
    async with running(config.load(file, {}), engines={}, environ={}) as app:
        visitor = Visitor(app)
        await visitor.initialize()

        async def called(tool: str, **arguments: Any) -> Json:
            return (await visitor.ask("tools/call", name=f"api__{tool}", arguments=arguments)).result

        tools = {tool["name"]: tool for tool in (await visitor.ask("tools/list")).result["tools"]}
        assert tools.keys() == {"api__look", "api__make"}, tools
        look, make = tools["api__look"], tools["api__make"]
        assert (look["description"], look["annotations"]["readOnlyHint"]) == ("Looks at an item", True)
        assert (look["inputSchema"]["required"], make["inputSchema"]["required"]) == (["name"], ["body"])
        assert make["inputSchema"]["properties"] == {"body": ITEM}

        looked = await called("look", name="a b/c", most=3)
        assert looked["structuredContent"] == {"asked": "GET /v1/items/a%20b%2Fc?most=3", "key": "k", "body": {}}
        made = await called("make", body={"count": 1})
        assert made["structuredContent"] == {"asked": "POST /v1/items", "key": "k", "body": {"count": 1}}
        failed = await called("look", name="nothing")
        assert failed["isError"] and failed["content"][0]["text"] == "no such item", failed
        refused = (await visitor.ask("tools/call", name="api__look", arguments={"name": 7})).last
        assert "error" in refused or refused["result"]["isError"], refused  # it does not fit the schema
        documents = [request for request in api.requests if request.path == "/openapi.json"]
        assert len(documents) == 1, "it is read once"


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(talk(Path(folder)))
