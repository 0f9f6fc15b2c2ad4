"""docs/embedding.md: its program is run, and does what the page says."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from toolgate.app import running
from toolgate.policy.base import Policy

PAGE = (Path(__file__).parents[1] / "docs" / "embedding.md").read_text()
BOUND = 60  # seconds; far more than anything here takes


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return found


def call(url: str, tool: str, **arguments: Any) -> Any:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
    with urllib.request.urlopen(request, timeout=BOUND) as answer:
        return json.loads(answer.read())


def test_its_program_serves_with_its_own_policy(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(block("python").replace("found.http.port", "0"))
    (tmp_path / "toolgate.toml").write_text(block("toml"))
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    with subprocess.Popen(
        [sys.executable, "gate.py"], cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as child:  # fmt: skip
        try:
            assert child.stdout
            url = child.stdout.readline().split()[-1]
            assert "result" in call(url, "notes__list_notes")
            error = call(url, "notes__delete_note", id=1)["error"]
            assert (error["message"], error["data"]["code"]) == ("Notes are never deleted", "ACCESS_DENIED")
        finally:
            child.terminate()  # and the guard ends what it has started
            child.wait(BOUND)


def test_it_names_every_argument_and_every_hook() -> None:
    named = re.findall(r"^\| (`.*?`) \|", PAGE, re.M)
    assert set(re.findall(r"\w+", " ".join(named))) == set(inspect.signature(running).parameters)
    hooks = {name for name in vars(Policy) if inspect.isfunction(vars(Policy)[name])}
    assert set(re.findall(r"^- `(\w+)\(", PAGE, re.M)) == hooks
    for written, hook in re.findall(r"^- `((\w+)\(.*?\))`", PAGE, re.M):
        names = [name for name in inspect.signature(getattr(Policy, hook)).parameters if name != "self"]
        assert re.findall(r"\w+", written)[1:] == names
