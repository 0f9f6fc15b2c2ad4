"""`toolgate systemd` and `launchd`: what they print is understood by who reads it, and leaves few rights."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolgate.cli import app
from toolgate.cli.systemd import quoted

PRESENT = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(not PRESENT, reason="systemd-analyze is not here")

EXAMPLE = 'drain = "15s"\n\n[mcpServers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "toolgate.toml"
    file.write_text(EXAMPLE)
    return file


def printed(*args: str) -> str:
    done = CliRunner().invoke(app, [*args])
    assert done.exit_code == 0, done.output
    return done.stdout


def values(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit, re.M)


def test_the_unit_starts_this_toolgate_and_waits_until_it_serves(config: Path) -> None:
    unit = printed("systemd", "--config", str(config))
    [start] = values(unit, "ExecStart")
    assert start.endswith(f" serve --config {config}")
    assert values(unit, "Type") == ["notify"] and values(unit, "User") == ["toolgate"]
    assert values(unit, "StateDirectory") == ["toolgate"]
    assert "Environment=XDG_STATE_HOME=/var/lib" in unit


def test_calls_have_their_time_to_end(config: Path) -> None:
    assert values(printed("systemd", "--config", str(config)), "TimeoutStopSec") == ["35"]
    assert plistlib.loads(printed("launchd", "--config", str(config)).encode())["ExitTimeOut"] == 35


def test_what_is_kept_elsewhere_can_be_written_there(config: Path) -> None:
    config.write_text(f'state = "/srv/100% gate"\naudit = {{path = "/srv/audit/lines.jsonl"}}\n{EXAMPLE}')
    assert values(printed("systemd", "--config", str(config)), "ReadWritePaths") == ['"/srv/100%% gate" /srv/audit']


def test_homes_are_hidden_unless_something_of_it_lies_there(config: Path) -> None:
    [hidden] = values(printed("systemd", "--config", str(config)), "ProtectHome")
    assert hidden in ("yes", "read-only")  # as this Python lies in a home, or does not


def test_the_service_can_see_who_asks_it_over_its_socket(config: Path) -> None:
    """Found by running it: with their processes hidden, it refused its own user's commands."""
    assert not values(printed("systemd", "--config", str(config)), "ProtectProc")


def test_a_unit_of_a_user_names_no_other_and_has_the_users_path(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/home/a b/bin:/usr/bin")
    unit = printed("systemd", "--user", "--config", str(config))
    assert not values(unit, "User") and values(unit, "WantedBy") == ["default.target"]
    assert values(unit, "Environment") == ['"PATH=/home/a b/bin:/usr/bin"']


@pytest.mark.parametrize("word", ["/usr/bin/x", "a b", 'a"b', "50%", "a\\b"])
def test_a_word_is_one_word_for_systemd(word: str) -> None:
    inner = quoted(word)
    inner = inner[1:-1] if inner.startswith('"') else inner
    assert re.sub(r"\\(.)", r"\1", inner).replace("%%", "%") == word


@needs_systemd
@pytest.mark.parametrize("kind", [[], ["--user"]])
def test_systemd_finds_nothing_wrong_with_the_unit(config: Path, tmp_path: Path, kind: list[str]) -> None:
    file = tmp_path / "toolgate.service"
    file.write_text(printed("systemd", *kind, "--config", str(config)))
    assert PRESENT
    verify = [PRESENT, *kind, "verify", "--man=no", "--recursive-errors=no", str(file)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, env=environ)
    about = [line for line in done.stderr.splitlines() if "toolgate" in line]
    assert (done.returncode, about) == (0, []), done.stderr


@needs_systemd
def test_systemd_takes_the_unit_for_a_safe_one(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "toolgate.service"
    file.write_text(printed("systemd", "--config", str(config)))
    assert PRESENT
    safe = [PRESENT, "security", "--offline=true", "--threshold=30", "--no-pager", str(file)]
    done = subprocess.run(safe, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-300:]


# Of launchd.plist(5): what it calls string, array, dictionary, boolean and integer.
APPLES: dict[str, type] = {
    **dict.fromkeys(("Label", "ProcessType", "StandardErrorPath", "StandardOutPath", "WorkingDirectory"), str),
    **dict.fromkeys(("EnvironmentVariables", "KeepAlive", "SoftResourceLimits", "HardResourceLimits"), dict),
    **dict.fromkeys(("ExitTimeOut", "Nice", "ThrottleInterval", "Umask"), int),
    "ProgramArguments": list,
    "RunAtLoad": bool,
}


def test_the_agent_of_macos_starts_this_toolgate_again_when_it_fails(config: Path) -> None:
    found = plistlib.loads(printed("launchd", "--config", str(config)).encode())
    assert found["ProgramArguments"][-3:] == ["serve", "--config", str(config)]
    assert found["KeepAlive"] == {"SuccessfulExit": False} and found["RunAtLoad"]
    assert found["ProcessType"] == "Interactive", "else macOS throttles it and all servers that it starts"
    assert {name: type(value) for name, value in found.items()}.items() <= APPLES.items()


@pytest.mark.parametrize("command", ["systemd", "launchd"])
def test_without_a_configuration_there_is_nothing_to_serve(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = CliRunner().invoke(app, [command])
    assert done.exit_code == 2 and "give --config" in done.output


@pytest.mark.parametrize("sign", ["\n", "\r", "\x0b", "\x1b", "\x7f"])
@pytest.mark.parametrize("key", ["state", "audit.path", "folder"])
def test_a_path_of_the_configuration_adds_no_line_to_the_unit(key: str, sign: str, tmp_path: Path) -> None:
    """Whoever wrote the configuration would have a line of a unit that root starts."""
    folder = tmp_path / (f"its{sign}ExecStartPre=+" if key == "folder" else "its")
    folder.mkdir()
    line = f"{key} = {json.dumps(f'/srv/log{sign}ExecStartPre=+/usr/bin/id')}\n" if key != "folder" else ""
    file = folder / "toolgate.toml"
    file.write_text(line + EXAMPLE)
    done = CliRunner().invoke(app, ["systemd", "--config", str(file)])
    assert done.exit_code == 2 and "ExecStartPre" not in done.stdout
    if key == "folder":
        assert CliRunner().invoke(app, ["launchd", "--config", str(file)]).exit_code == 2
