"""Makes `tools.md`: every control tool with its schema, where it is listed, and what it answers.

    python docs/make_tools.py            write docs/tools.md
    python docs/make_tools.py --print    show it

What stands there is what the code says: the tables of `toolgate.surfaces.controls`, the surfaces, and the replies of a
gateway in memory in front of scripted servers. A test holds the file against it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "tools.md"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "behaviour")]

from stage import CALLS, Asker, allowing, cast  # noqa: E402
from virtualtime import play  # noqa: E402

from toolgate.surfaces import controls  # noqa: E402
from toolgate.surfaces.controls.base import Control  # noqa: E402

SURFACES = ("aggregate", "children", "meta", "components", "daemon", "all")
ABOUT = {
    "children": "Child servers, their tools and their state.",
    "meta": "Tools found across servers, and called.",
    "daemon": "The gateway's status, a proxy to every tool, its servers, and the sessions of agents.",
    "search": "Replaces the list of all tools if there are too many of them.",
}
# A call of each that fails.
WRONG: dict[str, Any] = {
    "execute_child_tool": {"server_id": "serina", "tool_name": "search_code", "arguments": {}},
    "get_schema": {"server_id": "serina"},
    "list_registered_children": {"all": True},
    "get_child_status": {"server_id": "serina"},
    "close_child_session": {"server_id": "serina"},
    "mcp_discover": {"server": "serina"},
    "mcp_provision": {"context": "of a website"},
    "mcp_call": {"server": "serena", "tool": "search_coed"},
    "status": {"verbose": True},
    "list_mcp_servers": {"all": True},
    "call_tool": {"server_name": "serena", "tool_name": "search_coed"},
    "list_tools": {"server": "serina"},
    "get_tool_schema": {"server_name": "serena", "tool_name": "search_coed"},
    "read_mcp_resource": {"server_name": "serina", "resource_uri": "serena://guide"},
    "add_mcp_server": {"name": "weather", "transport": "stdio"},
    "remove_mcp_server": {"name": "serina"},
    "import_mcp_server": {"from_project": "parser", "query": "weather"},
    "call_hook": {"hook_type": "SessionBegin"},
    "mcp_execute": {},
    "execute_code": {"code": "1 + 1", "language": "cobol"},
    "process_large_dataset": {"data": [{"price": 1}], "operation": "do something clever"},
    "recommend_tools": {"task_description": "Find a bug", "agent_id": "reviewer"},
    "codex": {"prompt": "Fix it.", "sandbox": "danger-full-access"},
    "codex_list_threads": {"limit": 0},
    "codex_archive_thread": {"thread_id": "01a20b52-0000-7000-8000-000000000000"},
    "search_tools": {"query": "search", "limit": 0},
}
PASSING = {  # what is another each time
    "pid": 12345,
    "uptime_seconds": 0,
    "version": "0.0.0",
    "cwd": "/home/ann/parser",
    "turn_id": "01a20b52-a6aa-7dc1-b941-bbf9d58c76af",
    "session_id": "5d9d2a3c0d5f4f0f9a3c1b2e7f6a8d41",
}

HEAD = """# Control tools

The gateway's own tools. With them a model finds and calls the tools of the servers, and manages the servers. Each is
listed on the surfaces that are named with it, and can be called by its name on all others except `/mcp/servers/{id}`
([surfaces](surfaces.md)). The form of results and failures depends on the tool, not on the path.

