"""The surface `servers/{id}`: nothing is renamed."""

from __future__ import annotations

import pytest
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.catalog.views import CatalogView
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done
from toolgate.surfaces.single import Single

TOOL = Raw(b'{ "name" : "search" }')
SURFACE = Single("docs")


def view(*servers: str) -> CatalogView:
    return CatalogView(servers, lambda server, kind: ServerList({"search": TOOL}) if kind == "tools" else None, {}, ())


def test_a_list_is_the_servers_own_bytes() -> None:
    assert list(SURFACE.list("tools", view("docs"))) == [TOOL]
    assert list(SURFACE.list("prompts", view("docs"))) == []


def test_a_call_goes_to_the_server_by_the_name_that_it_was_given() -> None:
    call = Call("tools/call", "docs__search", Client())
    assert list(SURFACE.needs(call, view("docs"))) == [("docs", "tools")]
    entered = SURFACE.enter(call, view("docs"))
    assert (entered.server, entered.target) == ("docs", "docs__search")


@pytest.mark.promise("b.surfaces.server")
def test_a_result_is_left_alone() -> None:
    done = Done(b'{"content":[{"type":"resource_link","uri":"a:1"}]}')
    assert SURFACE.leave(Call("tools/call", "t", Client(), server="docs"), done) is done


def test_a_server_that_is_not_permitted_does_not_exist() -> None:
    with pytest.raises(Fault, match="Server not found: docs"):
        SURFACE.enter(Call("tools/call", "t", Client()), view("other"))
