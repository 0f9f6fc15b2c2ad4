"""`toolgate scripts`: what is stored is what was shown, and another text is asked about anew."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app
from toolgate.core.clock import SystemClock
from toolgate.sandbox import stored
from toolgate.sandbox.stored import StoredScripts
from toolgate.state import SqliteStore

TEXT = '// /// toolgate\n// name = "count"\n// description = "Counts.\\u202e"\n// ///\nreturn 1;\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = {"mcpServers": {"a": {"command": "a"}}, "audit": {"enabled": True}}
    (tmp_path / "toolgate.json").write_text(json.dumps(config))
    (tmp_path / "count.js").write_text(TEXT)
    return tmp_path


def toolgate(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, ["scripts", *arguments, "--config", "toolgate.json"], input=input)


def kept(here: Path, name: str = "count") -> str | None:
    async def found() -> str | None:
        store = SqliteStore(here / "state" / "toolgate", SystemClock())
        try:
            script = StoredScripts(store, str(here / "toolgate.json")).get(name)
            return script and script.text
        finally:
            await store.close()

    return asyncio.run(found())


def noted(here: Path) -> list[tuple[str, str]]:
    [file] = (here / "state").rglob("audit.jsonl")
    lines = map(json.loads, file.read_text().splitlines())
    return [(line["event"], line["target"]) for line in lines if line["event"].startswith("scripts.")]


def test_a_script_is_shown_and_asked_about_and_noted(here: Path) -> None:
    said = toolgate("add", "count.js", input="y\n")
    assert said.exit_code == 0, said.output
    assert "return 1;" in said.output and "added gobby-scripts__count" in said.output
    assert kept(here) == TEXT
    assert "count  javascript" in toolgate("list").output
    assert toolgate("show", "count").output == TEXT
    assert toolgate("remove", "count").exit_code == 0
    assert kept(here) is None
    assert noted(here) == [("scripts.add", "count"), ("scripts.remove", "count")]


def test_who_says_no_has_approved_nothing(here: Path) -> None:
    assert toolgate("add", "count.js", input="n\n").exit_code != 0
    assert toolgate("add", "count.js", input="").exit_code != 0
    assert kept(here) is None


def test_another_text_is_shown_with_what_has_changed_and_asked_about_anew(here: Path) -> None:
    toolgate("add", "count.js", input="y\n")
    assert "is approved as it is" in toolgate("add", "count.js").output
    (here / "count.js").write_text(TEXT.replace("return 1", "return 2"))
    said = toolgate("add", "count.js", input="n\n")
    assert "-return 1;" in said.output and "+return 2;" in said.output
    assert kept(here) == TEXT
    assert toolgate("add", "count.js", "--yes").exit_code == 0
    assert "return 2" in (kept(here) or "")


def test_what_would_hide_or_act_on_the_terminal_is_shown(here: Path) -> None:
    text = TEXT.replace("return 1;", "// \u202e fine \x1b[2J\u2028servers.a.b({});\rreturn 1;")
    (here / "count.js").write_text(text, newline="")
    said = toolgate("add", "count.js", input="n\n").output
    assert "\u202e" not in said and "\x1b" not in said and "\r" not in said
    assert "\nservers.a.b({});\n" in said  # it begins a line for JavaScript, and for who reads it


def test_only_the_text_with_this_hash_is_approved_without_asking(here: Path) -> None:
    digest = stored.digest_of(TEXT)
    (here / "count.js").write_text(TEXT + " ")
    assert toolgate("add", "count.js", "--sha256", digest).exit_code == 1
    assert kept(here) is None
    (here / "count.js").write_text(TEXT)
    assert toolgate("add", "count.js", "--sha256", digest).exit_code == 0
    assert kept(here) == TEXT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("return 1", "its first line must be"),
        (TEXT.replace("// ///\nreturn", "return"), "must end with the line"),
        (TEXT.replace('"count"', '"Count"'), "`name` must be"),
        (TEXT.replace('"count"', '"class"'), "`name` must be"),
        (TEXT.replace("// description", "// about"), "unknown key about"),
        (TEXT.replace("// name", "// parameters.type = 'array'\n// name"), "JSON Schema of an object"),
        (TEXT.replace("// name", "// parameters.properties.a.pattern = '('\n// name"), "not a usable JSON Schema"),
        (TEXT.replace("name =", "name ="[:4]), "its head is no TOML"),
        (TEXT + " " * 60_000, "the limit is"),
    ],
)
def test_what_is_no_script_is_not_added_and_says_why(here: Path, text: str, why: str) -> None:
    (here / "count.js").write_text(text)
    said = toolgate("add", "count.js", "--yes")
    assert said.exit_code == 2 and why in said.output
    assert kept(here) is None


def test_python_is_known_by_its_comments() -> None:
    script = stored.read(TEXT.replace("//", "#").replace("# /#/", "# ///").replace("# #/", "# ///"))
    assert script.language == "python"


def test_what_is_not_there_is_said(here: Path) -> None:
    assert toolgate("add", "nowhere.js", "--yes").exit_code == 2
    assert toolgate("show", "nowhere").exit_code == 1
    assert toolgate("remove", "nowhere").exit_code == 1
