"""What a model reads of a catalogue, by each way to its tools: `make tokens DATA=dir`. See README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # before this folder, which has another `peers`
from peers import ModernClient, ModernServer, Scene, gateway
from retrieval import rows

from toolgate.search import tokens

Json = dict[str, Any]
SIZES = (50, 250, 500)  # tools
TASKS = 40
EXACT = """
const {getEncoding} = require("js-tiktoken"), encoding = getEncoding("o200k_base");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map(text => encoding.encode(text, "all").length)));
"""


class Task(NamedTuple):
    """What is wanted, in words, and a tool that does it."""

    text: str
    server: str
    tool: str


class Way(NamedTuple):
    """How a client comes by a tool: `path` is the surface, whose list is read once; `read` what a task needs."""

    name: str
    path: str
    read: Callable[[ModernClient, Task], Awaitable[list[str]]]


async def _nothing(client: ModernClient, task: Task) -> list[str]:
    return []


async def _three_steps(client: ModernClient, task: Task) -> list[str]:
    listed = await _answer(client, "list_tools", server=task.server)
    return [listed, await _answer(client, "get_tool_schema", server_name=task.server, tool_name=task.tool)]


async def _search(client: ModernClient, task: Task) -> list[str]:
    return [await _answer(client, "search_tools", query=task.text, limit=5)]


async def _signatures(client: ModernClient, task: Task) -> list[str]:
    return [await _answer(client, "mcp_discover", query=task.text, limit=5)]


async def _code(client: ModernClient, task: Task) -> list[str]:
    return [await _answer(client, "mcp_discover", query=task.text, limit=5, format="typescript")]


async def _answer(client: ModernClient, name: str, **arguments: Any) -> str:
    reply = await client.call(name, arguments=arguments)
    assert reply.result and not reply.result.get("isError"), reply
    return reply.text


WAYS = (
    Way("all schemas in the list", "/mcp/aggregate", _nothing),
    Way("the list of a server, one schema (seed 004)", "/mcp/daemon", _three_steps),
    Way("search: five whole schemas", "/mcp/all", _search),
    Way("discover: five signatures", "/mcp/meta", _signatures),
    Way("discover: five declarations for code", "/mcp/meta", _code),
)


async def _never(scene: Scene) -> str:
    raise AssertionError("no tool is called here")


def catalogue(data: Path, size: int) -> tuple[dict[str, list[Json]], list[Task]]:
    """Whole servers of real tools up to about this many, and tasks for them."""
    servers: dict[str, list[Json]] = {}
    where: dict[str, tuple[str, str]] = {}
    for count, row in enumerate(rows(data / "livemcpbench" / "corpus.jsonl")):
        if count >= size and row["server"].lower() not in servers:
            break
        tool = {"name": row["tool"], "description": row["description"] or "", "inputSchema": row["inputSchema"]}
        servers.setdefault(row["server"].lower(), []).append(tool)
        where[row["id"]] = row["server"].lower(), row["tool"]
    asked = [row for file in sorted((data / "livemcpbench").glob("queries*.jsonl")) for row in rows(file)]
    found = (Task(row["text"], *where[id]) for row in asked for id in row["relevant"][:1] if id in where)
    return servers, list(islice(found, TASKS))


async def _listed(client: ModernClient) -> list[str]:
    found: list[str] = []
    cursor: Json = {}
    while True:
        result = (await client.request("tools/list", **cursor)).result
        found += [json.dumps(tool, separators=(",", ":"), ensure_ascii=False) for tool in result["tools"]]
        if "nextCursor" not in result:
            return found
        cursor = {"cursor": result["nextCursor"]}


async def _texts(servers: dict[str, list[Json]], tasks: Sequence[Task]) -> list[tuple[list[str], list[list[str]]]]:
    """For each way: what is read once, and for each task."""
    peers = {id: ModernServer({tool["name"]: _never for tool in tools}) for id, tools in servers.items()}
    for id, tools in servers.items():
        peers[id].offer("tools", *tools)
    async with gateway(**peers) as rig:
        found: list[tuple[list[str], list[list[str]]]] = []
        for way in WAYS:
            client = rig.modern(path=way.path)
            once = [] if way.path == "/mcp/all" else await _listed(client)
            found.append((once, [await way.read(client, task) for task in tasks]))
        return found


def counted(texts: Sequence[str], exact: Path | None) -> list[int]:
    if not exact:
        return [tokens.estimate(text) for text in texts]
    done = subprocess.run(["node", "-e", EXACT], cwd=exact, input=json.dumps(texts), text=True, stdout=-1, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with the set `livemcpbench`, as for make retrieval")
    parser.add_argument("--exact", type=Path, help="a folder where js-tiktoken is installed; default: our estimate")
    asked = parser.parse_args()
    print(f"tokens by {'o200k_base (js-tiktoken)' if asked.exact else 'toolgate.search.tokens, fitted to o200k_base'}")
    for size in SIZES:
        servers, tasks = catalogue(asked.data, size)
        ways = asyncio.run(_texts(servers, tasks))
        print(f"\n{sum(map(len, servers.values()))} tools of {len(servers)} servers, {len(tasks)} tasks")
        print(f"{'':46}{'once':>8}{'a task':>8}{'saved':>8}")
        whole = sum(counted(ways[0][0], asked.exact))
        for way, (once, each) in zip(WAYS, ways, strict=True):
            first = sum(counted(once, asked.exact))
            task = sum(counted([text for texts in each for text in texts], asked.exact)) / len(tasks)
            saved = f"{100 * (1 - task / whole):.1f} %" if task else ""
            print(f"{way.name:46}{first or '-':>8}{task:>8.0f}{saved:>8}")


if __name__ == "__main__":
    main()
