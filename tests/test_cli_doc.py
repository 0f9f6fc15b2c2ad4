"""docs/cli.md is what the commands make of it."""

from __future__ import annotations

import re

import make_cli

from toolgate.cli import COMMANDS

PAGE = make_cli.FILE.read_text()


def test_the_page_of_commands_is_what_the_commands_make() -> None:
    assert make_cli.text() == PAGE, "run `make tools`"


def test_it_has_every_command() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.M) == list(COMMANDS)
