"""A repository of GitHub as a place where a server is described: its `server.json`, its `.mcp.json`, or what its README
tells readers to put into theirs.

The rules this file keeps: only GitHub's own hosts are asked, by the client of safe requests, and only for a few files
of bounded size; what is found is text, and nothing of it is run or believed here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

from toolgate import __version__
from toolgate import config as configs
from toolgate.auth.safe_net import Bounds, SafeNet
from toolgate.config import ConfigError
from toolgate.core.fault import Fault

Tables = dict[str, dict[str, Any]]

FILES = ("server.json", ".mcp.json", "mcp.json", "manifest.json", "README.md")
RAW = "https://raw.githubusercontent.com"
LONGEST = 1024 * 1024  # bytes of a file
MOST_BLOCKS = 50  # of a README
PATIENCE = 15.0  # seconds for one file

_url = re.compile(
    r"https://github\.com/(?P<repository>[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}?)(?:\.git)?"
    r"(?:/(?:tree|blob)/(?P<ref>[A-Za-z0-9._-]{1,100})(?:/(?P<path>[A-Za-z0-9._/-]{1,200}?))?)?/?"
)


class NoServers(Exception):
    """No server is described there; `str()` says why."""


def places(url: str) -> list[tuple[str, str]]:
    """The files that are looked at, by name and by where they are. Raises `NoServers`."""
    found = _url.fullmatch(url)
    if not found or ".." in (found["path"] or ""):
        raise NoServers("it is no URL of a repository, such as https://github.com/owner/name")
    path = found["path"] or ""
    files = [path] if path.endswith((".json", ".md")) else [f"{path}/{each}".lstrip("/") for each in FILES]
    return [(each, f"{RAW}/{found['repository']}/{found['ref'] or 'HEAD'}/{each}") for each in files]


async def servers(url: str, net: SafeNet) -> tuple[str, Tables]:
    """The file in which servers are described, and these as native tables. Raises `NoServers`, `Fault`."""
    why = "none of its files describes a server"
    headers = {"User-Agent": f"toolgate/{__version__}"}
    for name, place in places(url):
        fetched = await net.fetch(
            place, asker="import_mcp_server", headers=headers, follow=False, bounds=Bounds(PATIENCE, LONGEST)
        )
        if fetched.status == 404:
            continue
        if fetched.status != 200:
            raise Fault("UPSTREAM_ERROR", f"{place} answered HTTP {fetched.status}", reach="executed")
        try:
            return name, await asyncio.to_thread(described, fetched.body.decode("utf-8", "replace"))
        except NoServers as error:
            why = f"{name}: {error}"
    raise NoServers(why)


def described(text: str) -> Tables:
    """The servers of a file: of a description or another tool's file, or of the first block of a README that has some.
    Raises `NoServers`."""
    if len(text) > LONGEST:
        raise NoServers(f"it has more than {LONGEST:,} characters")
    why = "it describes no server"
    for block in (text, *_blocks(text)):
        for written in (block, f"{{{block}}}"):  # READMEs leave out the outer braces
            if not written.lstrip().startswith("{"):
                continue
            try:
                if found := configs.tables_in(written, file="repository.json", format="json"):
                    return found
            except ConfigError as error:
                if "mcpServers" in written or '"packages"' in written:
                    why = error.problems[0].message
    raise NoServers(why)


def _blocks(text: str) -> Iterator[str]:
    """What stands in fences."""
    for block in text.split("```")[1 : 2 * MOST_BLOCKS : 2]:
        language, _, code = block.partition("\n")
        if language.strip().lower() in ("", "json", "jsonc", "json5"):
            yield code.strip()
