"""One `tools/call` of a modern client, in memory, through an open gateway that is warm: which functions of ours run.

The server is modern too, and its tool answers at once. Nothing is counted of the peers, nor of what they call of `core`
themselves; of libraries; and of comprehensions. A coroutine that goes on after a wait is not called once more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from architecture.imports import SOURCE
from peers import ModernServer, Scene, gateway
from virtualtime import VirtualTimeLoop

from toolgate.config import Config

WARM = 3  # calls before the one that is counted
IN_ONE_LINE = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
TESTS = str(Path(__file__).parents[1])
LINK = "upstreams/links/memory.py"


class WarmCall(NamedTuple):
    visited: list[str]  # the file of each function of ours that runs or goes on, in this order
    calls: int
    above_the_link: frozenset[str]  # the files of the functions that wait while the link sends

    @property
    def files(self) -> set[str]:
        return set(self.visited)

    @property
    def moves(self) -> int:
        return sum(one != other for one, other in zip(self.visited, self.visited[1:], strict=False))


async def _plain(scene: Scene) -> str:
    return "just so"


def file_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(f"{SOURCE}/") if _is_ours(frame) else ""


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(f"{SOURCE}/") and frame.f_code.co_name not in IN_ONE_LINE


def _is_of_a_peer(frame: FrameType) -> bool:
    caller = frame.f_back
    return file_of(frame).startswith("core/") and caller is not None and caller.f_code.co_filename.startswith(TESTS)


async def _traced() -> WarmCall:
    visited: list[str] = []
    seen: dict[int, FrameType] = {}  # the frame is kept, so that no other gets its id
    above: list[str] = []

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not _is_ours(frame) or _is_of_a_peer(frame):
            return
        visited.append(file_of(frame))
        seen[id(frame)] = frame
        if visited[-1] == LINK and not above:
            above.extend(_stack(frame.f_back))

    async with gateway(config=Config(), there=ModernServer({"plain": _plain})) as rig:
        client = rig.modern()
        for _ in range(WARM):
            await client.call("there__plain")
        sys.setprofile(on_event)
        try:
            reply = await client.call("there__plain")
        finally:
            sys.setprofile(None)
        assert reply.text == "just so"
    return WarmCall(visited, len(seen), frozenset(above))


def _stack(frame: FrameType | None) -> list[str]:
    files: list[str] = []
    while frame:
        files.append(file_of(frame))
        frame = frame.f_back
    return [file for file in files if file]


def measured() -> WarmCall:
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(_traced())
    finally:
        loop.close()
