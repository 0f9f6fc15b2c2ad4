"""docs/secrets.md shows what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from toolgate.cli.secrets import app
from toolgate.config import Config, Guard, read
from toolgate.config.secrets import Secrets

PAGE = (Path(__file__).parents[1] / "docs" / "secrets.md").read_text(encoding="utf-8")
ENVIRON = {"TOOLGATE_SECRET_GITHUB": "from-the-env", "TOOLGATE_SECRET_TEAM_DOCS_TOKEN": "from-the-env"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def understood(text: str) -> Config:
    return read(text, file="toolgate.toml", environ=ENVIRON, format="toml")


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_configuration_loads(text: str) -> None:
    found = understood(text)
    assert not any(server.problem for server in found.servers) and not found.warnings


def test_the_first_one_finds_its_secrets() -> None:
    github, docs = understood(blocks("toml")[0]).servers
    assert (github.env["GITHUB_TOKEN"], docs.headers["Authorization"]) == ("from-the-env", "Bearer from-the-env")


def test_every_command_exists_and_no_other() -> None:
    commands: Any = typer.main.get_command(app)
    assert set(re.findall(r"^toolgate secrets (\w+)", PAGE, re.M)) == set(commands.commands)


def test_the_places_and_modes_are_all_named_in_their_order() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == ("backends", *Secrets().backends)
    modes = get_args(get_type_hints(Guard)["scrub"])
    assert set(re.findall(r'^\| `"(\w+)"` \|', PAGE, re.M)) == set(modes)
