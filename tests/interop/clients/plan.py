"""What a driver is asked to do, and the one report that it prints; shared by the Python drivers.

Rule: nothing here imports an SDK, since the two drivers run on two generations of it.
`typescript.mjs` takes the same options and prints the same report.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread

PARTS = ("list", "read", "calls", "elicitation", "sampling", "roots", "progress")
LISTS = ("tools", "resources", "templates", "prompts")
ANSWER = {"name": "Ada Lovelace", "check": True, "integer": 7}
SAMPLED = "a sampled sentence"
MODEL = "interop-model"


def read_plan() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Drive one MCP client and print one JSON report.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="Streamable HTTP endpoint")
    where.add_argument("--stdio", type=json.loads, help="JSON list: command and arguments of a stdio server")
    parser.add_argument("--mode", default="legacy", help="legacy | auto | 2026-07-28")
    parser.add_argument("--root", default="file:///roots/nobody", help="the one root that this client has")
    parser.add_argument("--prefix", default="everything__", help="what stands before the names of server-everything")
    parser.add_argument("--calls", type=json.loads, default=[], help="JSON list of [tool, arguments]")
    parser.add_argument("--read", default="", help="URI of a resource to read")
    parser.add_argument("--prompt", default="", help="name of a prompt without arguments to get")
    parser.add_argument("--capabilities", default="elicitation,sampling,roots", help="what the client declares")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to do, in this order")
    parser.add_argument("--lists", default=",".join(LISTS), help="which lists to list")
    parser.add_argument("--deadline", type=float, default=90.0, help="seconds for everything")
    parser.add_argument(
        "--barrier",
        action="store_true",
        help="say `ready` on stderr when connected and `done` before closing, and wait for a line on stdin each time",
    )
    plan = parser.parse_args()
    plan.capabilities = {name for name in plan.capabilities.split(",") if name}
    plan.lists = [name for name in plan.lists.split(",") if name]
    plan.parts = [name for name in plan.parts.split(",") if name]
    return plan


async def barrier(plan: argparse.Namespace, word: str) -> None:
    if plan.barrier:
        print(word, file=sys.stderr, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


async def follow(list_page: Callable[[str | None], Awaitable[tuple[list[str], str | None]]]) -> dict[str, Any]:
    """All items of one list, its pages followed to the end."""
    items: list[str] = []
    pages = 0
    cursor: str | None = None
    while pages == 0 or cursor:
        page, cursor = await list_page(cursor)
        items += page
        pages += 1
    return {"items": items, "pages": pages}


async def run_parts(plan: argparse.Namespace, report: dict[str, Any], parts: dict[str, Any]) -> None:
    """Each part on its own: one that fails is an error of the report and does not hide the others."""
    await barrier(plan, "ready")
    for name in plan.parts:
        try:
            report[name] = await parts[name]()
        except Exception as error:
            report["errors"][name] = f"{type(error).__name__}: {error}"
    await barrier(plan, "done")
    report["finished"] = True


def drive(connect_and_run: Callable[[argparse.Namespace, dict[str, Any]], Awaitable[None]]) -> None:
    """Run one client within its deadline and print the report; exit 1 if it could not even connect."""
    plan = read_plan()
    report: dict[str, Any] = {"errors": {}}

    async def bounded() -> None:
        with anyio.fail_after(plan.deadline):
            await connect_and_run(plan, report)

    failed: BaseException | None = None
    try:
        anyio.run(bounded)
    except Exception as error:
        # An SDK may stumble while it closes, over a message that comes at that moment; the visit is over by then.
        if "finished" in report:
            report["closing"] = describe(error)
        else:
            failed = error
            report["errors"]["connection"] = describe(error)
    print(json.dumps(report, ensure_ascii=False))
    raise SystemExit(1 if failed else 0)


def describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return " | ".join(describe(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"
