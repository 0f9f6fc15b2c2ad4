"""Which files a program consists of, as a box is to show them to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolgate.upstreams.process.programs import Programs, from_here, holds, is_wide


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (
        "venv/bin",
        "python/bin",
        "bin",
        ".local/state/toolgate",
        "app/node_modules/pack/dist",
        "app/src",
        "node/bin",
    ):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def file(path: Path, text: str = "") -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def parts(home: Path, program: str, *args: str, cwd: str | None = None) -> set[str]:
    path = f"{home}/node/bin:{home}/venv/bin"
    found = Programs(str(home), str(home / ".local/state/toolgate"), path).parts(program, args, cwd)
    return {os.path.relpath(each, home) for each in found}


def test_an_interpreter_of_an_environment_is_that_and_what_it_links_to(home: Path) -> None:
    file(home / "python/bin/python3")
    (home / "venv/bin/python").symlink_to(home / "python/bin/python3")
    assert parts(home, str(home / "venv/bin/python")) == {"venv", "python"}


def test_a_script_brings_its_interpreter(home: Path) -> None:
    file(home / "node/bin/node")
    assert parts(home, file(home / "venv/bin/own", f"#!{home}/node/bin/node\n")) == {"venv", "node"}
    assert parts(home, file(home / "venv/bin/any", "#!/usr/bin/env node\n")) >= {"venv", "node"}


def test_what_npm_has_installed_is_all_that_was_installed_with_it(home: Path) -> None:
    node = file(home / "node/bin/node")
    script = file(home / "app/node_modules/pack/dist/index.js")
    assert parts(home, node, "--require", "x", script, str(home)) == {"node", "app"}


def test_a_script_in_a_project_is_the_project_and_alone_it_is_itself(home: Path) -> None:
    node = file(home / "node/bin/node")
    alone = file(home / "alone.js")
    assert parts(home, node, alone) == {"node", "alone.js"}
    script = file(home / "app/src/main.js")
    (home / "app/package.json").write_text("{}")
    assert parts(home, node, script) == {"node", "app"}
    assert parts(home, node, "main.js", cwd=str(home / "app/src")) == {"node", "app"}


def test_a_program_in_a_folder_of_much_else_is_that_one_file(home: Path) -> None:
    assert parts(home, file(home / "bin/own")) == {"bin/own"}
    (home / ".local/bin").mkdir()
    assert parts(home, file(home / ".local/bin/own")) == {".local/bin/own"}
    (home / ".cargo/bin").mkdir(parents=True)
    assert parts(home, file(home / ".cargo/bin/own")) == {".cargo/bin/own"}


@pytest.mark.parametrize("folder", ["/", "/tmp", "/usr", "/home", ".", "..", ".local", ".local/state/toolgate"])
def test_a_folder_that_holds_more_than_one_program_is_wide(home: Path, folder: str) -> None:
    assert is_wide(os.path.join(home, folder), str(home), str(home / ".local/state/toolgate"))


def test_a_folder_with_a_longer_name_is_another_one() -> None:
    assert holds("/a/b", "/a/b/c") and holds("/a/b", "/a/b")
    assert not holds("/a/b", "/a/bc")


def test_what_is_named_from_our_folder_is_named_by_its_whole_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(home / "app/src/main.js")
    monkeypatch.chdir(home)
    assert from_here("node", ["--x", "app/src/main.js", "app"]) == ("node", ("--x", f"{home}/app/src/main.js", "app"))
    assert from_here("./app/own", ["app"]) == (f"{home}/app/own", ("app",))
    assert from_here("own", ["app/src/main.js"]) == ("own", ("app/src/main.js",))


def test_what_a_program_names_itself_is_not_opened_and_what_it_leads_to_is_that_file(home: Path) -> None:
    (home / "private/bin").mkdir(parents=True)
    file(home / "private/bin/tool")
    file(home / "private/key")
    assert parts(home, file(home / "venv/bin/own", f"#!{home}/private/bin/tool\n")) == {"venv"}
    (home / "venv/bin/link").symlink_to(home / "private/bin/tool")
    assert parts(home, str(home / "venv/bin/link")) == {"venv", "private/bin/tool"}
