"""docs/approvals.md shows what is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from toolgate import config
from toolgate.cli import app
from toolgate.config.access import Approvals
from toolgate.core.jsonrpc import Raw
from toolgate.core.model import Call, Client
from toolgate.core.redaction import GONE, Redactor
from toolgate.policy import approval_requests
from toolgate.policy.approvals import LASTS, Place

PAGE = (Path(__file__).parents[1] / "docs" / "approvals.md").read_text()


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return found


def test_its_configuration_is_understood_and_shows_the_defaults() -> None:
    found = config.read(block("toml"), file="toolgate.toml", environ={}, format="toml")
    assert found.approvals == Approvals()
    assert found.clients[0].permissions.tools == {"files__delete_*": "ask"}


def test_its_question_is_the_one_that_is_asked() -> None:
    place = Place("client:ci", "files", "", "tools", "delete_file")
    control = Call("tools/call", "mcp_call", Client())
    given = Raw(rb'{"really":true,"path":"/tmp/a*.txt\n"}')
    call = Call("tools/call", "delete_file", Client(), given, server="files", asked=control)
    assert approval_requests.text(approval_requests.of(call, place, Redactor())) + "\n" == block("text")


def test_its_commands_exist() -> None:
    for line in block("sh").splitlines():
        words = shlex.split(line, comments=True)
        shown = CliRunner().invoke(app, [*words[1:3], "--help"]).output
        assert "Usage:" in shown, words
        assert all(word in shown for word in words if word.startswith("--")), words


def test_its_numbers_and_words_are_ours() -> None:
    assert f"{approval_requests.MOST_SHOWN:,} characters" in PAGE
    assert f"`{GONE}`" in PAGE
    assert all(re.search(rf"^\| .*\b{lasts}\b.* \|", PAGE, re.M) for lasts in LASTS)
