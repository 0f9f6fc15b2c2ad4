"""`${secret:NAME}`: looked for in each place in turn; one that is nowhere fails its own server only."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import types
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolgate.config import Config, ConfigError, read, render, secrets_of, with_own
from toolgate.config import secrets as config_secrets

VALUE = "canary-9a8b7c6d"
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


def config(folder: Path, text: str = "${secret:github}", environ: dict[str, str] | None = None, **more: Any) -> Config:
    server = {"command": "run", "env": {"TOKEN": text}}
    tree = {"state": str(folder), "mcpServers": {"a": server, "b": {"command": "run"}}, **more}
    return read(json.dumps(tree), file=str(folder / "toolgate.json"), environ=environ or {}, format="json")


def token(found: Config) -> str:
    assert not found.servers[0].problem, found.servers[0].problem
    return found.servers[0].env["TOKEN"]


def keep(folder: Path, mode: int = 0o600, **secrets: str) -> Path:
    path = folder / "secrets.json"
    path.write_text(json.dumps(secrets))
    path.chmod(mode)
    return path


@pytest.mark.parametrize("variable", ["TOOLGATE_SECRET_GITHUB", "github"])
def test_one_of_the_environment(tmp_path: Path, variable: str) -> None:
    assert token(config(tmp_path, environ={variable: VALUE})) == VALUE


def test_the_name_of_a_variable_is_made_of_any_name() -> None:
    assert config_secrets.variables_of("team/github-1#token") == ["TOOLGATE_SECRET_TEAM_GITHUB_1_TOKEN"]


def test_one_of_the_file(tmp_path: Path) -> None:
    keep(tmp_path, github=VALUE)
    assert token(config(tmp_path, "Bearer ${secret:github}")) == f"Bearer {VALUE}"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused_with_the_mend(tmp_path: Path, mode: int) -> None:
    path = keep(tmp_path, mode, github=VALUE)
    problem = config(tmp_path).servers[0].problem
    assert f"chmod 600 {path}" in problem and VALUE not in problem


def test_a_file_that_is_broken_is_named_and_not_quoted(tmp_path: Path) -> None:
    path = keep(tmp_path)
    path.write_text('{"github": "' + VALUE)
    problem = config(tmp_path).servers[0].problem
    assert str(path) in problem and VALUE not in problem


def test_one_of_systemd(tmp_path: Path) -> None:
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "github").write_text(VALUE + "\n")
    assert token(config(tmp_path, environ={"CREDENTIALS_DIRECTORY": str(tmp_path / "creds")})) == VALUE


def keyring(get: Any) -> Any:
    class KeyringError(Exception): ...

    class NoKeyringError(KeyringError): ...

    module: Any = types.ModuleType("keyring")
    module.errors = types.SimpleNamespace(KeyringError=KeyringError, NoKeyringError=NoKeyringError)
    module.get_password = lambda service, name: get(module.errors, service, name)
    return module


def test_one_of_the_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {("toolgate", "github"): VALUE}
    monkeypatch.setitem(sys.modules, "keyring", keyring(lambda _, *at: known.get(at)))
    assert token(config(tmp_path)) == VALUE


def test_a_keyring_that_is_locked_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(errors: Any, *_: str) -> str:
        raise errors.KeyringError(VALUE)

    monkeypatch.setitem(sys.modules, "keyring", keyring(locked))
    problem = config(tmp_path).servers[0].problem
    assert "the keyring cannot be read" in problem and VALUE not in problem


def test_a_machine_without_a_keyring_has_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(errors: Any, *_: str) -> str:
        raise errors.NoKeyringError()

    monkeypatch.setitem(sys.modules, "keyring", keyring(none))
    assert "no keyring on this machine" in config(tmp_path).servers[0].problem


def test_the_order_of_the_places_holds(tmp_path: Path) -> None:
    keep(tmp_path, github="from-the-file")
    environ = {"TOOLGATE_SECRET_GITHUB": "from-the-environment"}
    assert token(config(tmp_path, environ=environ)) == "from-the-environment"
    assert token(config(tmp_path, environ=environ, secrets={"backends": ["file", "env"]})) == "from-the-file"


def test_one_that_is_nowhere_fails_its_own_server_and_says_where_it_was_looked_for(tmp_path: Path) -> None:
    a, b = config(tmp_path, "${secret:github} ${MISSING}").servers
    assert a.missing == ("secret:github", "MISSING")
    for place in ("TOOLGATE_SECRET_GITHUB", str(tmp_path / "secrets.json"), "$CREDENTIALS_DIRECTORY", "keyring"):
        assert place in a.problem
    assert "toolgate secrets set github" in a.problem and "MISSING is not set" in a.problem
    assert not b.problem


def test_a_client_whose_key_is_nowhere_is_the_whole_files_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"clients\[0\].key: secret `ci` not found"):
        config(tmp_path, clients=[{"id": "ci", "key": "${secret:ci}"}])


@pytest.mark.parametrize("name", ["", "../x", "a b", "/a", "a/", "a//b", ".a", "-x"])
def test_a_name_that_none_can_have_is_a_fault_of_the_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"TOKEN|env"):
        config(tmp_path, f"${{secret:{name}}}")


def test_what_a_secret_holds_is_not_read_as_a_pattern(tmp_path: Path) -> None:
    keep(tmp_path, github="${HOME}${secret:other}")
    assert token(config(tmp_path, environ={"HOME": "/home/ann"})) == "${HOME}${secret:other}"


def test_a_server_that_was_added_has_the_same_places(tmp_path: Path) -> None:
    keep(tmp_path, github=VALUE)
    found = with_own(config(tmp_path), {"c": {"command": "run", "env": {"T": "${secret:github}"}}}, {})
    assert found.servers[2].env["T"] == VALUE and VALUE in found.known.values


def test_what_is_shown_of_it_is_masked(tmp_path: Path) -> None:
    vault = {"address": "http://127.0.0.1:1", "token": VALUE, "secret_id": VALUE}
    found = config(tmp_path, "x", secrets={"vault": vault})
    assert VALUE not in json.dumps(render.config(found)) and VALUE not in repr(found)


# Vault.


class Vault(ThreadingHTTPServer):
    """A double of KV version 2 with AppRole. `kept` by path; what it was asked stands in `asked`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept: dict[str, Json] = {"secret/data/toolgate/github": {"value": VALUE, "other": "another-value"}}
        self.tokens = {"root-token-of-vault"}
        self.logins = 0
        self.asked: list[tuple[str, str]] = []
        self.status = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, token: str, body: bytes) -> tuple[int, Any]:
        if self.status:
            return self.status, {"errors": ["sealed"]}
        if path == "/v1/auth/approle/login":
            if json.loads(body) != {"role_id": "role", "secret_id": "id-of-the-role"}:
                return 400, {"errors": ["invalid role or secret ID"]}
            self.logins += 1
            self.tokens.add(f"token-of-login-{self.logins}")
            return 200, {"auth": {"client_token": f"token-of-login-{self.logins}"}}
        if token not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        kept = self.kept.get(path.removeprefix("/v1/"))
        return (200, {"data": {"data": kept, "metadata": {"version": 1}}}) if kept else (404, {"errors": []})


