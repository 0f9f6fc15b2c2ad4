"""`toolgate approvals`: what waits is shown as it is, and what is decided is what was shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app
from toolgate.core.clock import SystemClock
from toolgate.policy.approvals import Approvals, Place, Shown, StoredRequest
from toolgate.state import SqliteStore

Found = TypeVar("Found")

PLACE = Place("client:ci", "files", "", "tools", "delete_file")
SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}).encode()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the gateway keeps things in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "toolgate"


def kept(folder: Path, work: Callable[[Approvals], Awaitable[Found]]) -> Found:
    """As a gateway would see it."""

    async def whole() -> Found:
        store = SqliteStore(folder, SystemClock())
        try:
            return await work(Approvals(store, SystemClock()))
        finally:
            await store.close()

    return asyncio.run(whole())


def ask(folder: Path, **more: Any) -> StoredRequest:
    digest = more.pop("digest", "d1")

    async def shown() -> Shown:
        return {"shown": '{"path": "/tmp/a"}', **more}

    return kept(folder, lambda book: book.ask(PLACE, digest, 900.0, shown))


def found(folder: Path, digest: str = "d1") -> StoredRequest | None:
    async def work(book: Approvals) -> StoredRequest | None:
        return book.find(PLACE, digest)

    return kept(folder, work)


def toolgate(*arguments: str, input: str | None = None) -> Result:
    result = CliRunner().invoke(app, ["approvals", *arguments], input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_what_waits_is_listed_and_shown(here: Path) -> None:
    assert toolgate("list").stdout == "no calls are waiting\n"
    request = ask(here, via="mcp_call")
    (line,) = toolgate("list").stdout.splitlines()
    assert line.startswith(request.id) and '"files" "delete_file" for "client:ci"' in line and "15 min" in line
    assert toolgate("show", request.id).stdout.splitlines()[:8] == [
        '- Caller: "client:ci"',
        '- Server: "files"',
        '- Tool: "delete_file"',
        '- Called through: "mcp_call"',
        "- Arguments:",
        "",
        "    {",
        '      "path": "/tmp/a"',
    ]
    (row,) = json.loads(toolgate("list", "--json").stdout)
    assert row == json.loads(toolgate("show", request.id, "--json").stdout)
    assert (row["target"], row["arguments"]) == ("delete_file", '{"path": "/tmp/a"}')


def test_a_call_is_shown_again_before_it_is_allowed(here: Path) -> None:
    request = ask(here)
    no = toolgate("allow", request.id, input="n\n")
    assert no.exit_code == 1 and '"/tmp/a"' in no.stdout and "Allow this one call?" in no.stdout
    assert toolgate("allow", request.id, input="").exit_code == 1
    assert found(here) == request
    assert toolgate("allow", request.id, input="y\n").exit_code == 0
    allowed = found(here)
    assert allowed and (allowed.state, allowed.lasts) == ("allowed", "once")


def test_what_was_not_used_yet_can_be_decided_otherwise(here: Path) -> None:
    request = ask(here)
    for command, state in (("allow", "allowed"), ("deny", "denied"), ("allow", "allowed")):
        assert toolgate(command, request.id, *(["-y"] if command == "allow" else [])).exit_code == 0
        decided = found(here)
        assert decided and decided.state == state
    kept(here, lambda book: book.use(decided))
    used = toolgate("deny", request.id)
    assert used.exit_code == 1 and "it may have been used" in used.stderr


def test_a_tool_is_allowed_for_a_while_and_that_is_revoked(here: Path) -> None:
    request = ask(here)
    assert toolgate("allow", request.id, "--for", "hour", "-y").exit_code == 0
    (row,) = json.loads(toolgate("grants", "--json").stdout)
    assert (row["lasts"], row["by"], row["target"]) == ("hour", "operator", "delete_file")
    assert "60 min" in toolgate("grants").stdout
    assert toolgate("revoke", row["id"]).stdout == "revoked\n"
    assert toolgate("grants").stdout == "no grants\n"
    assert toolgate("revoke", row["id"]).exit_code == 1


def test_a_call_is_denied(here: Path) -> None:
    request = ask(here)
    assert toolgate("deny", request.id).stdout == "denied\n"
    denied = found(here)
    assert denied and denied.state == "denied"


def test_other_arguments_are_shown_and_fit_the_tool(here: Path) -> None:
    request = ask(here, schema=SCHEMA)
    for written, why in (
        ("[1]", "not a JSON object"),
        ("{", "not valid JSON"),
        ('{"n":"x"}', "do not fit the tool: /n"),
        ('{"n":1,"n":2}', "duplicate"),
    ):
        refused = toolgate("allow", request.id, "--arguments", written, "-y")
        assert refused.exit_code == 2 and why in refused.stderr
    assert found(here) == request
    allowed = toolgate("allow", request.id, "--arguments", '{"n": 2}', "-y")
    assert "It will be called with these arguments instead:" in allowed.stdout and '"n": 2' in allowed.stdout
    decided = found(here)
    assert decided and decided.edited == '{"n": 2}'


def test_what_cannot_be_is_said(here: Path) -> None:
    request = ask(here)
    assert toolgate("allow", request.id, "--for", "ever", "-y").exit_code == 2
    no_session = toolgate("allow", request.id, "--for", "session", "-y")
    assert no_session.exit_code == 1 and "no session" in no_session.stderr
    assert found(here) == request
    for command in ("show", "allow", "deny"):
        unknown = toolgate(command, "no\x1b[2Jpe")
        assert unknown.exit_code == 1 and r"no\u001b\u005b2Jpe" in unknown.stderr
    (here / "toolgate.db").unlink()
    here.chmod(0o755)
    (here / "toolgate.db").mkdir()
    unreadable = toolgate("list")
    assert unreadable.exit_code == 1 and "Cannot read" in unreadable.stderr


def test_nothing_that_a_stranger_wrote_reaches_the_terminal_as_it_is(here: Path) -> None:
    async def work(book: Approvals) -> StoredRequest:
        place = Place("a\x1b]0;x\x07", "files", "", "tools", "x\n- Server: \u202ebank")

        async def shown() -> Shown:
            return {"shown": '{"\\u001b[2J": "\\n"}', "known_as": "\r", "via": "mcp_call"}

        return await book.ask(place, "d", 900.0, shown)

    request = kept(here, work)
    for command in (("list",), ("show", request.id), ("allow", request.id, "-y")):
        shown = toolgate(*command).stdout
        assert not set(shown) & set("\x1b\x07\r\u202e")
        assert shown.count("- Server:") <= 1 or "\\n- Server:" in shown


def test_what_was_decided_is_in_the_audit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_CONFIG", "toolgate.json")
    (here.parent / "toolgate.json").write_text(json.dumps({"mcpServers": {}, "audit": {"enabled": True}}))
    request = ask(here)
    toolgate("allow", request.id, "--for", "always", "-y")
    toolgate("deny", request.id)
    toolgate("revoke", json.loads(toolgate("grants", "--json").stdout)[0]["id"])
    noted = [json.loads(line) for line in (here / "audit.jsonl").read_text().splitlines()]
    events = [
        (each["event"], each["principal"], each["server"], each["target"]) for each in noted if "principal" in each
    ]
    assert events == [
        (f"approvals.{what}", "client:ci", "files", "delete_file") for what in ("allow", "deny", "revoke")
    ]
    assert noted[0]["lasts"] == "always" and noted[0]["sha256"] == "d1"
