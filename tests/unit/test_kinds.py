"""The kinds of servers: each has a way to be made, and what is given instead of its link is used."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from virtualtime import FakeClock

from toolgate.config import Server
from toolgate.upstreams.inprocess import BUILT_IN_SERVERS
from toolgate.upstreams.kinds import KINDS, LINKS, upstream_of
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.mcp.upstream import McpUpstream
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process.supervisor import Supervisor

TYPES = get_args(get_type_hints(Server)["type"])
(BUILT_IN, *_) = BUILT_IN_SERVERS


def made(type: Any, **more: Any) -> Any:
    clock = FakeClock()
    server = Server(id=BUILT_IN, name=BUILT_IN, type=type, url="http://localhost/")
    return upstream_of(server, LinkDeps(clock, Supervisor(clock, {}), Pool(clock)), lambda event: None, **more)


def test_each_type_of_the_configuration_has_one_row() -> None:
    assert set(KINDS) == set(TYPES)


@pytest.mark.parametrize("type", TYPES)
async def test_a_server_of_any_type_is_made_and_nothing_is_started(type: str) -> None:
    upstream = made(type)
    assert isinstance(upstream, McpUpstream) == (type in LINKS)
    assert (upstream.id, upstream.calls) == (BUILT_IN, 0)
    await upstream.close()


@pytest.mark.parametrize("type", TYPES)
async def test_a_server_with_another_link_speaks_mcp_whatever_its_type(type: str) -> None:
    async def link(*_: Any) -> Any:
        raise AssertionError("nobody has called it")

    assert isinstance(made(type, make_link=link), McpUpstream)
