"""`toolgate secrets set`, `list` and `remove`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app

VALUE = "canary-1a2b3c4d"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    config = {"secrets": {"backends": ["env", "file"]}, "mcpServers": {"hub": {"command": "run", "env": {}}}}
    config["mcpServers"]["hub"]["env"] = {"TOKEN": "Bearer ${secret:github}"}
    (tmp_path / "toolgate.json").write_text(json.dumps(config))
    monkeypatch.setenv("TOOLGATE_CONFIG", "toolgate.json")
    return tmp_path


def secrets(*arguments: str, input: str = "") -> Result:
    result = CliRunner().invoke(app, ["secrets", *arguments], input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_secret_is_kept_found_and_removed(here: Path) -> None:
    path = here / ".local/state/toolgate/secrets.json"
    assert secrets("list").exit_code == 1
    assert secrets("set", "github", input=f"{VALUE}\n").exit_code == 0
    assert json.loads(path.read_text()) == {"github": VALUE}
    assert path.stat().st_mode & 0o777 == 0o600
    listed = secrets("list")
    assert (listed.exit_code, listed.stdout) == (0, "github: file, used by hub\n")
    assert secrets("remove", "github").exit_code == 0
    assert json.loads(path.read_text()) == {}


def test_what_the_key_of_a_client_lacks_can_be_set_and_is_named(here: Path) -> None:
    """Although nothing is served meanwhile."""
    table = {"secrets": {"backends": ["file"]}, "mcpServers": {"hub": {"url": "http://h/mcp", "auth": {}}}}
    table["mcpServers"]["hub"]["auth"] = {"client_id": "me", "client_secret": "${secret:hub}"}
    table["clients"] = [{"id": "ci", "key": "${secret:ci}"}]  # type: ignore[assignment]
    (here / "toolgate.json").write_text(json.dumps(table))
    listed = secrets("list")
    assert listed.exit_code == 1 and "used by the key of ci" in listed.stdout and "used by hub" in listed.stdout
    assert secrets("set", "ci", input=f"{VALUE}-{VALUE}").exit_code == 0
    assert "ci: file, used by the key of ci" in secrets("list").stdout


def test_that_there_are_none_is_said(here: Path) -> None:
    (here / "toolgate.json").write_text('{"mcpServers": {}}')
    assert "toolgate secrets set NAME" in secrets("list").stderr


def test_no_value_is_ever_printed() -> None:
    done = [secrets("set", "github", input=VALUE), secrets("set", "other", input=VALUE), secrets("list")]
    assert not any(VALUE in each.output for each in done)
    assert "other: file, not used" in done[-1].stdout


def test_where_each_one_is_found_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_GITHUB", VALUE)
    assert secrets("list").stdout == "github: env, used by hub\n"


def test_one_that_is_nowhere_is_listed_with_where_it_was_looked_for() -> None:
    listed = secrets("list")
    assert listed.exit_code == 1
    assert "TOOLGATE_SECRET_GITHUB" in listed.stdout and "toolgate secrets set github" in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "input", "says"),
    [
        (["set", "../x"], VALUE, "A name has"),
        (["set", "x"], "", "the value is empty"),
        (["remove", "x"], "", "x is not in"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: list[str], input: str, says: str) -> None:
    ended = secrets(*arguments, input=input)
    assert ended.exit_code and says in ended.output


def test_a_file_that_others_can_read_is_not_touched(here: Path) -> None:
    secrets("set", "github", input=VALUE)
    path = here / ".local/state/toolgate/secrets.json"
    path.chmod(0o644)
    for arguments in (["list"], ["set", "other"], ["remove", "github"]):
        ended = secrets(*arguments, input="another-value")
        assert ended.exit_code and "chmod 600" in ended.output
    assert json.loads(path.read_text()) == {"github": VALUE}


def test_a_secret_that_is_too_short_to_be_known_again_is_warned_of() -> None:
    assert "shorter than 8" in secrets("set", "pin", input="1234").output


@pytest.mark.parametrize(
    ("value", "is_weak"),
    [
        ("dragonfly48213", True),
        ("correct horse battery", True),
        ("aB3dE6gH9jK2mN5p", False),
        ("ghp_0123456789abcdefghij", False),
        ("one sentence that is long enough for anybody", False),
    ],
)
def test_a_value_that_can_be_guessed_is_stored_with_a_warning(value: str, is_weak: bool) -> None:
    told = secrets("set", "db", input=value)
    assert told.exit_code == 0 and ("it can be guessed" in told.output) is is_weak and value not in told.output
