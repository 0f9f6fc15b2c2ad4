"""The control tools of seed 004 that work by Codex. They are there where the operator has enabled them."""

from __future__ import annotations

from toolgate.config.settings import APPROVAL_POLICIES, SANDBOXES
from toolgate.surfaces.controls.base import Control, Given, Object
from toolgate.surfaces.controls.context import ControlContext
from toolgate.surfaces.controls.daemon import FAMILY
from toolgate.workspace.codex import MOST_THREADS


async def codex(given: Given, context: ControlContext) -> Object:
    context.gateway.workspace.codex.check_offered("codex")
    return await context.gateway.workspace.codex.run(given, context, context.gateway.caller)


async def codex_list_threads(given: Given, context: ControlContext) -> Object:
    context.gateway.workspace.codex.check_offered("codex_list_threads")
    return await context.gateway.workspace.codex.list_threads(given)


async def codex_archive_thread(given: Given, context: ControlContext) -> Object:
    context.gateway.workspace.codex.check_offered("codex_archive_thread")
    return await context.gateway.workspace.codex.archive(given)


_MORE = "Default: the most that the operator allows, up to "

CONTROLS = (
    Control(
        "codex",
        FAMILY,
        "Run a prompt with Codex, an agent that reads and changes files and runs commands, and wait for its answer. A "
        "person is asked first.",
        {
            "prompt": {"type": "string", "description": "User prompt"},
            "thread_id": {"type": "string", "description": "Continue existing thread"},
            "cwd": {
                "type": "string",
                "description": "Working directory, an absolute path. Default: the thread's, else the gateway's",
            },
            "model": {"type": "string", "description": "Model override"},
            "sandbox": {
                "type": "string",
                "enum": list(SANDBOXES),
                "description": f"Sandbox mode. {_MORE}workspace-write",
            },
            "approval_policy": {
                "type": "string",
                "enum": list(APPROVAL_POLICIES),
                "description": f"Approval policy. {_MORE}on-request",
            },
        },
        ("prompt",),
        work=codex,
        changes=True,
        optional=True,
    ),
    Control(
        "codex_list_threads",
        FAMILY,
        "List Codex conversation threads, the newest first. A person is asked first.",
        {
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_THREADS,
                "default": 20,
                "description": "How many at most",
            },
            "cursor": {"type": "string", "description": "The `next_cursor` of the page before"},
        },
        work=codex_list_threads,
        optional=True,
    ),
    Control(
        "codex_archive_thread",
        FAMILY,
        "Archive a Codex thread: it is listed no more. A person is asked first.",
        {"thread_id": {"type": "string", "description": "The thread to archive"}},
        ("thread_id",),
        work=codex_archive_thread,
        changes=True,
        optional=True,
    ),
)
