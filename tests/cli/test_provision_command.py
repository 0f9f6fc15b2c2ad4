"""`toolgate search` and `toolgate provision`: what is found, what it would run, what is added once that is decided."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from cli.test_cli import BARE, CLOCK, SERVERS, here, toolgate

__all__ = ["here"]

THINK = "think a problem through step by step in a sequence of thoughts"


@pytest.fixture
def offline(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No registry is asked, no npm and no uv is there, and npx starts the bundled clock, whatever it is given."""
    programs = here / "bin"
    programs.mkdir()
    command = shlex.join([*BARE, str(SERVERS["clock"])])
    (programs / "npx").write_text(f'#!/bin/sh\necho "$@" > {shlex.quote(str(here / "ran"))}\nexec {command}\n')
    (programs / "npx").chmod(0o755)
    for name in ("sh", "env"):
        (programs / name).symlink_to(f"/bin/{name}" if os.path.exists(f"/bin/{name}") else f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(programs))
    configure(here)
    return here


def configure(here: Path, **more: object) -> None:
    (here / "toolgate.json").write_text(json.dumps({"provision": {"registries": []}, "mcpServers": {}, **more}))


def added(here: Path) -> dict[str, object]:
    files = list(here.rglob("servers-*.json"))
    return json.loads(files[0].read_text())["mcpServers"] if files else {}


def test_servers_that_could_be_added_are_found_with_what_they_would_run(offline: Path) -> None:
    ended = toolgate("search", "convert a word document to pdf")
    assert toolgate("search", *["convert", "a", "word", "document", "to", "pdf"]).out == ended.out
    assert (ended.code, ended.err) == (0, "")
    first, second, *_ = ended.out.splitlines()
    assert "could be added" in first and second.split()[0] == "markitdown-mcp"
    assert "uvx markitdown-mcp==" in second


def test_tools_of_the_servers_are_found_first(offline: Path) -> None:
    configure(offline, mcpServers={"clock": CLOCK})
    ended = toolgate("search", "convert a time to another time zone", "--json")
    found = json.loads(ended.out)
    assert ended.code == 0 and found["tools"][0]["server"] == "clock" and found["servers"]
    assert "clock__" in toolgate("search", "convert a time to another time zone").out


@pytest.mark.parametrize("command", ["search", "provision"])
def test_what_fits_nothing_ends_with_a_status_of_its_own(offline: Path, command: str) -> None:
    ended = toolgate(command, "peel these potatoes")
    assert ended.code == 1 and "Nothing fits" in ended.out


def test_each_gate_and_the_exact_command_are_shown_and_nothing_is_added(offline: Path) -> None:
    ended = toolgate("provision", THINK, "--dry-run")
    assert ended.code == 0
    assert "would run   npx -y @modelcontextprotocol/server-sequential-thinking@" in ended.out
    assert ended.out.count("passed  ") == 10 and "FAILED" not in ended.out
    assert json.loads(toolgate("provision", THINK, "--json").out)["matches"][0]["autoProvisionable"] is True
    assert not added(offline) and not (offline / "ran").exists()


def test_without_a_person_to_ask_nothing_is_added(offline: Path) -> None:
    ended = toolgate("provision", THINK)
    assert ended.code == 1 and "--yes" in ended.err and not added(offline)


def test_what_passes_every_gate_is_added_started_and_kept_and_noted(offline: Path) -> None:
    ended = toolgate("provision", THINK, "--yes")
    assert ended.code == 0, ended.err
    assert "Its file was not kept, so npx fetches it at each start" in ended.err  # npm is not there
    assert "added sequential-thinking" in ended.out and "sequential-thinking__" in ended.out
    assert (offline / "ran").read_text().startswith("-y @modelcontextprotocol/server-sequential-thinking@")
    (server,) = added(offline).values()
    assert isinstance(server, dict) and server["pinning"] == "quarantine"
    audited = [json.loads(line) for file in offline.rglob("audit.jsonl") for line in file.read_text().splitlines()]
    assert "servers.add" in [line["event"] for line in audited]
    assert "sequential-thinking" in toolgate("list").out


def test_what_does_not_pass_is_not_added_without_a_person(offline: Path) -> None:
    ended = toolgate("provision", "search the web with brave", "--yes", "--env", "BRAVE_API_KEY=k")
    assert ended.code == 1 and "trusted" in ended.err and not added(offline)


def test_what_a_server_needs_is_asked_for_by_name(offline: Path) -> None:
    ended = toolgate("provision", "I need to interact with GitHub issues", "--yes")
    assert ended.code == 1 and "GITHUB_PERSONAL_ACCESS_TOKEN" in ended.err and "secrets set" in ended.err
    assert not added(offline)
    more = ("--yes", "--env", "GITHUB_PERSONAL_ACCESS_TOKEN=ghp_of-ann")
    assert toolgate("provision", "I need to interact with GitHub issues", *more).code == 0
    assert "ghp_of-ann" in json.dumps(added(offline)) and "ghp_of-ann" not in toolgate("list").out


@pytest.mark.parametrize("wrong", ["NAME", "=value"])
def test_a_variable_is_a_name_and_a_value(offline: Path, wrong: str) -> None:
    assert toolgate("provision", THINK, "--env", wrong).code == 2


def test_another_match_is_chosen_by_its_name(offline: Path) -> None:
    ended = toolgate("provision", "find a place on a map", "--dry-run")
    other = next(line.split()[1] for line in ended.out.splitlines() if line.startswith("also: "))
    chosen = toolgate("provision", "find a place on a map", "--dry-run", "--server", other)
    assert f"{other}: " in chosen.out
    assert toolgate("provision", "find a place on a map", "--dry-run", "--server", "nope").code == 2


def test_a_tool_that_can_do_it_is_named_instead(offline: Path) -> None:
    configure(offline, mcpServers={"clock": CLOCK})
    ended = toolgate("provision", "convert a time to another time zone", "--yes")
    assert ended.code == 0 and "A tool of your servers can do that" in ended.out and not added(offline)
    assert "would run" in toolgate("provision", "convert a time to another time zone", "--anyway", "--dry-run").out
