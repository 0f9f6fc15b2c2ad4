"""docs/surfaces.md and docs/tools.md say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import make_tools
import pytest
from inmemory import gateway
from stage import Asker, cast

from toolgate import config

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "surfaces.md").read_text()

ROWS = dict(re.findall(r"^\| `(/mcp[^`]*)` \| (.*?) \|", PAGE, re.M))


def test_the_page_of_tools_is_what_the_code_makes() -> None:
    assert (DOCS / "tools.md").read_text() == make_tools.text(), "run `make tools`"


def test_every_control_tool_is_on_it_with_a_call_and_a_failure() -> None:
    assert set(make_tools.CALLS) == set(make_tools.WRONG) == set(make_tools.controls.CONTROLS)


@pytest.mark.promise("b.surfaces.skins")
async def test_the_page_of_surfaces_has_every_path_and_no_other() -> None:
    async with gateway(scripts={"serena": cast()["serena"]}) as app:
        served = {path for path in app.gateway.snapshot.routes if not path.startswith("/mcp/servers/")}
        assert set(ROWS) - {"/mcp/servers/{id}"} == served
        for path in ROWS:
            assert isinstance(await Asker(app, "modern", path.replace("{id}", "serena")).listed(), list)


@pytest.mark.promise("b.surfaces.default")
def test_its_configurations_load() -> None:
    first, second = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    assert config.read(first, file="toolgate.toml", environ={}, format="toml").surface == "meta"
    found = config.read(second, file="toolgate.toml", environ={}, format="toml").virtual_search
    assert found == config.VirtualSearch(enabled=True)
    assert (found.threshold, found.threshold_tokens) == (40, 10000)


@pytest.mark.parametrize("page", ["surfaces.md", "tools.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists(), target
