"""A tool that is off, called by a name that is another one for us and the same for a server that reads leniently."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from peers import LegacyServer, Scene, gateway

from toolgate.auth.access import Rules
from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions, Verdict
from toolgate.core.spelling import as_a_lenient_reader

ODD = ["DELETE", "Delete", " delete", "delete ", "delete\t", "\uff44elete", "del\u200bete", "de lete", "\u00addelete"]

# Letters and marks that nobody sees: NFKC_Casefold of Unicode leaves them out.
INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef"


def verdict(name: str, tools: dict[str, Verdict], **more: Any) -> Verdict:
    rules = Rules(KnownClient(id="ci", name="ci", servers="all", permissions=Permissions(tools=tools, **more)))
    return rules.verdict("files", "tools", name)


@pytest.mark.promise("b.attacks.names")
@pytest.mark.parametrize("name", ODD)
def test_what_is_off_is_off_however_it_is_written(name: str) -> None:
    assert verdict(name, {"files__delete": "off"}) == "off"
    assert verdict(name, {"files__Delete": "off"}) == "off"
    assert verdict(name, {"files__del*": "ask"}) == "ask"


@pytest.mark.promise("b.attacks.names")
@pytest.mark.parametrize("sign", INVISIBLE, ids=lambda sign: f"U+{ord(sign):04X}")
def test_what_is_off_is_off_with_letters_and_marks_that_are_not_seen(sign: str) -> None:
    for name in (f"del{sign}ete", f"{sign}delete", f"delete{sign}", f"DEL{sign}{sign}ete"):
        assert verdict(name, {"files__delete": "off"}) == "off"
        assert verdict("delete", {f"files__{name}": "off"}) == "off"
        assert verdict("public/" + name, {"files__public/del*": "ask"}) == "ask"
    assert verdict(f"de\u0301{sign}le\u0301te", {"files__d\u00e9l\u00e9te": "off"}) == "off"


@pytest.mark.promise("b.attacks.names")
def test_that_opens_nothing_and_leaves_alone_what_is_named() -> None:
    assert verdict("READ", {"files__read": "allow"}, everything="off") == "off"
    assert verdict("Delete", {"files__delete": "off", "files__Delete": "allow"}) == "allow"
    assert verdict("read_file", {"files__*": "off", "files__read*": "allow"}) == "allow"
    assert verdict("READ_FILE", {"files__*": "off", "files__read*": "allow"}) == "off"
    assert verdict("deleted", {"files__delete": "off"}) == "allow"


@given(some.text(max_size=12))
def test_reading_leniently_once_is_as_good_as_twice(name: str) -> None:
    assert as_a_lenient_reader(as_a_lenient_reader(name)) == as_a_lenient_reader(name)


@pytest.mark.promise("b.attacks.names")
@pytest.mark.parametrize("path", ["/mcp/servers/files", "/mcp"])
async def test_a_name_that_no_list_has_does_not_reach_the_server(path: str) -> None:
    async def run(scene: Scene) -> str:
        return "deleted"

    files = LegacyServer({"delete": run})
    ann = KnownClient(id="ann", name="ann", servers="all", permissions=Permissions(tools={"files__delete": "off"}))
    async with gateway(config=Config(clients=(ann,)), files=files) as rig:
        client = await rig.client("2025-11-25", path=path)
        for name in [*ODD, *(f"del{sign}ete" for sign in INVISIBLE)]:
            written = name if path != "/mcp" else f"files__{name}"
            assert (await client.call(written)).error
        assert not [each for each in files.received if each.get("method") == "tools/call"]
