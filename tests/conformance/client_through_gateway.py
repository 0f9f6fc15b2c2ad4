#!/usr/bin/env python
"""The command that the suite's client scenarios run: a gateway in front of the suite's server, and a client in front.

    client_through_gateway.py gateway modern URL    # the suite appends the URL of its server
    client_through_gateway.py gateway legacy URL    # the same with a client of the handshake era in front
    client_through_gateway.py direct modern URL     # the official SDK's client alone, without a gateway

The scenario comes in `MCP_CONFORMANCE_SCENARIO`, what it wants called, if anything, in `MCP_CONFORMANCE_CONTEXT`. The
client does what the scenario is about and no more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp.types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from suite import gateway  # isort: skip

import browser  # isort: skip

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
ACCEPTED = {"confirmed": True, "ok": True}


async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept with the defaults of the form; a field without one is answered if we have a word for it. Go to a page,
    and use it."""
    if isinstance(params, types.ElicitRequestURLParams):
        await asyncio.to_thread(browser.sign_in, params.url)
        return types.ElicitResult(action="accept")
    fields = params.requested_schema.get("properties", {}) if isinstance(params, types.ElicitRequestFormParams) else {}
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    known = {name: ACCEPTED[name] for name in fields if name in ACCEPTED}
    return types.ElicitResult(action="accept", content=known | defaults)


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    said = types.TextContent(type="text", text="A sampled answer")
    return types.CreateMessageResult(role="assistant", content=said, model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


def page_in(error: MCPError) -> str:
    found = browser.PAGE.search(f"{error} {error.error.data}")
    if not found:
        raise error
    return found[0]


def connected(url: str, era: str) -> Client:
    able = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    return Client(url, mode="legacy" if era == "legacy" else "auto", read_timeout_seconds=20, **able)


async def call(client: Client, name: str, arguments: dict[str, Any]) -> None:
    """A call that may be refused: what counts is what the suite's server saw."""
    try:
        await client.call_tool(name, arguments)
    except MCPError as error:
        print(f"{name}: {error}", file=sys.stderr)


# -- signing in -------------------------------------------------------------------------------------------------------

MOST_PAGES = 4  # that a scenario may lead to


async def signing_in(work: Callable[[], Awaitable[Any]]) -> Any:
    """What `work` comes to, when its user has signed in wherever it was asked to."""
    for _ in range(MOST_PAGES):
        try:
            return await work()
        except MCPError as error:
            print(f"sent to a page by: {error}", file=sys.stderr)
            await asyncio.to_thread(browser.sign_in, page_in(error))
    return await work()


async def use_what_is_protected(client: Client) -> None:
    tools = (await signing_in(client.list_tools)).tools
    answer = await signing_in(lambda: client.call_tool(tools[0].name, {}))
    assert answer.content[0].text == "test", answer
    again = await signing_in(client.list_tools)
    assert [tool.name for tool in again.tools] == [tool.name for tool in tools]


REFUSED = {
    "auth/resource-mismatch", "auth/scope-retry-limit", "auth/iss-supported-missing", "auth/iss-wrong-issuer",
    "auth/iss-unexpected", "auth/iss-normalized", "auth/metadata-issuer-mismatch",
}  # fmt: skip


async def act_protected(url: str, era: str) -> None:
    """Used, or refused where that is what should be."""
    async with connected(url, era) as client:
        try:
            await use_what_is_protected(client)
        except (MCPError, browser.NoPage) as refused:
            print(f"refused: {refused}", file=sys.stderr)
            if SCENARIO not in REFUSED:
                raise
        else:
            assert SCENARIO not in REFUSED, "signed in where that should have been refused"


def auth() -> dict[str, Any]:
    """What an operator writes for the scenario."""
    known = {name: CONTEXT[name] for name in ("client_id", "client_secret", "issuer") if name in CONTEXT}
    if SCENARIO.startswith("auth/client-credentials"):
        known |= {"grant": "client_credentials"}
    if "private_key_pem" in CONTEXT:
        known |= {"private_key": CONTEXT["private_key_pem"], "algorithm": CONTEXT["signing_algorithm"]}
    if SCENARIO == "auth/basic-cimd":
        known |= {"client_id": "https://conformance-test.local/client-metadata.json"}
    return {"type": "oauth", **known}


# -- what each scenario wants done, after the tools were listed -------------------------------------------------------


def calls(*names: str, **arguments: Any) -> Callable[[Client, list[types.Tool]], Awaitable[None]]:
    async def act(client: Client, tools: list[types.Tool]) -> None:
        for name in names:
            await client.call_tool(name, arguments)

    return act


async def call_what_is_listed(client: Client, tools: list[types.Tool]) -> None:
    samples: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "object": {}, "array": [], "null": None}
    for tool in tools:
        fields = tool.input_schema.get("properties", {})
        needed = {name: fields.get(name, {}).get("type") for name in tool.input_schema.get("required", [])}
        await call(client, tool.name, {name: samples.get(kind, "x") for name, kind in needed.items()})


async def call_what_is_wanted(client: Client, tools: list[types.Tool]) -> None:
    for wanted in CONTEXT.get("toolCalls", []):
        await call(client, wanted["name"], wanted.get("arguments") or {})


async def echo_the_schema(client: Client, tools: list[types.Tool]) -> None:
    schema = next(tool.input_schema for tool in tools if tool.name == "json_schema_2020_12_tool")
    await client.call_tool("json_schema_echo", {"schema": schema})


async def use_every_method(client: Client, tools: list[types.Tool]) -> None:
    await ADD(client, tools)
    for resource in (await client.list_resources()).resources:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name, {argument.name: "x" for argument in prompt.arguments or []})


ADD = calls("add_numbers", a=5, b=3)
ACTS: dict[str, Callable[[Client, list[types.Tool]], Awaitable[None]]] = {
    "initialize": calls(),
    "tools_call": ADD,
    "elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults"),
    "sse-retry": calls("test_reconnection"),
    "request-metadata": ADD,
    "http-standard-headers": use_every_method,
    "http-custom-headers": call_what_is_wanted,
    "http-invalid-tool-headers": call_what_is_listed,
    "json-schema-ref-no-deref": calls(),
    "json-schema-2020-12-preservation": echo_the_schema,
    "sep-2322-client-request-state": calls(
        "test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"
    ),
}


async def act(url: str, era: str) -> None:
    async with connected(url, era) as client:
        tools = (await client.list_tools()).tools
        await ACTS[SCENARIO](client, tools)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=("gateway", "direct"))
    parser.add_argument("era", choices=("modern", "legacy"))
    parser.add_argument("url")
    given = parser.parse_args()
    is_protected = SCENARIO.startswith("auth/")
    if SCENARIO not in ACTS and not is_protected:
        print(f"nothing is known of the scenario {SCENARIO!r}", file=sys.stderr)
        return 2
    if given.how == "direct":
        asyncio.run(act(given.url, given.era))
        return 0
    server = {"url": given.url} | ({"auth": auth()} if is_protected else {})
    with tempfile.TemporaryDirectory() as home, gateway({"suite": server}, Path(home)) as url:
        asyncio.run((act_protected if is_protected else act)(f"{url}/servers/suite", given.era))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
