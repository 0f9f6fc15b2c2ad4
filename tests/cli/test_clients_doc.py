"""docs/clients.md says nothing that is not so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from toolgate import config
from toolgate.auth.cross_checks import problems
from toolgate.cli import keys

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S))
def test_every_configuration_on_the_page_is_sound(text: str) -> None:
    found = config.read(text, file="toolgate.toml", environ={"OPS_KEY": "o" * 24}, format="toml")
    assert found.clients and not found.warnings and not problems(found)


def test_every_command_of_keys_is_on_the_page() -> None:
    known = typer.main.get_command(keys.app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"toolgate keys (\w+)", PAGE)) == set(known)
    for name, option in re.findall(r"toolgate keys (\w+) [A-Z]+ \[(--\w+)", PAGE):
        assert any(option in parameter.opts for parameter in known[name].params), option
