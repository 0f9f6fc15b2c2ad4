"""docs/pins.md shows what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from toolgate import config as configs
from toolgate.auth.safe_net import is_named, strange_name
from toolgate.catalog.poisoning import UNSEEN
from toolgate.catalog.prints import UNPINNED
from toolgate.cli.pins import app

PAGE = (Path(__file__).parents[1] / "docs" / "pins.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_configuration_loads(text: str) -> None:
    found = configs.read(text, file="toolgate.toml", environ={}, format="toml")
    assert not found.warnings


def test_every_command_is_one() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"toolgate pins (\w+)", PAGE)
    assert set(shown) == set(known)
    options = {option for command in known.values() for each in command.params for option in each.opts}
    assert set(re.findall(r"--\w+", PAGE)) <= options


def test_what_is_said_not_to_be_pinned_is_not() -> None:
    assert {"execution", *UNSEEN} == UNPINNED
    assert all(f"`{name}`" in PAGE for name in ("execution", *UNSEEN))


def test_the_names_that_are_refused_are_refused_and_those_that_are_allowed_are_allowed() -> None:
    for name in ("2130706433", "localhost", "nas.lan", "metadata.google.internal"):
        assert strange_name(name) and name in PAGE
    allowed = configs.read(blocks("toml")[-1], file="toolgate.toml", environ={}, format="toml").guard.allow_hosts
    assert is_named("mcp.example.internal", allowed) and is_named("10.20.9.9", allowed)
    assert not is_named("10.21.0.1", allowed)
