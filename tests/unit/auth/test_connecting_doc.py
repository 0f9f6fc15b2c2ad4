"""`docs/connecting.md` says nothing that is not so."""

import re
from pathlib import Path

import pytest

from toolgate import config
from toolgate.auth.oauth import vault
from toolgate.cli import COMMANDS
from toolgate.config import ServerAuth
from toolgate.frontends import modern
from toolgate.frontends.web import connect

TEXT = (Path(__file__).parents[3] / "docs" / "connecting.md").read_text()
VARIABLES = {"CRM_SECRET": "of the crm", "REPORTS_SECRET": "of the reports"}


@pytest.mark.parametrize("text", re.findall(r"^```json\n(.*?)^```", TEXT, re.M | re.S))
async def test_its_configurations_load(text: str) -> None:
    found = config.read(text, file="toolgate.json", environ=VARIABLES, format="json")
    assert found.servers and all(server.auth and not server.problem for server in found.servers)


async def test_its_keys_are_those_that_there_are() -> None:
    table = TEXT.partition("| key | |")[2].partition("\n\n")[0]
    keys = {key for row in re.findall(r"^\| (`.*?) \|", table, re.M) for key in re.findall(r"`(\w+)`", row)}
    assert keys == set(ServerAuth.__struct_fields__)


async def test_its_numbers_and_places_are_the_programs() -> None:
    said = {
        "waits 25 seconds": modern.SIGNING_IN == 25,
        "for ten minutes": vault.SIGN_IN_LASTS == 600,
        "for 90 days": vault.KEPT == 90 * 24 * 3600,
        "`/connect/callback`": connect.PLACES.callback == "/connect/callback",
        "`/connect/client.json`": connect.PLACES.document == "/connect/client.json",
        "toolgate connect": "connect" in COMMANDS,
    }
    flat = " ".join(TEXT.split())
    assert all(words in flat for words in said) and all(said.values())