class _Handler(BaseHTTPRequestHandler):
    server: Vault

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.command, self.path))
        status, said = self.server.answer(self.path, self.headers.get("x-vault-token", ""), body)
        sent = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Generator[Vault]:
    monkeypatch.setattr(config_secrets, "_logins", {})
    with _running(Vault()) as found:
        yield found


@contextmanager
def _running(vault: Vault) -> Generator[Vault]:
    thread = threading.Thread(target=vault.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield vault
    finally:
        vault.shutdown()
        thread.join()
        vault.server_close()


def of_vault(folder: Path, text: str, **settings: str) -> Config:
    return config(folder, text, environ={"TOKEN_OF_VAULT": "root-token-of-vault"}, secrets={"vault": settings})


@pytest.mark.parametrize(("name", "value"), [("github", VALUE), ("github#other", "another-value")])
def test_one_of_vault(tmp_path: Path, vault: Vault, name: str, value: str) -> None:
    found = of_vault(tmp_path, f"${{secret:{name}}}", address=vault.address, token="${TOKEN_OF_VAULT}")
    assert token(found) == value
    assert {value, "root-token-of-vault"} <= found.known.values


def test_the_fields_of_a_secret_are_fetched_once(tmp_path: Path, vault: Vault) -> None:
    of_vault(tmp_path, "${secret:github} ${secret:github#other}", address=vault.address, token="${TOKEN_OF_VAULT}")
    assert vault.asked == [("GET", "/v1/secret/data/toolgate/github")]


def test_its_address_and_token_may_stand_in_its_own_variables(tmp_path: Path, vault: Vault) -> None:
    environ = {"VAULT_ADDR": vault.address, "VAULT_TOKEN": "root-token-of-vault"}
    assert token(config(tmp_path, environ=environ, secrets={"vault": {}})) == VALUE


def test_a_login_by_approle_serves_until_its_time_is_over(tmp_path: Path, vault: Vault) -> None:
    def again() -> str:
        settings = {"address": vault.address, "role_id": "role", "secret_id": "id-of-the-role"}
        return token(of_vault(tmp_path, "${secret:github}", **settings))

    assert (again(), again(), vault.logins) == (VALUE, VALUE, 1)
    vault.tokens.clear()
    assert (again(), vault.logins) == (VALUE, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"token": "wrong-token-of-vault"}, "Vault answered HTTP 403 for secret/data/toolgate/github"),
        ({"role_id": "role", "secret_id": "wrong-id-of-role"}, "Vault answered HTTP 400 to the AppRole login"),
        ({"address": "http://127.0.0.1:1", "token": "wrong-token-of-vault"}, "cannot be reached (ConnectError)"),
        ({"address": "https://vault:82oo", "token": "wrong-token-of-vault"}, "Vault's address is no URL"),
        ({"address": "https://[::1", "token": "wrong-token-of-vault"}, "Vault's address is no URL"),
        ({"address": "https://vaul\u00e9", "token": "wrong-token-of-vault"}, "Vault"),
        ({"token": "${NOT_SET}"}, "NOT_SET is not set"),
        ({"address": "nowhere", "token": "wrong-token-of-vault"}, "Vault has no address"),
        ({}, "Vault has no token"),
    ],
)
def test_a_vault_that_does_not_answer_fails_those_who_need_it(
    tmp_path: Path, vault: Vault, settings: dict[str, str], said: str
) -> None:
    a, b = of_vault(tmp_path, "${secret:github}", **{"address": vault.address, **settings}).servers
    assert said in a.problem and "wrong-" not in a.problem
    assert not b.problem


