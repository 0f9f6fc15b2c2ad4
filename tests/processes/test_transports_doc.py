"""`docs/transports.md` says nothing that is not so: its programs run."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from processes.ground import WAIT, gateway, real

from toolgate.config import Config, Http, Server, Sessions
from toolgate.frontends import batches, channels, duplex, pipes

TEXT = (Path(__file__).parents[2] / "docs" / "transports.md").read_text()
GREETER = Config((Server(id="greeter", name="greeter", type="registry"),))


@pytest.mark.parametrize("program", re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S), ids=["sse", "websocket"])
@real
async def test_its_programs_run(program: str) -> None:
    async with gateway(GREETER) as served:
        assert ":8765/" in program
        code = program.replace(":8765/", f":{served.port}/")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(WAIT):
            out, errors = await process.communicate()
        assert out.decode() == "['greeter__greet', 'greeter__count']\n", errors.decode()


def test_its_numbers_are_the_programs() -> None:
    said = {
        "up to 100 messages": batches.MOST == 100,
        "kept for five minutes": channels.KEPT_FOR == 300,
        "1,000 events": channels.MOST_EVENTS == 1000,
        "8 MiB for each session": channels.MOST_BYTES == 8 * 2**20,
        "64 MiB unread": pipes.MOST_WAITING == 64 * 2**20,
        "up to three seconds": duplex.LAST_WORDS == 3,
    }
    flat = " ".join(TEXT.split())
    assert all(words in flat for words in said) and all(said.values())


def test_its_keys_are_those_of_the_configuration() -> None:
    keys = set(re.findall(r"`(\w+)\.(\w+)`", TEXT))
    structs = {"http": Http, "sessions": Sessions}
    assert keys and all(name in structs[section].__struct_fields__ for section, name in keys)
