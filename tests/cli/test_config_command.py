"""`toolgate config check` and `toolgate config show`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app
from toolgate.config import Config, load, read

SECRETS: dict[str, Any] = {
    "mcpServers": {
        "near": {
            "command": "run",
            "args": [
                "--api-key", "s3cret", "--token=s3cret", "TOKEN=s3cret", "https://me:s3cret@h/p?key=s3cret#s3cret",
                "--header", "Authorization: Bearer s3cret", "ghp_s3cret0123456789abcdef", "${PLAIN}", "--region", "eu",
                "postgresql://me:s3cret@db/name", "--url=http://me:s3cret@h", "@scope/name@1.2.3", "/a/b",
                "xs3cretx0123456789abcdefghij",
            ],
            "env": {"KEY": "s3cret"},
            "tools": {"a": {"parameters": {"p": {"fixed": "s3cret"}}}},
            "lifecycle": {"idleTimeoutMs": 1500},
        },
        "far": {"url": "https://me:s3cret@h/sk-s3cret0123456789abcd/mcp?key=s3cret", "headers": {"A": "s3cret"}},
        "lacks": {"url": "https://${HOST}/mcp"},
        "echo": {"type": "component", "url": "http://127.0.0.1:{port}/", "command": "serve"},
    },
    "bundles": {"daily": ["a__*"]},
    "limits": {"truncate": {"head": 3}},
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PLAIN", "s3cret")
    monkeypatch.delenv("HOST", raising=False)
    return tmp_path


def toolgate(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["config", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_check_says_the_dialect_and_the_servers(here: Path) -> None:
    (here / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://h/p?k=v"}}}))
    ended = toolgate("check", ".mcp.json")
    assert ended.exit_code == 0
    assert "Claude Code (.mcp.json)" in ended.stdout
    assert "a: stdio x" in ended.stdout and "b: http http://h/p?***" in ended.stdout


def test_check_ends_with_1_where_a_server_needs_configuration(here: Path) -> None:
    (here / "toolgate.toml").write_text('[mcpServers.a]\ncommand = "x"\nargs = ["${HOST}"]')
    ended = toolgate("check")
    assert ended.exit_code == 1
    assert "needs configuration: HOST is not set" in ended.stdout


def test_check_says_everything_that_is_wrong_with_its_mend(here: Path) -> None:
    (here / "toolgate.toml").write_text('[http]\nprot = 1\n[mcpServers.a]\ncomand = "x"')
    ended = toolgate("check")
    assert ended.exit_code == 1
    assert "http.prot: unknown key: did you mean `port`?" in ended.stderr and "did you mean `command`?" in ended.stderr


def test_check_warns_of_what_is_not_understood_and_goes_on(here: Path) -> None:
    (here / "mcp.json").write_text('{"servers": {"a": {"type": "stdio", "command": "x", "odd": 1}}}')
    ended = toolgate("check", "mcp.json")
    assert (ended.exit_code, "servers.a.odd: is unknown and ignored" in ended.stderr) == (0, True)


def test_check_can_be_told_the_dialect(here: Path) -> None:
    (here / "a.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    assert "children config" in toolgate("check", "a.json", "--dialect", "children").stdout
    unknown = toolgate("check", "a.json", "--dialect", "latin")
    assert unknown.exit_code == 2 and "children" in unknown.stderr


@pytest.mark.parametrize("arguments", [["check"], ["show"], ["check", "nowhere.toml"], ["show", "nowhere.toml"]])
def test_a_file_that_is_not_there_is_an_error(here: Path, arguments: list[str]) -> None:
    assert toolgate(*arguments).exit_code != 0


def test_show_has_no_secret_in_it(here: Path) -> None:
    (here / "toolgate.json").write_text(json.dumps(SECRETS))
    for more in ([], ["--json"]):
        ended = toolgate("show", *more)
        assert ended.exit_code == 0
        assert "s3cret" not in ended.stdout
        for kept in ("eu", "@scope/name@1.2.3", "/a/b", "KEY", "127.0.0.1:{port}"):
            assert kept in ended.stdout


def test_what_show_prints_is_a_native_file(here: Path) -> None:
    path = here / "toolgate.json"
    path.write_text(json.dumps(SECRETS))
    shown = toolgate("show", "--json").stdout
    assert tomllib.loads(toolgate("show").stdout) == json.loads(shown)
    again = read(shown, file="toolgate.json", environ={}, format="json")
    written = load(path, {"PLAIN": "s3cret"})
    for field in Config.__struct_fields__:
        if field not in ("servers", "source", "known"):  # what is masked is no secret
            assert getattr(again, field) == getattr(written, field), field
    near, far, lacks, echo = again.servers
    assert (near.command, near.idle, near.env, far.headers) == ("run", 1.5, {"KEY": "***"}, {"A": "***"})
    assert (lacks.type, echo.url, echo.command) == ("http", "http://127.0.0.1:{port}/", "serve")


ACCESS = """
[mcpServers.a]
url = "https://a.example/mcp"
auth = { client_id = "me", client_secret = "s3cret", scopes = ["x"] }
rate = "5/10s"
pinning = "quarantine"
forward_headers = ["x-request-id"]
by_operator = false

