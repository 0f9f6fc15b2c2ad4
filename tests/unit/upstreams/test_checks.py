"""What can be said of servers without starting them."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from toolgate.config import Server
from toolgate.upstreams import checks
from toolgate.upstreams.checks import Check


def server(**given: Any) -> Server:
    return Server(id="s", name="s", **{"type": "stdio", "command": "/bin/sh", **given})


def found(**given: Any) -> list[tuple[str, str, str]]:
    return [
        (each.check, each.level, each.says) for each in checks.of_server(server(**given), {"PATH": "/usr/bin:/bin"})
    ]


def token(until: float) -> str:
    parts = [{"alg": "none"}, {"exp": until}]
    written = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*written, "signature"))


def test_a_server_that_is_well_says_nothing(tmp_path: Path) -> None:
    assert found() == [] == found(command="sh", cwd=str(tmp_path), env={"A": "b"})
    assert found(type="http", command="", url="https://h/mcp") == []


@pytest.mark.parametrize(("command", "fix"), [("npx", "Node.js"), ("uvx", "install uv"), ("strange", "whole path")])
def test_a_program_that_is_not_there_is_said_with_what_to_install(command: str, fix: str) -> None:
    [check] = checks.of_server(server(command=command, args=("x@1.0.0", "x==1.0")), {"PATH": "/nowhere"})
    assert (check.check, check.level) == ("commands", "problem") and fix in check.fix


def test_a_folder_that_is_not_there_is_said() -> None:
    assert ("commands", "problem", "its `cwd` is not a folder") in found(cwd="/not/there")


def test_a_relative_program_is_looked_for_in_its_folder(tmp_path: Path) -> None:
    program = tmp_path / "serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert found(command="./serve", cwd=str(tmp_path)) == []
    assert found(command="./other", cwd=str(tmp_path))[0][1] == "problem"


@pytest.mark.parametrize(("command", "args", "package"), [
    ("npx", ("-y", "@scope/server"), "@scope/server"), ("npx", ("-p", "pkg", "program"), "pkg"),
    ("uvx", ("mcp-server-time",), "mcp-server-time"), ("uvx", ("--with", "mcp<2", "mcp-server-x"), "mcp-server-x"),
    ("uvx", ("--from", "thing", "program"), "thing"), ("npx", ("-y", "pkg@latest"), "pkg@latest"),
])  # fmt: skip
def test_a_package_without_an_exact_version_is_warned_of(command: str, args: tuple[str, ...], package: str) -> None:
    [check] = [
        each for each in checks.of_server(server(command=command, args=args), {"PATH": ""}) if each.check == "versions"
    ]
    assert check.level == "warning" and package in check.says


@pytest.mark.parametrize(("command", "args"), [
    ("npx", ("-y", "@scope/server@1.2.3")), ("uvx", ("mcp-server-time==2026.1.2",)), ("uvx", ("thing@1.0",)),
    ("uvx", ("--from", "git+https://h/r", "x")), ("node", ("server.js",)), ("npx", ()),
])  # fmt: skip
def test_an_exact_version_is_not(command: str, args: tuple[str, ...]) -> None:
    assert not [each for each in checks.of_server(server(command=command, args=args), {}) if each.check == "versions"]


def test_an_expired_token_is_said_and_not_shown() -> None:
    over, good = token(1_000_000_000), token(time.time() + 3600)
    [check] = found(type="http", command="", url="https://h", headers={"Authorization": f"Bearer {over}", "X": good})
    assert check == ("secrets", "problem", "the token in Authorization expired on 2001-09-09")
    assert found(env={"TOKEN": over})[0][2].startswith("the token in TOKEN expired")


@pytest.mark.parametrize("text", [
    "", "abc", "a.b.c", "eyJ.eyJ.x", "eyJ.bnVsbA.x", "eyJ.eyJleHAiOiAieCJ9.x", "eyJ.eyJleHAiOiAxZTQwMH0.x",
    "eyJ" + "x" * 99999,
])  # fmt: skip
def test_what_is_no_token_has_not_expired(text: str) -> None:
    assert checks.expired(text) == ""


def test_variables_that_are_empty_are_warned_of() -> None:
    assert found(env={"TOKEN": "", "A": "b"}) == [
        ("configuration", "warning", "these variables are set but empty: TOKEN")
    ]


def test_what_is_missing_is_said_by_its_kind() -> None:
    assert found(problem="p", missing=("secret:x",)) == [("secrets", "problem", "p")]
    assert found(problem="p", missing=("X",)) == [("configuration", "problem", "p")]


def test_names_that_are_shortened_listed_twice_or_shared_are_said() -> None:
    long = "t" * 70
    said = list(checks.of_names({"a": ["x", long, "x"], "b": ["x"]}))
    assert [(each.level, each.about) for each in said] == [("warning", "a"), ("warning", "a"), ("ok", "")]
    assert "64 characters" in said[0].says and "more than once: x" in said[1].says and "x (a, b)" in said[2].says
    assert list(checks.of_names({"a": ["x"], "b": ["y"]})) == []
    assert isinstance(said[0], Check)
