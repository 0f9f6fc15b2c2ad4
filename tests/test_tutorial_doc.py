"""docs/tutorial.md: its steps are done, in their order, by its own commands, and show what it says that they show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text()
STEPS = re.findall(r"^```(toml|sh|text)\n(.*?)^```", PAGE, re.M | re.S)
BOUND = 60  # seconds; far more than anything here takes
SERVE = "toolgate serve"
# What a terminal still knows in the next block.
KEPT = "declare -f ask || true; declare -p FIRST SECOND 2> /dev/null || true"


class Terminal:
    """A reader's folder and second terminal, and the gateway in the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        bin = os.path.dirname(sys.executable)
        self.environ = {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "200"}
        self.url = "http://127.0.0.1:8765/mcp"
        self.gateway: subprocess.Popen[str] | None = None

    def run(self, text: str) -> str:
        text = text.replace("http://127.0.0.1:8765/mcp", self.url).replace("toolgate trust", "toolgate trust --yes")
        script = f"touch kept; . ./kept\nset -e\n{text}\n{{ {KEPT}; }} > kept"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=BOUND,
        )  # fmt: skip
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def serve(self) -> None:
        command = ["toolgate", "serve", "--port", "0"]
        self.gateway = subprocess.Popen(
            command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self.gateway.stderr
        self.url = next(line for line in self.gateway.stderr if "listening on" in line).split()[-1]

    def end(self) -> None:
        if self.gateway and self.gateway.stderr:
            self.gateway.terminate()
            rest = self.gateway.stderr.read()
            self.gateway.wait(timeout=BOUND)
            self.gateway.stderr.close()
            assert "Traceback" not in rest, rest

    def refuses(self, key: str) -> bool:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {key}",
        }
        asked = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, asked, headers), timeout=BOUND) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            assert error.code == 401
            return True
        return False

    def keys(self) -> list[str]:
        return re.findall(r'^declare -- \w+="(tg_\w[\w-]*)"', (self.folder / "kept").read_text(), re.M)


def until(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + BOUND
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.05)


def shows(output: str, line: str) -> bool:
    """`…` stands for anything in a line; spaces are not counted."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
    return re.search(".*".join(parts), output) is not None


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    try:
        yield terminal
    finally:
        terminal.end()


def test_a_reader_gets_as_far_as_the_page_says(terminal: Terminal) -> None:
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    said, changed, made = "", False, 0
    file = terminal.folder / "toolgate.toml"
    for kind, text in STEPS:
        if kind == "toml":
            changed = file.exists()
            with file.open("a") as end:
                end.write(text)
        elif kind == "text":
            for line in text.splitlines():
                assert shows(said, line), (line, said)
        elif text.strip() == SERVE:
            terminal.serve()
        else:
            if "audit tail" in text:  # a line is written a moment after its call: a reader types more slowly than this
                until(lambda: "ACCESS_DENIED" in terminal.run(text), "the audit log never has the call")
            said = terminal.run(text)
            if changed:
                until(lambda: terminal.refuses("nothing"), "the edit does not hold")
                changed = False
            if len(terminal.keys()) > made:
                made = len(terminal.keys())
                until(lambda: not any(map(terminal.refuses, terminal.keys())), "a key is never good")
    assert made == 2 and terminal.gateway


def test_the_commands_for_agents_are_those_of_their_page() -> None:
    agents = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()
    shown = re.findall(r"^(?:claude|codex) mcp add .*/mcp$", PAGE, re.M)
    assert len(shown) == 2
    assert all(f"\n{command}\n" in agents for command in shown)