def test_a_sealed_vault_is_named_with_what_it_said(tmp_path: Path, vault: Vault) -> None:
    vault.status = 503
    found = of_vault(tmp_path, "${secret:github}", address=vault.address, token="${TOKEN_OF_VAULT}")
    assert "HTTP 503" in found.servers[0].problem


def test_one_that_vault_does_not_have_is_nowhere(tmp_path: Path, vault: Vault) -> None:
    found = of_vault(tmp_path, "${secret:nothing}", address=vault.address, token="${TOKEN_OF_VAULT}")
    assert "Vault (secret/data/toolgate/nothing, field value)" in found.servers[0].problem


@contextmanager
def listening(head: bytes, piece: bytes, pause: float) -> Generator[tuple[str, list[int]]]:
    """What answers each connection with a head, and then piece by piece until that is closed."""
    connections: list[int] = []
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(head)
                while not is_over.wait(pause):
                    connection.sendall(piece)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connections.append(1)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", connections
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", HEAD], ids=["status", "head", "body"])
def test_a_vault_whose_answer_drips_is_given_up_and_asked_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(config_secrets, "VAULT_PATIENCE", 0.3)
    with listening(head, b"x", 0.02) as (address, connections):
        found = of_vault(tmp_path, "${secret:a} ${secret:b}", address=address, token="${TOKEN_OF_VAULT}")
        assert "cannot be reached" in found.servers[0].problem
        assert len(connections) == 1


def test_a_vault_that_answers_without_end_is_given_up(tmp_path: Path) -> None:
    with listening(HEAD, b"x" * 1_000_000, 0.0) as (address, _):
        found = of_vault(tmp_path, "${secret:a}", address=address, token="${TOKEN_OF_VAULT}")
        assert "more than 4,194,304 bytes" in found.servers[0].problem


# What of a configuration is a secret.


def known(server: Json, environ: dict[str, str] | None = None, **more: Any) -> frozenset[str]:
    tree = {"mcpServers": {"a": server}, **more}
    return secrets_of(read(json.dumps(tree), file="toolgate.json", environ=environ or {}, format="json"))