This page is made by `make tools` from the code. The answers are those of a gateway with two servers.
"""


def text() -> str:
    made: list[str] = []
    play(_make(made))
    return "\n".join(made)


async def _make(made: list[str]) -> None:
    whole = cast()
    scripts = {name: whole[name] for name in ("serena", "sqlite")}
    async with allowing(scripts=scripts, links_of={"more": whole["context7"]}) as app:
        app.port = 8765
        listed = {name: set(await Asker(app, "modern", f"/mcp/{name}").listed()) for name in SURFACES}
        made += [HEAD, *_overview(listed)]
        for set_name, tools in controls.SETS.items():
            made += [f"\n## {set_name}\n", ABOUT.get(set_name, "")]
            for control in tools:
                made += _described(control, listed)
                asker = Asker(app, "modern", an_operator=True)
                for title, arguments in (("A call", CALLS[control.name]), ("One that fails", WRONG[control.name])):
                    answer = await asker.request("tools/call", name=control.name, arguments=arguments)
                    made += _conversation(title, arguments, answer.last)
    made.append("")


def _overview(listed: dict[str, set[str]]) -> Iterator[str]:
    yield "| tool | listed at | |"
    yield "|---|---|---|"
    for control in controls.CONTROLS.values():
        yield f"| [`{control.name}`](#{control.name}) | {_where(control, listed)} | {control.description} |"


def _where(control: Control, listed: dict[str, set[str]]) -> str:
    if control in controls.SETS["search"]:
        return "`/mcp`, if `virtual_search` is enabled; `/mcp/all`"
    return ", ".join(f"`/mcp/{name}`" for name in SURFACES if control.name in listed[name])


def _described(control: Control, listed: dict[str, set[str]]) -> Iterator[str]:
    yield f"\n### {control.name}\n"
    where = " Only where [Codex](codex.md) is enabled." if control.needs == "codex" else ""
    yield f"{control.description} Listed at {_where(control, listed)}.{where}"
    if control.also:
        yield f"\nAlso called {', '.join(f'`{name}`' for name in control.also)}."
    if control.parameters:
        yield "\n| parameter | type | required | |"
        yield "|---|---|---|---|"
        for name, schema in control.parameters.items():
            yield f"| `{name}` | {schema['type']} | {'yes' if name in control.required else ''} | {_said(schema)} |"
    else:
        yield "\nNo parameters."
    if control.aliases:
        others = ", ".join(f"`{other}` for `{name}`" for other, name in control.aliases.items())
        yield f"\nOther names of parameters: {others}."


def _said(schema: Any) -> str:
    choices = " or ".join(f"`{choice}`" for choice in schema.get("enum", ()))
    limits = [f"at least {schema['minimum']}"] if "minimum" in schema else []
    limits += [f"at most {schema['maximum']}"] if "maximum" in schema else []
    default = [f"default {json.dumps(schema['default'])}"] if "default" in schema else []
    return "; ".join(part for part in (schema.get("description", ""), choices, ", ".join([*limits, *default])) if part)


def _conversation(title: str, arguments: Any, answer: Any) -> Iterator[str]:
    yield f"\n{title}:\n"
    yield from _json(arguments)
    if "error" in answer:
        yield "\nis answered with a JSON-RPC error:\n"
        yield from _json(answer["error"])
        return
    result = answer["result"]
    flag = "`isError: true`" if result.get("isError") else "no `isError`"
    text = result["content"][0]["text"]
    also = ", the same in `structuredContent`" if "structuredContent" in result else ""
    try:
        said = json.loads(text)
    except ValueError:
        yield f"\nis answered with {flag}{also} and the text:\n\n```\n{_shortened(text)}\n```"
        return
    yield f"\nis answered with {flag}{also} and a text that holds:\n"
    yield from _json(_steady(said))


def _steady(said: Any) -> Any:
    """The same without what is another each time, and without the middle of what is long."""
    if isinstance(said, dict):
        return {key: PASSING[key] if key in PASSING else _steady(value) for key, value in said.items()}
    if isinstance(said, list):
        return [*map(_steady, said[:2]), *(["..."] if len(said) > 2 else [])]
    return _shortened(said) if isinstance(said, str) else said


def _shortened(text: str) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[:3], "..."]) if len(lines) > 4 else text


def _json(said: Any) -> Iterator[str]:
    yield "```json"
    whole = json.dumps(said, ensure_ascii=False)
    yield whole if len(whole) <= 110 else json.dumps(said, ensure_ascii=False, indent=2)
    yield "```"


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(text())
    else:
        FILE.write_text(text())
