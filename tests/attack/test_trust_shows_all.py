"""Who is asked to trust a configuration sees all that it allows or turns off, and what makes programs run others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from toolgate.cli import trusting, widening
from toolgate.config import Config, Server
from toolgate.config.access import KnownClient

KEY = "sha256:" + "a" * 64
FILE: dict[str, Any] = {
    "add_servers": "allow",
    "http": {"allowed_origins": ["https://evil.example"], "allowed_hosts": ["evil.example"]},
    "guard": {"allow_hosts": ["0.0.0.0/0"], "scrub": "off", "pinning": "off", "descriptions": "off"},
    "audit": {"enabled": False},
    "approvals": {"by": ["client"]},
    "validate_arguments": False,
    "clients": [{"id": "ops", "admin": True, "key": KEY, "mcp_server_access": "all"}],
    "mcpServers": {
        "time": {
            "command": "python3",
            "args": ["-m", "time_server"],
            "new_privileges": True,
            "env": {
                "PYTHONPATH": "modsABCDEFGHIJKLMN0123456789",
                "NODE_OPTIONS": "--require=./sk-abcdefghijklmnopqrstuvwx",
                "git_ssh_command": "tokenABCDEFGHIJKLMN0123456789",
                "API_KEY": "very-secret-value",
            },
        }
    },
}


def shown(tmp_path: Path, **changed: Any) -> str:
    path = tmp_path / "toolgate.json"
    path.write_text(json.dumps(FILE | changed))
    return "\n".join(trusting.described(path)[1])


def leaves(struct: type[msgspec.Struct], known: set[str], path: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        name = f"{path}{field.name}"
        annotated = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        inner = {"servers": Server, "clients": KnownClient}.get(name, annotated)
        is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        if is_struct and name not in known:
            yield from leaves(inner, known, f"{name}.")
        else:
            yield name


def test_each_field_of_the_configuration_is_shown_or_known_to_be_harmless() -> None:
    tables = [
        set(widening.SETTINGS),
        {f"servers.{each}" for each in widening.OF_A_SERVER},
        set(widening.HARMLESS),
        set(widening.TOLD),
    ]
    everything = set(leaves(Config, widening.HARMLESS.keys() | widening.TOLD))
    assert everything - set().union(*tables) == set(), "say what they allow, or why they are harmless"
    assert set().union(*tables) - everything == set(), "no longer there"
    assert sum(map(len, tables)) == len(everything), "in two tables"
    assert all(len(why) > 10 for why in widening.HARMLESS.values())


@pytest.mark.parametrize(
    "said",
    [
        "let in the client ops by a key that stands in this file, as an administrator",
        "add_servers = allow",
        "https://evil.example",
        "other host names: evil.example",
        "0.0.0.0/0",
        "take secrets out of what servers say: off",
        "watch for tools that change: off",
        "suspicious descriptions: off",
        "record calls in the audit: no",
        "approved by: client",
        "check the arguments of calls: no",
        "let time gain privileges",
        "PYTHONPATH=modsABCDEFGHIJKLMN0123456789",
        "NODE_OPTIONS=--require=./sk-abcdefghijklmnopqrstuvwx",
        "git_ssh_command=tokenABCDEFGHIJKLMN0123456789",
        "API_KEY=***",
    ],
)
def test_what_widens_is_shown(said: str, tmp_path: Path) -> None:
    assert said in shown(tmp_path)


def test_a_plain_file_says_nothing_of_it_and_what_is_stricter_is_not_shown(tmp_path: Path) -> None:
    stricter = {
        "guard": {"pinning": "quarantine", "scrub": "patterns"},
        "add_servers": "off",
        "approvals": {"by": ["operator"]},
    }
    plain = {"http": {}, "audit": {}, "validate_arguments": True, "mcpServers": {"t": {"command": "t"}}}
    clients = [{"id": "me", "key": KEY, "mcp_server_access": "none", "enabled": False}]
    assert shown(tmp_path, **stricter, **plain, clients=clients) == "run t: t"


def test_a_client_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    client = {"id": "a\nrun nothing\u202e", "key": KEY, "mcp_server_access": "all"}
    try:
        text = shown(tmp_path, clients=[client])
    except Exception as error:  # it may be refused as well
        assert "id" in str(error)
        return
    assert "\nrun nothing" not in text and "\u202e" not in text
