"""Which files a program consists of, as a box is to show them to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolgate.upstreams.process.programs import Programs, from_here, holds, homes, is_wide, told


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (
        "venv/bin",
        "python/bin",
        "python/lib/python3.13",
        "bin",
        ".local/state/toolgate",
        "app/node_modules/pack/dist",
        "app/src",
        "node/bin",
        "node/lib/node_modules",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").touch()
    return tmp_path


VENV = {"venv/bin", "venv/pyvenv.cfg"}
NODE = {"node/bin", "node/lib"}


def file(path: Path, text: str = "") -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def parts(home: Path, program: str, *args: str, cwd: str | None = None) -> set[str]:
    path = f"{home}/node/bin:{home}/venv/bin"
    found = Programs([str(home)], str(home / ".local/state/toolgate"), path, str(home / "app/toolgate.toml")).parts(
        program, args, cwd
    )
    return {os.path.relpath(each, home) for each in found}


def test_an_interpreter_of_an_environment_is_that_and_what_it_links_to(home: Path) -> None:
    file(home / "python/bin/python3")
    (home / "venv/bin/python").symlink_to(home / "python/bin/python3")
    assert parts(home, str(home / "venv/bin/python")) == VENV | {"python/bin", "python/lib"}


def test_a_script_brings_its_interpreter(home: Path) -> None:
    file(home / "node/bin/node")
    assert parts(home, file(home / "venv/bin/own", f"#!{home}/node/bin/node\n")) == VENV | NODE
    assert parts(home, file(home / "venv/bin/any", "#!/usr/bin/env node\n")) >= VENV | NODE


def test_what_npm_has_installed_is_all_that_was_installed_with_it(home: Path) -> None:
    node = file(home / "node/bin/node")
    script = file(home / "app/node_modules/pack/dist/index.js")
    (home / "app/package.json").touch()
    for name in (".env", "key", "src/main.js"):
        file(home / "app" / name)
    assert parts(home, node, "--require", "x", script, str(home)) == NODE | {"app/node_modules", "app/package.json"}


def test_a_script_in_a_project_is_what_is_not_hidden_of_it_and_alone_it_is_itself(home: Path) -> None:
    node = file(home / "node/bin/node")
    assert parts(home, node, file(home / "alone.js")) == {*NODE, "alone.js"}
    script = file(home / "app/src/main.js")
    for name in (".env", ".npmrc", "toolgate.toml", "package.json"):
        file(home / "app" / name)
    (home / "app/.git").mkdir()
    (home / "app/others").symlink_to(home / "venv")
    (home / "app/settings").symlink_to(home / "app/.env")
    shown = {*NODE, "app/src/main.js", "app/src", "app/node_modules", "app/package.json"}
    assert parts(home, node, script) == shown
    assert parts(home, node, "main.js", cwd=str(home / "app/src")) == shown
    built = home / "app/.output/server"
    built.mkdir(parents=True)
    assert parts(home, node, file(built / "main.js")) == shown - {"app/src/main.js"} | {
        "app/.output",
        "app/.output/server/main.js",
    }


def test_the_package_of_another_language_is_not_its_own(home: Path) -> None:
    python = file(home / "python/bin/python3")
    (home / "app/package.json").touch()
    script = file(home / "app/server.py")
    assert parts(home, python, script) == {"python/bin", "python/lib", "app/server.py"}
    (home / "app/pyproject.toml").touch()
    assert parts(home, python, script) >= {"app/server.py", "app/src", "app/pyproject.toml"}
    assert parts(home, file(home / "app/run", "#!/usr/bin/env none\n")) == {"app/run"}


def test_of_a_folder_with_very_many_entries_the_script_and_what_was_installed_is_shown(home: Path) -> None:
    (home / "app/package.json").touch()
    for number in range(1001):
        (home / "app" / str(number)).touch()
    script = file(home / "app/src/main.js", "#!/usr/bin/env none\n")
    shown = {"app/src/main.js", "app/src", "app/node_modules", "app/package.json"}
    assert parts(home, script) == shown


def test_a_program_in_bin_is_that_file_and_its_libraries_unless_it_is_of_a_language(home: Path) -> None:
    for name in ("project/bin", "project/lib", "project/share", "project/.git"):
        (home / name).mkdir(parents=True)
    file(home / "project/.env")
    tool = file(home / "project/bin/tool", "#!/usr/bin/python3\n")
    shown = {each for each in parts(home, tool) if not each.startswith("..")}
    assert shown == {"project/bin/tool", "project/lib"}
    (home / "project/lib/ruby").mkdir()
    shown = {each for each in parts(home, tool) if not each.startswith("..")}
    assert shown == {"project/bin", "project/lib", "project/share"}


def test_a_script_in_bin_of_a_package_is_that_package(home: Path) -> None:
    (home / "app/bin").mkdir()
    (home / "app/package.json").touch()
    file(home / "app/.env")
    shown = {"app/bin/tool", "app/bin", "app/src", "app/node_modules", "app/package.json"}
    assert parts(home, file(home / "app/bin/tool", "#!/usr/bin/env none\n")) == {"app/bin/tool"}
    file(home / "node/bin/node")
    assert parts(home, file(home / "app/bin/tool", "#!/usr/bin/env node\n")) >= shown | NODE


def test_an_environment_that_was_made_in_a_home_shows_nothing_else_of_it(home: Path) -> None:
    for name in ("lib/python3.13", "share", ".ssh"):
        (home / name).mkdir(parents=True)
    python = file(home / "bin/python")
    assert parts(home, python) == {"bin/python"}
    (home / "pyvenv.cfg").touch()
    assert parts(home, python) == {"bin", "lib", "pyvenv.cfg"}


def test_of_a_package_in_a_home_what_was_installed_is_shown(home: Path) -> None:
    node = file(home / "node/bin/node")
    (home / "package.json").touch()
    (home / "node_modules").mkdir()
    assert parts(home, node, file(home / "server.js")) == {*NODE, "server.js", "package.json", "node_modules"}


def test_a_program_in_a_folder_of_much_else_is_that_one_file(home: Path) -> None:
    assert parts(home, file(home / "bin/own")) == {"bin/own"}
    (home / ".local/bin").mkdir()
    assert parts(home, file(home / ".local/bin/own")) == {".local/bin/own"}
    (home / ".cargo/bin").mkdir(parents=True)
    assert parts(home, file(home / ".cargo/bin/own")) == {".cargo/bin/own"}


@pytest.mark.parametrize("folder", ["/", "/tmp", "/usr", "/home", ".", "..", ".local", ".local/state/toolgate"])
def test_a_folder_that_holds_more_than_one_program_is_wide(home: Path, folder: str) -> None:
    assert is_wide(os.path.join(home, folder), [str(home)], str(home / ".local/state/toolgate"))


def test_the_homes_of_all_users_are_wide_and_what_is_hidden_in_them(home: Path) -> None:
    mine = str(home / "venv")
    assert {os.path.realpath(mine), "/root"} <= set(homes(mine))
    ann = (str(home / "ann"),)
    for folder, is_so in (("ann", True), ("ann/.local", True), (".", True), ("ann/project", False)):
        assert is_wide(os.path.join(home, folder), ann, str(home / "state")) == is_so
    assert is_wide("/home/somebody", (), str(home / "state"))


def test_what_a_box_shows_of_a_program_is_told_by_folders() -> None:
    shown = ["/usr/lib", "/a/bin/tool", *(f"/a/{name}" for name in "bcdefghi"), "/a/bin/tool"]
    assert told(shown) == "/a/bin/tool, /a/{b, c, d, e, 4 more}"
    assert told(["/bin/sh"]) == ""


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
    assert parts(home, file(home / "venv/bin/own", f"#!{home}/private/bin/tool\n")) == VENV
    (home / "venv/bin/link").symlink_to(home / "private/bin/tool")
    assert parts(home, str(home / "venv/bin/link")) == VENV | {"private/bin/tool"}
