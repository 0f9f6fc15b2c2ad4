"""`toolgate connect`: a whole sign-in from the command line, and what other commands know of it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from pathlib import Path

import browser
from processes.ground import WAIT, Json, bind, home, real, toolgate, until
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


@real
async def test_the_page_is_that_of_the_gateway_that_runs_wherever_it_listens() -> None:
    with home() as environ:
        async with serving(Protected(modern=True)) as server:
            http = {"port": free_port()}
            docs: Json = {"docs": {"url": server.url, "auth": "oauth"}}
            async with toolgate("serve", "--port", "0", config=docs, environ=environ, http=http) as running:
                await running.until_it_serves()
                config: Json = {"mcpServers": docs, "http": http}
                status, said = await run(environ, config, "connect", "docs", "--no-browser")
                assert status == 0 and f"Sign in at http://127.0.0.1:{running.port}/connect/" in said, said


@real
async def test_of_several_commands_at_once_another_serves_the_pages_when_the_first_has_ended() -> None:
    with home() as environ:
        async with serving(Protected(modern=True)) as server:
            docs: Json = {each: {"url": server.url, "auth": "oauth"} for each in ("docs", "more")}
            more = {"config": docs, "environ": environ, "http": {"port": free_port()}}
            async with toolgate("connect", "docs", "--no-browser", **more) as first:
                await first.until_it_says(b"/connect/")
                async with toolgate("connect", "more", "--no-browser", **more) as second:
                    await second.until_it_says(b"/connect/")
                    first.process.terminate()
                    await first.ended()
                    page = browser.PAGE.search(second.errors.decode())
                    assert page
                    await until(lambda: is_shown(page[0]))
                    await asyncio.to_thread(browser.sign_in, page[0])
                    assert await second.ended() == 0


def is_shown(page: str) -> bool:
    host, port = page.split("/")[2].split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5):
        return True
    return False
