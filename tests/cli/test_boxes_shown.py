"""Who is in a box, and with what, as the commands show it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes.ground import child

from toolgate.cli import doctor, status
from toolgate.config import read
from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

MOST = "at most 4 GiB of memory and 256 open files each, 64 processes"
STRICT = f"strict: no network; reads its program; writes its own folder; {MOST}"
OPENED = STRICT.replace("its program", "its program ({})", 1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    servers = {"one": child("doing", box="strict"), "two": child("doing", box="off")}
    (tmp_path / "toolgate.json").write_text(json.dumps({"mcpServers": servers, "catalog": {"first_wait": "10s"}}))
    return tmp_path


def printed(home: Path, *words: str) -> str:
    command = [sys.executable, "-m", "toolgate", *words]
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=home, timeout=110)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_server_in_a_box_is_shown_with_what_it_may_do(home: Path) -> None:
    assert printed(home, "config", "check", "toolgate.json").count(f"in a box, {STRICT}") == 1


@pytest.mark.parametrize("command", ["list", "doctor"])
def test_once_it_has_been_started_it_is_shown_what_is_opened_of_its_program(home: Path, command: str) -> None:
    before, after = OPENED.split("{}")
    lines = map(str.strip, printed(home, command, "--config", "toolgate.json").splitlines())
    (line,) = [each for each in lines if each.startswith(f"in a box, {before}")]
    assert line.endswith(after)
    assert f"{Path(sys.prefix)}/{{bin, " in line and "children/doing.py" in line


def test_the_report_of_the_doctor_has_it(home: Path) -> None:
    report = json.loads(printed(home, "doctor", "--json", "--config", "toolgate.json"))
    boxes = [each.get("box", "") for each in report["servers"]]
    assert [each.startswith(OPENED.split("{")[0] + "/") for each in boxes].count(True) == 1
    (boxes,) = [each for each in report["checks"] if each["name"] == "boxes"]
    assert boxes["says"].startswith("1 of 2 servers in a box, by landlock v")


def test_the_status_of_a_running_gateway_has_a_line_for_each_box() -> None:
    server = {"id": "one", "name": "one", "state": "ready", "started": 0, "box": STRICT}
    about = {"version": "1", "pid": 1, "host": "h", "state": "serving", "uptime": 1, "started": 0, "servers": [server]}
    assert f"one: in a box, {STRICT}" in status._lines(about)


def test_the_doctor_says_what_is_missing_where_a_box_cannot_be_put_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "layers", lambda: confinement.Layers("Linux", "x86_64", 0, True))
    for require, is_ok in ((True, False), (False, True)):
        table = {"mcpServers": {"one": {"command": "x", "box": "strict"}}, "sandbox": {"require_boxes": require}}
        (found,) = doctor._boxes(read(json.dumps(table), file="toolgate.json", environ={}, format="json"))
        assert found.is_ok == is_ok
        assert "landlock" in (found.says if require else found.looks[0])


def test_a_secret_in_the_command_line_is_not_shown(tmp_path: Path) -> None:
    entry = {"command": "mcp-server-git", "args": ["-r", "/a/${REPOSITORY_TOKEN}"], "box": "profile"}
    file = tmp_path / "toolgate.json"
    file.write_text(json.dumps({"mcpServers": {"one": entry}}))
    command = [sys.executable, "-m", "toolgate", "config", "check", str(file)]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "REPOSITORY_TOKEN": "hunter2-hunter2"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=110)
    assert "profile of mcp-server-git" in ended.stdout
    assert "hunter2" not in ended.stdout
