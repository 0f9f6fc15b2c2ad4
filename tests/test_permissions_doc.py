"""docs/permissions.md shows what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolgate import config
from toolgate.auth.access import Access
from toolgate.core.model import Principal

PAGE = (Path(__file__).parents[1] / "docs" / "permissions.md").read_text()
(EXAMPLE,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\w+) \| `(.+?)` \| (\w+) \|$", PAGE, re.M)


@pytest.mark.promise("b.001.permissions")
@pytest.mark.parametrize(("client", "server", "kind", "name", "verdict"), ROWS)
def test_every_row_of_the_page_is_decided_so(client: str, server: str, kind: str, name: str, verdict: str) -> None:
    found = config.read(EXAMPLE, file="toolgate.toml", environ={}, format="toml", native=True)
    assert not found.warnings
    assert Access(found).verdict(Principal(client=client), server, kind, name) == verdict


def test_a_name_without_a_server_is_told_with_what_to_write() -> None:
    slips = EXAMPLE.replace("github__merge", "merge").replace("docs+file", "file")
    found = config.read(slips, file="toolgate.toml", environ={}, format="toml", native=True)
    assert [warning.rpartition(": write ")[2] for warning in found.warnings] == [
        "`SERVER__merge`",
        "`SERVER+file:///private/*`",
    ]


def test_permissions_that_open_nothing_are_told() -> None:
    slip = EXAMPLE.replace('id = "reader"\nmcp_server_access = "all"\n', 'id = "reader"\n')
    found = config.read(slip, file="toolgate.toml", environ={}, format="toml", native=True)
    (warning,) = found.warnings
    assert "clients.reader" in warning and 'mcp_server_access = "all"' in warning


def test_a_server_that_is_not_configured_is_told() -> None:
    slips = EXAMPLE.replace("github__merge", "gihtub__merge").replace("docs+file", "dosc+file")
    slips = slips.replace('"docs", "github"]', '"docs", "github", "search"]').replace("{ docs =", "{ dcos =")
    found = config.read(slips, file="toolgate.toml", environ={}, format="toml", native=True)
    told = "\n".join(found.warnings)
    assert all(name in told for name in ("`gihtub__merge`", "`dosc+file:///private/*`", "`search`", "`dcos`"))
    assert len(found.warnings) == 4
