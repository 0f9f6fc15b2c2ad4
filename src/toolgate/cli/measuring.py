"""How many tools there are, and how many tokens of a model their lists take: of each server, and of each surface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from toolgate.cli import gateways, printing
from toolgate.cli.gateways import Reached
from toolgate.search import tokens


class Size(msgspec.Struct, frozen=True):
    tools: int = 0
    tokens: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.tools + other.tools, self.tokens + other.tokens)


class Lists(msgspec.Struct, frozen=True):
    """By the server's name; `faults` are those that could not be listed, with why."""

    servers: Mapping[str, Size]
    faults: Mapping[str, str]


class _Server(msgspec.Struct):
    name: str
    state: str = ""
    error: str = ""
    listed: tuple[Raw, ...] = ()


class _Listing(msgspec.Struct):
    tools: tuple[Raw, ...] = ()


class _Found(msgspec.Struct):
    listing: _Listing
    servers: tuple[_Server, ...]


def of(tools: Iterable[Raw]) -> Size:
    sizes = [tokens.estimate(bytes(raw)) for raw in tools]
    return Size(len(sizes), sum(sizes))


async def servers(gateway: Reached, anew: bool) -> Lists:
    """`anew`: each is started, and lists its tools."""
    found = await _list(gateway, "/mcp/aggregate", anew)
    faults = {each.name: each.error or each.state for each in found.servers if not each.listed and each.error}
    return Lists({each.name: of(each.listed) for each in found.servers}, faults)


async def surface(gateway: Reached, name: str) -> Size:
    return of((await _list(gateway, f"/mcp/{name}", False)).listing.tools)


async def _list(gateway: Reached, path: str, anew: bool) -> _Found:
    status, said = await gateway.ask("POST", "/list", {"path": path, "anew": anew})
    if status >= 400:
        printing.fail(gateways.explained(said))
    return msgspec.json.decode(said, type=_Found)
