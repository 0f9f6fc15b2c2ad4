"""What a server says acts on no terminal: it is written out there, and left as it is in pipes."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import pytest

from toolgate import cli
from toolgate.cli import audit, preflight, printing

ACTS = "A\x1b]52;c;cHdu\x07B\u009b31mC\u202eD\rE\x08F\u2066G\u200bH\x7f\ud83d"
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


RAW = re.compile(r"typer\.echo\([^\n]*(?:\.decode\(|ensure_ascii=False)")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("err", [False, True])
def test_on_a_terminal_it_is_written_out_and_in_a_pipe_it_is_as_it_was(
    err: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "stderr" if err else "stdout"
    text = f"one\r\n\ttwo \u00e9\u6f22\U0001f600\n{ACTS}"
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, name, stream)
        printing.say(text, err=err)
        shown = stream.getvalue()
        if isinstance(stream, Terminal):
            assert shown.startswith("one\n\ttwo \u00e9\u6f22\U0001f600\nA\\u{1b}]52;c;cHdu\\u{7}B\\u{9b}31mC\\u{202e}D")
            assert not ACTIVE.search(shown)
        else:
            assert shown == f"{text}\n"


def test_json_is_escaped_and_is_the_same_json(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"text": ACTS.replace("\ud83d", "") + "\u00e9\u6f22\U0001f600\U000e0041"}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", stream)
        text = json.dumps(said, ensure_ascii=False, indent="\t")
        printing.say_json(text)
        assert json.loads(stream.getvalue()) == said
        if isinstance(stream, Terminal):
            assert not ACTIVE.search(stream.getvalue()) and "\u00e9\u6f22\U0001f600" in stream.getvalue()
        else:
            assert stream.getvalue() == f"{text}\n"


def test_a_report_in_json_is_written_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    preflight._print_json(  # pyright: ignore[reportPrivateUsage]
        preflight.Report(ok=True, version="1", configuration=ACTS.replace("\ud83d", ""), checks=())
    )
    assert "202e" in stream.getvalue() and not ACTIVE.search(stream.getvalue())


@pytest.mark.parametrize("is_terminal", [True, False])
def test_exported_lines_of_the_audit_log_are_written_out_too(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps({"target": ACTS.replace("\ud83d", "")}, ensure_ascii=False).encode()
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    audit._write_lines([line])  # pyright: ignore[reportPrivateUsage]
    written = stream.buffer.getvalue()  # type: ignore[attr-defined]
    if is_terminal:
        assert b"202e" in written and not ACTIVE.search(written.decode().rstrip("\n"))
    else:
        assert written == line + b"\n"


def test_no_command_prints_bytes_of_others_past_that() -> None:
    """`json.dumps` escapes them by itself; what is passed on as it came does not."""
    found = {path.name for path in Path(cli.__file__).parent.glob("*.py") if RAW.search(path.read_text())}
    assert found <= {"config.py", "launchd.py"}  # the schema of our own keys, and a file for launchd


def test_why_a_command_ends_is_written_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with pytest.raises(SystemExit):
        printing.fail(f"it said {ACTS}")
    assert not ACTIVE.search(stream.getvalue())


WRITTEN = ACTS.replace("\ud83d", "")
FILES = [
    {"mcpServers": {"a": {"command": f"uvx{WRITTEN}", "args": [WRITTEN], "env": {"A": WRITTEN}}}},
    {"mcpServers": {f"a{WRITTEN}": {"url": f"https://a.example/{WRITTEN}"}, "b": {"command": "x", "box": "profile"}}},
    {"mcpServers": {"a": {"command": "${NOT_SET}", "args": [WRITTEN], f"k{WRITTEN}": 1}}},
    {"mcpServers": {"a": {"command": "x"}}, "clients": [{"id": "c", "mcp_server_access": [f"s{WRITTEN}"]}]},
]


@pytest.mark.parametrize("words", [["check"], ["check", "toolgate.json"], ["show"], ["show", "--json"]], ids=" ".join)
@pytest.mark.parametrize("file", FILES, ids=range(len(FILES)))
def test_a_file_of_a_stranger_is_written_out_before_it_is_trusted(
    words: list[str], file: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolgate.json").write_text(json.dumps(file))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shown = {name: Terminal() for name in ("stdout", "stderr")}
    for name, stream in shown.items():
        monkeypatch.setattr(sys, name, stream)
    with contextlib.suppress(SystemExit):
        cli.app(["config", *words])
    said = "".join(stream.getvalue() for stream in shown.values())
    assert said and not ACTIVE.search(said)


def test_the_result_of_a_call_is_said_and_nothing_else_of_it_printed() -> None:
    source = Path(str(cli.__file__)).with_name("call.py").read_text()
    assert "typer.echo(" not in source and "print(" not in source
