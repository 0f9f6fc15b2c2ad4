"""`toolgate doctor --suggest-sandbox`: the tightest box that works, without ever running the server outside of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from processes.ground import child

from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]


def suggested(home: Path, entry: dict[str, Any], *more: str, name: str = "toolgate.json") -> tuple[int, str, str]:
    file = home / name
    if name.endswith(".toml"):
        lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
        file.write_text("[mcpServers.one]\n" + "\n".join(lines) + "\n")
    else:
        file.write_text(json.dumps({"mcpServers": {"one": entry}}))
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "toolgate", "doctor", "--config", str(file), "--suggest-sandbox", "one", *more]
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=home, timeout=110)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_server_that_needs_nothing_is_strict(tmp_path: Path) -> None:
    code, printed, told = suggested(tmp_path, child("doing"))
    assert (code, json.loads(printed)) == (0, {"mcpServers": {"one": {"box": "strict"}}})
    assert "works, 3 tools" in told
    assert "what other tools need was not seen" in told


def test_a_call_shows_what_it_needs_in_the_format_of_the_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    entry = child("needing", str(data))
    code, printed, told = suggested(tmp_path, entry, "--call", "write", name="toolgate.toml")
    assert code == 0, told
    box = tomllib.loads(printed)["mcpServers"]["one"]["box"]
    assert box == {"level": "strict", "write": [str(data)]}
    assert told.count("in a box") == 3
    assert "PermissionError" in told


def test_a_server_that_fails_on_purpose_gets_no_wide_box_unasked(tmp_path: Path) -> None:
    """In one it would write what the user's shell runs next, in another read the user's keys and send them away."""
    code, printed, told = suggested(tmp_path, child("needing", "/"), "--call", "never")
    assert (code, printed) == (1, "")
    assert "may fail in tighter ones to get it" in told and "give --yes" in told
    tried = [line for line in told.splitlines() if line.startswith("one in a box")]
    assert tried and not any("network" in line.partition(": ")[0] or "all files" in line for line in tried)


def test_a_server_that_works_in_no_box_is_never_run_outside(tmp_path: Path) -> None:
    code, printed, told = suggested(tmp_path, child("needing", "/"), "--call", "never", "--yes")
    assert (code, printed) == (1, "")
    assert "works in no box" in told
    assert "no new privileges: 0" not in told
