"""docs/access.md leads where it says: its file is served, and each of its steps is done, in their order."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolgate import config
from toolgate.auth.cross_checks import problems
from toolgate.cli import app

PAGE = (Path(__file__).parents[1] / "docs" / "access.md").read_text()
BOUND = 60  # seconds; far more than anything here takes
(EXAMPLE,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
LINES = [shlex.split(line, comments=True) for text in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
         for line in text.splitlines()]  # fmt: skip
SEEN = re.findall(r"^\| `(\w+)` \| (.*?) ?\| (.*?) \|$", PAGE, re.M)


def test_its_configuration_has_no_slip() -> None:
    found = config.read(EXAMPLE, file="toolgate.toml", environ={"NOTES": "x"}, format="toml")
    assert not found.warnings and not problems(found)
    assert {client.id for client in found.clients} == {row[0] for row in SEEN}


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_each_of_its_commands_exists(words: list[str]) -> None:
    names = [word for word in words[1:3] if not word.startswith("-")][
        : 1 if words[1] in ("doctor", "serve", "trust") else 2
    ]
    shown = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200"}).output
    assert "Usage:" in shown
    assert all(word in shown for word in words if word.startswith("-"))


# The steps.


class Place:
    """The folder of a team, and the gateway that serves there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        bin = os.path.dirname(sys.executable)
        self.environ = {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "200"}
        self.url = ""

    def run(self, *words: str, input: str | None = None) -> str:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, input=input, capture_output=True, text=True, timeout=BOUND
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.strip()

    def ask(self, key: str, method: str, params: Any) -> Any:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, asked, {**headers, "authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            return json.loads(answer.read())

    def call(self, key: str, tool: str, **arguments: str) -> Any:
        return self.ask(key, "tools/call", {"name": tool, "arguments": arguments})

    def refusal(self, key: str) -> str:
        try:
            self.ask(key, "tools/list", {})
        except urllib.error.HTTPError as error:
            with error:
                assert error.code == 401
                return error.read().decode()
        return ""

    def waiting(self) -> list[Any]:
        end = time.monotonic() + BOUND
        while not (found := json.loads(self.run("toolgate", "approvals", "list", "--json"))):
            assert time.monotonic() < end, "no calls are waiting"
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    (tmp_path / "toolgate.toml").write_text(EXAMPLE)
    place.run("toolgate", "config", "check")
    place.run("toolgate", "trust", "--yes")
    place.run("toolgate", "secrets", "set", "notes", input="a-token-of-the-notes")
    assert "look:" not in place.run("toolgate", "doctor")
    command = [sys.executable, "-m", "toolgate", "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=place.environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr
        try:
            place.url = next(line for line in child.stderr if "listening on" in line).split()[-1]
            yield place
        finally:
            child.terminate()
            rest = child.stderr.read()
            child.wait(timeout=BOUND)
            assert "Traceback" not in rest, rest


def keys_of(place: Place) -> dict[str, str]:
    """Made as the page makes them."""
    return {words[3]: place.run(*words) for words in LINES if words[1:3] == ["keys", "create"]}


def test_a_team_gets_as_far_as_the_page_says(place: Place) -> None:
    keys = keys_of(place)

    end = time.monotonic() + BOUND
    while any(place.refusal(key) for key in keys.values()):
        assert time.monotonic() < end, "a key is never good"

    for client, of_notes, of_clock in SEEN:
        shown = {f"notes__{name}" for name in re.findall(r"`(\w+)`", of_notes)}
        shown |= {f"clock__{name}" for name in re.findall(r"`(\w+)`", of_clock)}
        listed = place.ask(keys[client], "tools/list", {})["result"]["tools"]
        assert {tool["name"] for tool in listed} == shown, client

    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(place.call, keys["ann"], "notes__add_note", title="Ten", text="minutes")
        (request,) = place.waiting()
        place.run("toolgate", "approvals", "allow", request["id"], "--yes")
        assert "result" in call.result(BOUND)
    assert place.call(keys["reader"], "notes__add_note")["error"]["data"]["code"] == "ACCESS_DENIED"

    answers = [place.call(keys["ci"], "clock__now") for _ in range(61)]  # 30, and one more every two seconds
    assert "result" in answers[0] and any("error" in answer for answer in answers)
    over = next(answer["error"]["data"] for answer in answers if "error" in answer)
    assert over["code"] == "RATE_LIMITED" and over["retryAfter"]

    (id,) = re.findall(r"^(\w+)  ann ", place.run("toolgate", "keys", "list"), re.M)
    place.run("toolgate", "keys", "revoke", id)
    (words,) = re.findall(r"^\| 401 `(unknown .*?)` \|", PAGE, re.M)
    end = time.monotonic() + BOUND
    while words not in place.refusal(keys["ann"]):
        assert time.monotonic() < end, "the key is still good"

    told = place.run("toolgate", "audit", "export")  # all of it: whoever waits for a key knocks often
    assert all(event in told for event in ("keys.create", "approvals.allow", "ACCESS_DENIED", "RATE_LIMITED"))
    assert "intact" in place.run("toolgate", "audit", "verify")
