"""A pattern that was to close a tool, and can fit nothing, is told by whatever reads the file: the tool stays open."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from cli.test_cli import here, toolgate
from hypothesis import given
from hypothesis import strategies as some

from toolgate import config as configs
from toolgate.app import running
from toolgate.auth.access import Access
from toolgate.config import permission_names
from toolgate.core.model import Principal
from toolgate.state.settings import Settings

__all__ = ["here"]

SERVERS = {"files": {"command": "true"}, "Shared Things": {"command": "true"}}
VAIN = [
    "shared_danger*",
    "files.dang*",
    "files_dang*",
    "files-dang*",
    "Files*__danger",
    "files__danger?",
    "files__[d]anger",
    "files__{danger}",
    "files__danger ",
    "files__ danger*",
    " *__danger",
    "files__d\u0430nger",  # a Cyrillic letter
    "files__d\uff41nger*",  # a wide one
    "files__dan\u200bger",  # one that cannot be seen
    "\uff46iles__danger",
    "shared-thing__*",
    "shared_things_*",
]
SOUND = [
    "files__danger",
    "files__dan*",
    "*",
    "*__danger",
    "f*",
    "files*",
    "*danger",
    "shared_things__*",
    "Shared Things__x",
    "shared-t*__x",
    "files__a.b/c-d_e",
    "toolgate__mcp_*",
    "tool*",
    "files_*_danger",
    "fi*les_danger",
]


def read(**permissions: Any) -> configs.Config:
    client = {"id": "ci", "mcp_server_access": "all", "mcp_permissions": permissions}
    text = json.dumps({"mcpServers": SERVERS, "clients": [client]})
    return configs.read(text, file="toolgate.json", environ={}, format="json")


@pytest.mark.promise("b.attacks.patterns")
@pytest.mark.parametrize("verdict", ["off", "ask", "allow"])
@pytest.mark.parametrize("pattern", VAIN)
def test_a_pattern_that_can_fit_nothing_is_told(pattern: str, verdict: str) -> None:
    found = read(tools={pattern: verdict})
    (warning,) = [each for each in found.warnings if "mcp_permissions.tools" in each]
    assert warning.isascii(), "what cannot be told apart is written out"
    who = Principal(client="ci")
    judged = {Access(found).verdict(who, each, "tools", "danger") for each in ("files", "shared-things")}
    assert judged <= {"allow", verdict}, "it closes no more than what a lenient reader takes it for"


@pytest.mark.promise("b.attacks.patterns")
@pytest.mark.parametrize("pattern", SOUND)
def test_one_that_can_fit_something_is_not(pattern: str) -> None:
    assert read(tools={pattern: "off"}).warnings == ()


@pytest.mark.promise("b.attacks.patterns")
@given(some.text("fils_*-x", max_size=12))
def test_what_is_passed_over_in_silence_fits_some_name(pattern: str) -> None:
    """Held against names made of the pattern itself: each star as nothing, or as what a server's name lacks."""
    ids = ("files", "x")
    if "*" not in pattern.partition("__")[0]:
        return
    fits = permission_names._may_begin(pattern, "files__") or permission_names._may_begin(pattern, "x__")
    stars = ["", *ids, *(id[at:] + "__" for id in ids for at in range(len(id) + 1)), "_", "__", "s__", "les__"]
    begun = any(
        name.startswith(("files__", "x__"))
        for one in stars
        for rest in ("", "files__")
        for name in (pattern.replace("*", one, 1).replace("*", ""), pattern.replace("*", one).replace("*", rest))
    )
    assert fits or not begun


@pytest.mark.promise("b.attacks.patterns")
@pytest.mark.parametrize(
    ("permissions", "kind"),
    [
        ({"servers": {"fil?s*": "off"}}, "servers"),
        ({"servers": {"Files*": "off"}}, "servers"),
        ({"prompts": {"files.x*": "off"}}, "prompts"),
        ({"prompts": {"files__x\u200b": "off"}}, "prompts"),
        ({"resources": {"files+file:///a ": "off"}}, "resources"),
        ({"resources": {"files+file:///\uff41": "off"}}, "resources"),
    ],
)
def test_of_every_kind(permissions: Any, kind: str) -> None:
    (warning,) = read(**permissions).warnings
    assert f"clients.ci.mcp_permissions.{kind}" in warning


@pytest.mark.promise("b.attacks.patterns")
def test_scopes_for_tools_that_none_can_be_are_told() -> None:
    auth = {"issuer": "https://a.example", "audience": "https://b.example", "step_up": {"files.delete_*": ["admin"]}}
    text = json.dumps({"mcpServers": SERVERS, "auth": auth})
    found = configs.read(text, file="toolgate.json", environ={}, format="json")
    assert any("auth.step_up: `files.delete_*`" in warning for warning in found.warnings)


@pytest.mark.promise("b.attacks.patterns")
@pytest.mark.parametrize(
    "command",
    [
        ["config", "check"],
        ["config", "show"],
        ["keys", "list"],
        ["approvals", "list"],
        ["pins", "list"],
        ["audit", "verify"],
        ["secrets", "list"],
    ],
)
def test_every_command_that_reads_the_file_tells(command: list[str], here: Path) -> None:
    clients = [{"id": "ci", "mcp_server_access": "all", "mcp_permissions": {"tools": {"files.dang*": "off"}}}]
    written = {"mcpServers": SERVERS, "clients": clients, "state": "state"}
    (here / "toolgate.json").write_text(json.dumps(written))
    assert "files.dang*" in toolgate(*command).err


@pytest.mark.promise("b.attacks.patterns")
async def test_an_edit_that_is_served_is_told_of_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "toolgate.json"

    def write(**permissions: Any) -> None:
        client = {"id": "ci", "mcp_server_access": "all", "mcp_permissions": permissions}
        path.write_text(json.dumps({"mcpServers": SERVERS, "clients": [client]}))

    write()
    settings = Settings(lambda: configs.load(path, {}), {}, path, tmp_path / "servers.json")
    with caplog.at_level(logging.WARNING, "toolgate"):
        async with running(settings.read(), environ={}, settings=settings) as app:
            write(tools={"files.dang*": "off"})
            await app.reload()
            assert caplog.text.count("files.dang*") == 1
            await app.reload()
            assert caplog.text.count("files.dang*") == 1


def stepped_up(**step_up: Any) -> configs.Config:
    auth = {"issuer": "https://a.example", "audience": "https://b.example", "step_up": step_up}
    text = json.dumps({"mcpServers": SERVERS, "auth": auth})
    return configs.read(text, file="toolgate.json", environ={}, format="json")


@pytest.mark.promise("b.attacks.patterns")
@pytest.mark.parametrize("name", ["danger", "files.danger", "files_danger", "others__danger"])
def test_a_tool_of_no_server_that_was_to_need_another_scope_is_told(name: str) -> None:
    (warning,) = [each for each in stepped_up(**{name: ["del"]}).warnings if "auth.step_up" in each]
    assert name in warning
    assert not [each for each in stepped_up(files__danger=["del"]).warnings if "step_up" in each]


@pytest.mark.parametrize("scopes", ["", "   ", []])
def test_a_tool_that_was_to_need_another_scope_and_names_none_is_refused(scopes: Any) -> None:
    with pytest.raises(configs.ConfigError, match="names no scope"):
        stepped_up(files__danger=scopes)
