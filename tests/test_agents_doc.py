"""docs/agents.md: each snippet, read by the reader of that program's own files, is one server, and that is us."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolgate import config
from toolgate.cli import app, summary
from toolgate.config import Server

PAGE = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()
URL = "http://127.0.0.1:8765/mcp"
KEY = "KEY"
# The program of a section, and whose words its file is in.
DIALECTS = {
    "Claude Code": "claude-code",
    "Claude Desktop": "claude-desktop",
    "Codex": "codex",
    "Cursor": "cursor",
    "VS Code": "vscode",
    "Gemini CLI": "gemini",
    "opencode": "opencode",
    "Zed": "zed",
}
SECTIONS = {text.partition("\n")[0]: text for text in re.split(r"^## ", PAGE, flags=re.M)[1:]}
SNIPPETS = [
    pytest.param(name, file, text, id=f"{name} {number}")
    for name, section in SECTIONS.items()
    for number, (file, text) in enumerate(re.findall(r"^```(?:json|toml) (\S+)\n(.*?)^```", section, re.M | re.S))
]
ONE_OF_US = re.compile(r'(?<=")toolgate(?=":)|(?<=mcp_servers\.)toolgate')  # as a name of a server


def written(folder: Path, file: str, text: str) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def only_server(path: Path, **environ: str) -> Server:
    found = config.load(path, environ)
    assert not found.warnings
    (server,) = found.servers
    assert not server.problem
    return server


def test_each_program_has_a_section_with_all_that_is_wanted() -> None:
    rows = re.findall(r"^\| \[(.*?)\]\(#.*?\) \| (\w+) \|", PAGE, re.M)
    assert [name for name, _ in rows] == list(DIALECTS)
    for name, by in rows:
        snippets = re.findall(r"^```(?:json|toml) ", SECTIONS[name], re.M)
        assert len(snippets) == (2 if by == "HTTP" else 1), name
        assert "Check: " in SECTIONS[name]


@pytest.mark.parametrize(("name", "file", "text"), SNIPPETS)
def test_a_snippet_is_one_server_and_that_is_the_gateway(tmp_path: Path, name: str, file: str, text: str) -> None:
    other, count = ONE_OF_US.subn("gate", text)  # toolgate passes over an entry that means itself
    assert count == 1
    path = written(tmp_path, file, other)
    assert config.recognised(path, {}).name == DIALECTS[name]
    server = only_server(path, TOOLGATE_KEY=KEY)
    if name == "Claude Desktop":
        assert (server.type, server.args[0]) == ("stdio", "stdio")
        assert Path(server.command).is_absolute()
    else:
        keyed = {"Authorization": f"Bearer {KEY}"} if "Authorization" in text or "bearer" in text else {}
        assert (server.type, server.url, server.headers) == ("http", URL, keyed)


@pytest.mark.parametrize(("name", "file", "text"), SNIPPETS)
def test_toolgate_reading_the_same_file_does_not_become_its_own_server(
    tmp_path: Path, name: str, file: str, text: str
) -> None:
    path = written(tmp_path, file, text)
    assert config.load(path, {"TOOLGATE_KEY": KEY}).servers == ()
    checked = CliRunner().invoke(app, ["config", "check", str(path)], env={"TOOLGATE_KEY": KEY, "COLUMNS": "200"})
    assert "is this gateway itself" in checked.output


def test_the_commands_are_those_that_serve_prints() -> None:
    said = [text.strip() for text in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)]
    assert said == [summary.CLIENTS[name][0].format(url=URL, header="") for name in DIALECTS if name in summary.CLIENTS]


def test_the_page_says_of_every_program_that_was_run_what_it_speaks() -> None:
    """`programs.PROGRAMS` of tests/interop has the versions."""
    programs = (Path(__file__).parent / "interop" / "programs.py").read_text()
    run = re.findall(r'^            "([a-z-]+)-([\d.]+)", .*?"(\d{4}-\d\d-\d\d)"', programs, re.M | re.S)
    assert len(run) == 5
    for _, version, revision in run:
        assert f"{version}: {revision}" in PAGE