@pytest.mark.parametrize(
    "server",
    [
        {"command": "run", "env": {"API_KEY": VALUE}},
        {"command": "run", "env": {"ANYTHING": VALUE}},
        {"command": "run", "env": {"PASSWORD": "production"}},
        {"command": "run", "env": {"DATABASE": f"postgres://ann:{VALUE}@db/x"}},
        {"command": "run", "args": ["--token", VALUE]},
        {"command": "run", "args": [f"--api-key={VALUE}"]},
        {"command": "run", "args": [f"http://x/?key={VALUE}"]},
        {"command": "run", "args": ["${MINE}"]},
        {"command": "run", "args": ["--x=${MINE}"]},
        {"url": "http://x/mcp", "headers": {"Authorization": f"Bearer {VALUE}"}},
        {"url": "http://x/mcp", "headers": {"X-Anything": VALUE}},
        {"url": f"http://ann:{VALUE}@x/mcp"},
        {"url": f"http://x/mcp?api_key={VALUE}"},
        {"url": "http://x/mcp?k=${MINE}"},
        {"url": "http://x/mcp", "auth": {"client_id": "me", "client_secret": VALUE}},
        {"command": "run", "tools": {"t": {"parameters": {"key": {"fixed": VALUE}}}}},
    ],
)
def test_what_is_a_secret_is_known_to_be_one(server: Json) -> None:
    secret = "production" if "PASSWORD" in server.get("env", {}) else VALUE
    assert secret in known(server, {"MINE": VALUE})


def test_of_a_password_in_basic_authorization_all_forms_are_known() -> None:
    found = known({"url": "http://x/mcp", "headers": {"Authorization": "Basic YW5uOmNhbmFyeS0xMjM0"}})
    assert {"YW5uOmNhbmFyeS0xMjM0", "canary-1234"} <= found


def test_keys_of_clients_and_secrets_of_the_environment_are_known() -> None:
    clients = [{"id": "ci", "key": "k" * 30}, {"id": "other", "key": "sha256:" + "0" * 64}]
    found = known(
        {"command": "run"}, {"GITHUB_TOKEN": VALUE, "HTTPS_PROXY": "http://u:proxy-pass-1@p"}, clients=clients
    )
    assert found == {"k" * 30, VALUE, "proxy-pass-1"}


@pytest.mark.parametrize(
    "value",
    [
        "production", "eu-central-1", "gpt-4o-mini", "claude-sonnet-4-20250514", "/home/ann/project", "./data/files",
        "http://localhost:8080/path", "db1.internal:5432", "2024-11-05", "1234567890", "en_US.UTF-8", "Info, Warning",
        "C:\\Users\\ann",
    ],
)  # fmt: skip
def test_what_is_plainly_none_is_left_alone(value: str) -> None:
    assert not known({"command": "run", "env": {"SETTING": value, "OTHER": "${MINE}"}}, {"MINE": value})


def test_the_home_of_its_user_is_no_secret() -> None:
    assert not known({"command": "run", "args": ["${HOME}/a1b2c3d4e5"]}, {"HOME": "/home/a1b2c3d4e5"})


def test_the_folder_that_it_was_started_in_is_no_secret() -> None:
    assert not known({"command": "run"}, {"PWD": "/srv/my tools", "OLDPWD": "/home/ann/project"})
    assert known({"command": "run"}, {"PWD": VALUE}) == {VALUE}


def test_what_is_named_public_is_none() -> None:
    server = {"command": "run", "env": {"MODEL": VALUE}}
    assert known(server) == {VALUE}
    assert not known(server, secrets={"public": ["model"]})


def test_no_value_takes_long_to_be_judged() -> None:
    for value in ("a" * 31 + "!", "a1-" * 60 + "!", "a." * 5000 + "!", "x" * 100_000 + "!"):
        assert value in known({"command": "run", "env": {"X": value}})


def test_it_is_the_effective_user_whose_file_it_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, github=VALUE)
    owner = os.stat(tmp_path / "secrets.json").st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:
        assert "belongs to another user" in config(tmp_path).servers[0].problem
    else:
        assert token(config(tmp_path)) == VALUE  # root may give files to others
