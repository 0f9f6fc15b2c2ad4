"""Many children that are written to in one round of the event loop."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from toolgate.config import Server
from toolgate.core.clock import SystemClock
from toolgate.core.inflow import IntakeQueue
from toolgate.core.outflow import MOST
from toolgate.upstreams.links.stdio import StdioLink


class Child:
    """Writes down what it is written."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def check(self) -> None:
        """It is there."""

    def write(self, line: bytes) -> None:
        self.heard.append(line)


async def test_each_of_many_children_hears_what_it_is_written_in_one_round() -> None:
    turns = IntakeQueue()
    children = [Child() for _ in range(4 * MOST)]
    for number, child in enumerate(children):
        server = Server(id=f"s{number}", name="one", type="stdio", command="x")
        link = StdioLink(server, cast(Any, None), SystemClock(), turns)
        link._child = cast(Any, child)
        link._write(b"{}")
    await asyncio.sleep(0)
    assert [child.heard for child in children] == [[b"{}\n"]] * (4 * MOST)
