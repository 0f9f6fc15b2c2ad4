"""`toolgate connect`: a whole sign-in from the command line, and what other commands know of it afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import browser
from processes.ground import WAIT, Json, bind, home, real
from processes.scripted_http import serving
from processes.test_signing_in import Protected


def free_port() -> int:
    with bind("127.0.0.1", 0) as listener:
        return listener.getsockname()[1]


async def run(environ: dict[str, str], config: Json, *arguments: str) -> tuple[int, str]:
    """A command to its end; where it names a page, its user signs in there."""
    file = Path(environ["HOME"], "toolgate.json")
    file.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-W", "error", "-m", "toolgate", *arguments, "--config", str(file)],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ | {"PATH": os.environ["PATH"]},
        cwd=environ["HOME"],
    )
    assert process.stdout
    said = ""
    async with asyncio.timeout(WAIT):
        while line := (await process.stdout.readline()).decode():
            said += line
            if line.startswith("Sign in at ") and (page := browser.PAGE.search(line)):
                await asyncio.to_thread(browser.sign_in, page[0])
        return await process.wait(), said


@real
async def test_who_signs_in_by_the_command_is_known_to_the_others() -> None:
    with home() as environ:
        async with serving(Protected(modern=True)) as server:
            config: Json = {
                "mcpServers": {"docs": {"url": server.url, "auth": "oauth"}},
                "http": {"port": free_port()},
            }
            status, said = await run(environ, config, "call", "docs", "act")
            assert status == 1 and "toolgate connect docs" in said and "/connect/" not in said
            status, said = await run(environ, config, "connect", "docs", "--no-browser")
            assert status == 0 and said.endswith("docs: signed in, 1 tool\n"), said
            status, said = await run(environ, config, "call", "docs", "act")
            assert status == 0 and said.startswith("for user "), said
            status, said = await run(environ, config, "connect", "docs", "--no-browser")
            assert status == 0 and said == "docs: signed in, 1 tool\n", said  # nobody is asked again
            status, said = await run(environ, config, "connect", "docs", "--forget")
            assert (status, said) == (0, "docs: signed out\n")
            status, said = await run(environ, config, "call", "docs", "act")
            assert status == 1 and "toolgate connect docs" in said


@real
async def test_it_says_what_is_missing() -> None:
    with home() as environ:
        config: Json = {
            "mcpServers": {
                "docs": {"url": "http://127.0.0.1:9/mcp"},
                "crm": {"url": "http://127.0.0.1:9/mcp", "auth": "oauth"},
            },
            "clients": [{"id": "ci", "mcp_server_access": "all"}],
        }
        status, said = await run(environ, config, "connect", "docs")
        assert status == 2 and '"auth": "oauth"' in said
        status, said = await run(environ, config, "connect", "crm")
        assert status == 2 and "--client ci" in said
        status, said = await run(environ, config, "connect", "crm", "--client", "nobody")
        assert status == 2 and "Client not found: nobody" in said
        status, said = await run(environ, config, "connect", "crm", "--client", "ci", "--forget")
        assert (status, said) == (0, "crm: was not signed in\n")