[[clients]]
id = "ci"
key = "s3cret-s3cret-s3cret-s3cret"
limits = { rate = "60/m", concurrency = 4 }
mcp_server_access = ["a"]
mcp_permissions = { global = "ask", tools = { "a__x" = "off" }, read_only = "ask" }

[[clients]]
id = "staff"
claims = { groups = "staff" }
mcp_permissions = { servers = { a = "allow" }, read_only = true }

[auth]
issuer = "https://login.example"
audience = "https://gate.example"
scopes = ["mcp"]
step_up = { "a__x" = "write" }

[limits]
argument_limit = "1MiB"
rates = { principal = "1000/7d", tool = "90/90s" }
concurrency = { server = 2 }

[approvals]
by = ["operator"]

[guard]
allow_hosts = ["10.0.0.0/8"]

[audit]
on_failure = "block"
"""


def test_who_may_do_what_is_shown_and_can_be_read_again_but_for_keys(here: Path) -> None:
    (here / "toolgate.toml").write_text(ACCESS)
    shown = toolgate("show").stdout
    assert "s3cret" not in shown
    written, again = load(here / "toolgate.toml", {}), read(shown, file="toolgate.toml", environ={}, format="toml")
    for field in ("auth", "limits", "approvals", "guard", "audit"):
        assert getattr(again, field) == getattr(written, field), field
    assert [msgspec.structs.replace(each, key="") for each in again.clients] == [
        msgspec.structs.replace(each, key="") for each in written.clients
    ]
    assert again.clients[0].key == "sha256:" + "0" * 64 and not again.clients[1].key
    server, before = again.servers[0], written.servers[0]
    assert server.auth and server.auth.client_secret == "***"
    assert msgspec.structs.replace(server, auth=before.auth) == before


def test_check_says_what_each_client_may_reach_and_what_no_gateway_would_serve(here: Path) -> None:
    (here / "toolgate.toml").write_text(ACCESS)
    sound = toolgate("check")
    assert sound.exit_code == 0
    assert "client ci: a, by the key in this file" in sound.stdout
    assert "client staff: servers that its permissions allow, by tokens" in sound.stdout
    (here / "toolgate.toml").write_text(ACCESS.replace('audience = "https://gate.example"', 'client = "gusts"'))
    ended = toolgate("check")
    assert ended.exit_code == 1
    assert "auth.audience: is missing" in ended.stderr
    assert "auth.client: client not found: gusts; available: ci, staff" in ended.stderr


EVERYBODY = """
[mcpServers.a]
command = "x"

[[clients]]
id = "ops"
key = "ops-has-a-key-of-24-characters"
mcp_server_access = "all"
admin = true

[auth]
issuer = "https://issuer.example"
audience = "https://gate.example"
client = "ops"
"""


def test_check_says_that_everybody_with_a_token_is_an_administrator(here: Path) -> None:
    (here / "toolgate.toml").write_text(EVERYBODY)
    told = toolgate("check")
    assert "ops: all servers, as an administrator, by the key in this file or any token of the issuer" in told.stdout
    assert "auth.client: ops is an administrator" in told.stderr
    claims = 'id = "staff"\nclaims = { groups = "staff" }\n\n[[clients]]\nid = "ops"'
    (here / "toolgate.toml").write_text(EVERYBODY.replace('id = "ops"', claims).replace("admin = true", ""))
    told = toolgate("check")
    assert "client staff: no servers, by tokens with its claims or keys" in told.stdout
    assert "ops: all servers, by the key in this file or any token of the issuer with no client's claims" in told.stdout
    assert "administrator" not in told.stdout + told.stderr


def test_what_has_no_secret_is_shown_as_it_is(here: Path) -> None:
    path = here / "toolgate.json"
    overlay = {"*": {"hidden": True}, "a": {"name": "b", "parameters": {"q": {"default": None, "hidden": True}}}}
    servers = {"a": {"command": "x", "args": ["--flag", "y"], "cwd": "/", "roots": ["/a b"], "tools": overlay}}
    path.write_text(json.dumps({"mcpServers": servers, "surface": "all", "state": "/s"}))
    config = load(path, {})
    shown = toolgate("show", str(path), "--json").stdout
    assert read(shown, file=config.source, environ={}, format="json") == config
