"""A gateway that was started in a terminal ends with it, and is otherwise told by SIGHUP to read its configuration."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

WAIT = 60.0  # seconds

pytestmark = pytest.mark.promise("b.lifecycle.terminal")


class Terminal:
    """One that a gateway was started in: what it has printed there, and its port."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self._printed = ""

    def until(self, pattern: str) -> re.Match[str]:
        while not (found := re.search(pattern, self._printed)):
            self._printed += os.read(self._master, 65536).decode(errors="replace")
        return found

    def close(self) -> None:
        os.close(self._master)


@contextlib.contextmanager
def terminal(folder: Path, ignores: bool = False) -> Generator[Terminal]:
    (folder / "toolgate.json").write_text('{"mcpServers": {}, "http": {"port": 0}}')
    environ = {**os.environ, "HOME": str(folder), "TERM": "xterm"}
    environ = {key: value for key, value in environ.items() if not key.startswith(("XDG_", "TOOLGATE_"))}
    master, other = pty.openpty()

    def belong() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores else signal.SIG_DFL)  # whatever these tests run under

    command = [sys.executable, "-m", "toolgate", "serve", "--config", "toolgate.json"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
        preexec_fn=belong,
    )
    os.close(other)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait(WAIT)
        with contextlib.suppress(OSError):
            os.close(master)


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    with terminal(tmp_path) as there:
        there.until("process [0-9]+; servers")
        there.close()
        assert there.process.wait(WAIT) == 0


def test_while_the_terminal_is_there_it_reads_its_configuration(tmp_path: Path) -> None:
    with terminal(tmp_path) as there:
        there.until("process [0-9]+; servers")
        there.process.send_signal(signal.SIGHUP)
        there.until("unchanged|nothing has changed")
        there.process.send_signal(signal.SIGTERM)
        assert there.process.wait(WAIT) == 0


def test_one_that_was_told_to_outlive_it_does(tmp_path: Path) -> None:
    with terminal(tmp_path, ignores=True) as there:
        url = there.until(r"http://127\.0\.0\.1:[0-9]+")[0]
        there.until("process [0-9]+; servers")
        there.close()
        with urllib.request.urlopen(f"{url}/readyz", timeout=WAIT) as answer:
            assert answer.status == 200
        there.process.send_signal(signal.SIGTERM)
        assert there.process.wait(WAIT) == 0
