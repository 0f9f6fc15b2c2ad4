"""`toolgate keys`, whose keys are shown once and kept as hashes; and what `toolgate serve` refuses to serve."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from cli.test_cli import CLOCK, Ended, here, toolgate
from typer.testing import CliRunner

from toolgate.cli import app
from toolgate.state import audit
from toolgate.state.base import NotKept

__all__ = ["here"]

KEY = "a-key-of-at-least-24-characters"


def configure(here: Path, **more: Any) -> None:
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": {"clock": CLOCK}, "state": "state", **more}))


CLIENTS: dict[str, Any] = {"clients": [{"id": "ci", "mcp_server_access": "all"}, {"id": "off", "enabled": False}]}


def made(*arguments: str) -> tuple[str, str]:
    """The id and the key."""
    ended = toolgate("keys", *arguments)
    assert ended.code == 0, ended.err
    key = ended.out.strip()
    found = re.fullmatch(r"tg_([0-9a-f]{10})_[A-Za-z0-9_-]{43}", key)
    assert found and key not in ended.err
    return found[1], key


def test_a_key_is_printed_alone_and_once(here: Path) -> None:
    configure(here, **CLIENTS)
    id, key = made("create", "ci", "--expires", "90d")
    listed = toolgate("keys", "list")
    assert id in listed.out and "ci" in listed.out and "valid until" in listed.out
    kept = b"".join(path.read_bytes() for path in (here / "state").iterdir() if path.is_file())
    assert key.encode() not in kept and key[14:].encode() not in kept
    assert hashlib.sha256(key.encode()).hexdigest().encode() in kept


def test_keys_are_revoked_and_rotated(here: Path) -> None:
    configure(here, **CLIENTS)
    first, _ = made("create", "ci")
    second, _ = made("rotate", first, "--grace", "2h")
    listed = toolgate("keys", "list").out
    assert re.search(rf"{first} .*valid until .*replaced by {second}", listed)
    third, _ = made("rotate", second, "--grace", "0s")
    assert second not in toolgate("keys", "list").out.splitlines()[-1]
    assert toolgate("keys", "revoke", third).code == 0
    assert third not in toolgate("keys", "list").out
    assert toolgate("keys", "revoke", third).code == 1
    assert toolgate("keys", "rotate", third).code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "nobody"), "Client not found: nobody"),
        (("create", "ci", "--expires", "soon"), "--expires soon is not a duration"),
        (("rotate", "x", "--grace", "1 hour"), "--grace 1 hour is not a duration"),
    ],
)
def test_what_is_asked_wrongly_says_so(here: Path, arguments: tuple[str, ...], says: str) -> None:
    configure(here, **CLIENTS)
    ended = toolgate("keys", *arguments)
    assert ended.code == 2 and says in ended.err and not ended.out


def test_a_disabled_client_is_warned_of(here: Path) -> None:
    configure(here, **CLIENTS)
    ended = toolgate("keys", "create", "off")
    assert ended.code == 0 and "disabled" in ended.err


def test_without_clients_there_is_nobody_to_make_a_key_for(here: Path) -> None:
    configure(here)
    assert "No clients are configured" in toolgate("keys", "create", "ci").err


@pytest.mark.parametrize(("ending", "empty", "begins"), [("json", "{}", "{"), ("yaml", "", ""), ("toml", "", "")])
def test_the_entry_that_it_shows_can_be_put_into_the_file(here: Path, ending: str, empty: str, begins: str) -> None:
    file = here / f"toolgate.{ending}"
    file.write_text(empty)
    shown = textwrap.dedent(toolgate("keys", "create", "ci", "--config", str(file)).err.partition("Add one:\n")[2])
    file.write_text(f"{begins}{shown}{'}' if begins else ''}")
    assert toolgate("keys", "create", "ci", "--config", str(file)).code == 0


def test_a_store_that_cannot_be_used_makes_no_key(here: Path) -> None:
    configure(here, **CLIENTS)
    (here / "state").write_text("a file, no folder")
    ended = toolgate("keys", "create", "ci")
    assert (ended.code, ended.out) == (1, "") and "Cannot store the keys" in ended.err


def test_a_key_whose_line_of_the_audit_cannot_be_written_is_shown_all_the_same(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(here, **CLIENTS)

    def refused(*_: Any) -> Any:
        raise NotKept("no space left")

    monkeypatch.setattr(audit, "opened", refused)
    id, _ = made("create", "ci")
    assert "no space left" in toolgate("keys", "rotate", id).err
    made("rotate", made("create", "ci")[0])


def test_a_hash_may_stand_in_the_configuration(here: Path) -> None:
    ended = toolgate("keys", "hash", input=KEY + "\n")
    assert ended.out.strip() == "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()
    assert KEY not in ended.out + ended.err
    assert toolgate("keys", "hash", input="short\n").code == 2


# What is not served.


def served(here: Path, *arguments: str, **more: Any) -> Ended:
    configure(here, **more)
    return toolgate("serve", *arguments)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"auth": {"issuer": "https://idp.example"}}, "auth.audience"),
        ({"auth": {"audience": "https://gate.example"}}, "has no `issuer`"),
        ({"auth": {"issuer": "http://idp.example", "audience": "https://g.example", "client": "ci"}}, "https://"),
        ({"auth": {"issuer": "https://idp.example", "audience": "https://g.example"}}, "admits no client"),
        (
            {"auth": {"issuer": "https://idp.example", "audience": "https://g.example", "client": "x"}},
            "client not found: x",
        ),
        ({"clients": [{"id": "a", "claims": {"sub": "a"}}]}, "no `auth.issuer`"),
        ({"clients": [{"id": "a", "key": KEY}, {"id": "b", "key": KEY}]}, "a and b have the same key"),
    ],
)
def test_what_would_not_be_clear_is_not_served(here: Path, more: dict[str, Any], says: str) -> None:
    ended = served(here, **({"clients": [{"id": "ci", "key": KEY}]} | more))
    assert ended.code == 2 and says in ended.err


def test_the_refusal_to_listen_says_how_to_allow_it(here: Path) -> None:
    ended = served(here, "--host", "0.0.0.0")
    assert ended.code == 2
    assert all(
        word in ended.err for word in ("Refused to listen on 0.0.0.0", "`clients`", "`auth`", "--open-to-network")
    )


def test_what_is_done_with_keys_is_noted_in_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLGATE_CONFIG", "toolgate.toml")
    (tmp_path / "toolgate.toml").write_text('state = "kept"\n[[clients]]\nid = "ci"\nmcp_server_access = "all"\n')
    made = CliRunner().invoke(app, ["keys", "create", "ci"])
    id = json.loads((tmp_path / "kept" / "audit.jsonl").read_bytes())["key"]
    assert CliRunner().invoke(app, ["keys", "revoke", id]).exit_code == 0
    create, revoke = map(json.loads, (tmp_path / "kept" / "audit.jsonl").read_bytes().splitlines())
    assert (create["event"], create["client"], revoke["event"], revoke["key"]) == (
        "keys.create",
        "ci",
        "keys.revoke",
        id,
    )
    assert create["who"].startswith("cli:")
    assert made.stdout.strip().encode() not in (tmp_path / "kept" / "audit.jsonl").read_bytes()
