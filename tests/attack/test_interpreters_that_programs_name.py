"""Programs whose first line names an interpreter, so that their box opens the folder that this one lies in."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from toolgate.config import ownership
from toolgate.upstreams.process.programs import Programs, holds, system


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With a package that was fetched, a person's own folders, and a project of somebody else."""
    for name in (
        "cache/node_modules/evil",
        "own/bin",
        "project/node_modules/node/bin",
        "language/bin",
        "language/lib/python3.13",
    ):
        (tmp_path / name).mkdir(parents=True)
    for name in ("own/bin/py", "own/bin/python3", "project/node_modules/node/bin/node", "language/bin/python3"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "own/bin/sh").symlink_to("/bin/sh")
    (tmp_path / "own/key").write_text("canary")
    (tmp_path / "own/key").chmod(0o755)
    return tmp_path


def opened(home: Path, first_line: str) -> set[str]:
    """What the box of the package has beside the package, and what all programs may read."""
    program = home / "cache/node_modules/evil/program"
    program.write_text(f"#!{first_line.format(home=home)}\n")
    program.chmod(0o755)
    path = f"{home}/language/bin:/usr/bin:/bin"
    found = Programs([str(home)], str(home / "state"), path).parts(str(program), (), None)
    own = [each for each in found if not any(holds(folder, each) for folder in system())]
    assert str(home / "cache/node_modules") in own
    return {os.path.relpath(each, home) for each in own} - {"cache/node_modules"}


@pytest.mark.parametrize(
    "first_line",
    [
        "{home}/own/bin/py",
        "{home}/own/bin/python3",
        "{home}/own/bin/sh",
        "{home}/own/key",
        "/usr/bin/env {home}/own/bin/python3",
        "/usr/bin/env -S {home}/own/bin/python3",
        "{home}/project/node_modules/node/bin/node",
        "{home}/project/node_modules/../../language/bin/python3",
        "{home}/project/node_modules/../../../../../../../../../../usr/bin/env",
        "/usr/bin/env {home}/project/node_modules/../../../../../../../../../../usr/bin/env",
        "/usr/../{home}/own/bin/python3",
        "{home}/cache/node_modules/evil/../../../own/bin/python3",
        "../../../own/bin/python3",
        "",
    ],
)
def test_no_first_line_opens_a_folder_or_file_that_is_not_its_own(home: Path, first_line: str) -> None:
    assert opened(home, first_line) <= {"language/bin", "language/lib"}


@pytest.mark.parametrize("first_line", ["/usr/bin/env python3", "python3", "{home}/language/bin/python3"])
def test_a_language_that_the_operator_has_in_path_is_there(home: Path, first_line: str) -> None:
    assert opened(home, first_line) == {"language/bin", "language/lib"}


def test_what_lies_beside_a_program_interprets_it(home: Path) -> None:
    (home / "cache/node_modules/evil/own").symlink_to(home / "language/bin/python3")
    assert opened(home, "{home}/cache/node_modules/evil/own") == {"language/bin", "language/lib"}


def test_a_program_whose_file_is_leased_is_not_waited_for(home: Path) -> None:
    """Whoever opens a leased file waits for 45 s, unless it says that it will not wait."""
    program = home / "cache/node_modules/evil/program"
    program.write_text(f"#!{home}/language/bin/python3\n")
    holder = os.open(program, os.O_RDONLY)
    previous = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(BlockingIOError):
            ownership.open_anyones(program)
        assert Programs([str(home)], str(home / "state"), "/usr/bin:/bin").parts(str(program), (), None)
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, previous)
