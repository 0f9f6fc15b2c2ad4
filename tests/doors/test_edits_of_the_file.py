"""The configuration file edited by page: its text, servers of another program's file, what a client may do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from doors.issuers import KEYS
from inmemory import GREETER, Scripted, Visitor, gateway, of_file, said, tools
from reader import Reader, signed_in
from virtualtime import FakeClock

from toolgate.config import trust
from toolgate.core.redaction import Redactor
from toolgate.frontends.web.ui import LONGEST_FORM
from toolgate.state.audit import Trail

TOKEN = "ghp_abcdefghijklmnopqrstuvwx0123"
WRITTEN = f"""# whose: ann
[mcpServers.there]
command = "there"  # ours
env = {{ API_KEY = '{TOKEN}', MODE = "short" }}

[[clients]]
id = "ann"
key = "{KEYS["ada"]}"
mcp_server_access = "all"
"""
THEIRS = json.dumps(
    {"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TIME_TOKEN": TOKEN}}}}
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "toolgate.toml"
    file.write_text(WRITTEN)
    return file


def there() -> dict[str, Any]:
    return {"there": Scripted(tools_list=tools("read", "delete", "a*"), tools_call=said("done"))}


async def listed(app: Any) -> Reader:
    """A reader who has had the server listed."""
    reader = await signed_in(app)
    await reader.open("/ui/servers/there")
    await reader.press("/ui/servers/there/check")
    return reader


async def edited(reader: Reader, old: str, new: str, status: int = 200) -> str:
    """What the page says once its text was edited and sent."""
    await reader.open("/ui/configuration/edit")
    text = reader.page.value("text")
    assert old in text, text
    return (await reader.press("/ui/configuration/edit", status, text=text.replace(old, new))).text


# Its text.


@pytest.mark.promise("b.operator.edits")
async def test_the_file_is_edited_and_served_and_its_secrets_are_seen_by_nobody_and_stay(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        page = await reader.open("/ui/configuration/edit")
        text = page.value("text")
        assert "# whose: ann" in text and 'command = "there"  # ours' in text
        assert TOKEN not in str(page.elements) + text and KEYS["ada"] not in text and "short" not in text
        assert "Saved, and served." in await edited(reader, 'mcp_server_access = "all"', "mcp_server_access = []")
        assert path.read_text() == WRITTEN.replace('mcp_server_access = "all"', "mcp_server_access = []")
        assert app.gateway.snapshot.config.clients[0].servers == ()
        assert app.gateway.snapshot.config.servers[0].env["API_KEY"] == TOKEN


@pytest.mark.promise("b.operator.edits")
async def test_of_two_editors_the_later_one_is_told_and_overwrites_nothing(path: Path) -> None:
    async with of_file(path, there()) as app:
        one, other = await signed_in(app), await signed_in(app)
        await one.open("/ui/configuration/edit")
        await edited(other, "ours", "theirs")
        text = one.page.value("text").replace("ours", "mine")
        page = await one.press("/ui/configuration/edit", 409, text=text)
        assert "written by somebody else since it was shown" in page.text and "# mine" in page.value("text")
        assert path.read_text() == WRITTEN.replace("ours", "theirs")


async def test_what_somebody_says_to_paste_gets_no_secret_of_another_server(path: Path) -> None:
    pasted = "".join(
        f'[mcpServers.of-{at}]\nurl = "https://a.example/"\nheaders = {{ X = "***{at}***" }}\n' for at in (1, 2)
    )
    async with of_file(path, there()) as app:
        await edited(await signed_in(app), "[[clients]]", f"{pasted}[[clients]]", 200)
    assert (
        TOKEN not in path.read_text().partition("of-1")[2].partition("[[clients]]")[0]
        and 'X = "***1***"' in path.read_text()
    )


@pytest.mark.parametrize(
    ("old", "new", "status", "says"),
    [
        ("command =", "comand =", 400, "comand"),
        ("command =", "command", 400, "Nothing was written"),
        ("-1***", "-9***", 409, "leave masks as they are"),
        ('-1***"', "-1***'", 409, "leave masks as they are"),
        ("# ours", "", 200, "Saved"),
        ("nothing is other", "nothing is other", 409, "says so already"),
        ('id = "ann"', 'id = "ann"\nclaims = { sub = "x" }', 400, "no `auth.issuer` issues tokens"),
        ('command = "there"', 'command = "${NOT_SET_ANYWHERE}"', 400, "NOT_SET_ANYWHERE"),
    ],
)
async def test_what_config_check_refuses_is_not_saved(path: Path, old: str, new: str, status: int, says: str) -> None:
    path.write_text(path.read_text().replace("# whose: ann", "# nothing is other"))
    before = path.read_bytes()
    async with of_file(path, there()) as app:
        snapshot = app.gateway.snapshot
        assert says in await edited(await signed_in(app), old, new, status)
        if status != 200:
            assert path.read_bytes() == before and app.gateway.snapshot is snapshot


async def test_what_was_wrong_before_keeps_nobody_from_editing_something_else(path: Path) -> None:
    path.write_text(path.read_text() + '[mcpServers.other]\ncommand = "${NOT_SET_ANYWHERE}"\n')
    async with of_file(path, there()) as app:
        assert "Saved" in await edited(await signed_in(app), "ours", "mine")


async def test_an_edit_that_takes_guards_away_is_confirmed_first(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        await reader.open("/ui/configuration/edit")
        text = reader.page.value("text")
        without = text[: text.index("[[clients]]")]
        page = await reader.press("/ui/configuration/edit", 409, text=without)
        assert "every program on this machine could call every tool" in page.text and path.read_text() == WRITTEN
        page = await reader.press("/ui/configuration/edit", text=page.value("text"))
        assert "Saved" in page.text and app.gateway.snapshot.config.is_open


async def test_a_file_that_cannot_be_shown_safely_is_not_edited_here(path: Path) -> None:
    path.write_text(path.read_text().replace("# ours", "# \u202eours"))
    async with of_file(path, there()) as app:
        page = await (await signed_in(app)).open("/ui/configuration/edit")
        assert "Edit it by hand" in page.text and "\u202e" not in page.text and not page.all("textarea")


async def test_a_file_that_is_broken_is_repaired_here(path: Path) -> None:
    async with of_file(path, there()) as app:
        path.write_text(WRITTEN.replace("mcp_server_access", "mcp_server_acces"))
        reader = await signed_in(app)
        page = await reader.open("/ui/configuration/edit")
        assert TOKEN not in page.value("text") and KEYS["ada"] not in page.value("text")
        assert "Saved" in await edited(reader, "mcp_server_acces ", "mcp_server_access ")
        assert path.read_text() == WRITTEN


async def test_line_ends_of_the_file_stay(path: Path) -> None:
    path.write_bytes(WRITTEN.replace("\n", "\r\n").encode())
    async with of_file(path, there()) as app:
        assert "Saved" in await edited(await signed_in(app), "ours", "mine")
        assert path.read_bytes() == WRITTEN.replace("ours", "mine").replace("\n", "\r\n").encode()


async def test_a_file_that_was_found_and_trusted_stays_trusted(path: Path) -> None:
    trust.keep(path, path.read_bytes(), os.environ)
    async with of_file(path, there()) as app:
        assert "Saved" in await edited(await signed_in(app), "ours", "mine")
        trust.check(path, path.read_bytes(), os.environ)
        path.write_text(WRITTEN + "# by hand")
        reader = await signed_in(app)
        await reader.open("/ui/configuration/edit")
        page = await reader.press("/ui/configuration/edit", 409, text=reader.page.value("text") + "# x")
        assert "has changed since it was trusted" in page.text and path.read_text() == WRITTEN + "# by hand"


async def test_the_audit_has_who_edited_the_file(path: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    async with of_file(path, there(), audit=trail, clock=clock) as app:
        await edited(await signed_in(app), "ours", "mine")
    await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (line,) = [each for each in lines if each["event"] == "configuration.edit"]
    assert line["who"] == "local" and line["file"] == str(path) and len(line["before"]) == len(line["after"]) == 64
    assert TOKEN not in json.dumps(lines)


async def test_a_gateway_without_a_file_says_so() -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        assert "no configuration file" in (await reader.open("/ui/configuration/edit")).text
        await reader.open("/ui/import")
        assert "no configuration file" in (await reader.press("/ui/import", 409, text=THEIRS, name="mcp.json")).text


# Servers of another program.


async def test_servers_of_another_program_are_shown_with_what_they_run_and_then_added(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        await reader.open("/ui/import")
        page = await reader.press("/ui/import", text=THEIRS.replace(" ", "\r\n"), name="mcp.json")
        assert "run uvx mcp-server-time" in page.text and "TIME_TOKEN=${secret:time-token}" in page.text
        assert TOKEN not in page.text and "Secrets that would be kept" in page.text
        assert path.read_text() == WRITTEN and "time" not in app.gateway.snapshot.servers
        page = await reader.press("/ui/import")
        assert "Added: time." in page.text and "time" in app.gateway.snapshot.servers
        assert path.read_text().startswith(WRITTEN) and TOKEN not in path.read_text().removeprefix(WRITTEN)
        assert app.gateway.snapshot.config.servers[-1].env == {"TIME_TOKEN": TOKEN}


async def test_what_was_not_looked_at_is_not_imported(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        await reader.open("/ui/import")
        await reader.press("/ui/import", text=THEIRS, name="mcp.json")
        other = THEIRS.replace("mcp-server-time", "evil")
        assert "not the plan that was looked at" in (await reader.press("/ui/import", 409, text=other)).text
        assert path.read_text() == WRITTEN


GIVEN = json.dumps(
    {
        "mcpServers": {
            "docs": {"url": "http://192.0.2.1/mcp", "headers": {"A": "${secret:b}"}},
            "plain": {"command": "x"},
        }
    }
)


@pytest.mark.promise("b.operator.import")
async def test_who_is_given_a_secret_is_agreed_to_by_page(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        await reader.open("/ui/import")
        page = await reader.press("/ui/import", text=GIVEN, name="mcp.json")
        assert "Give the secret b to http://192.0.2.1/mcp, as docs" in page.text
        assert [each for each in page.all("input") if each.get("type") == "checkbox" and "checked" in each] == []
        given = {each["name"]: each["value"] for each in page.all("input") if each.get("type") == "checkbox"}
        forged = dict.fromkeys(given, "the secret b to http://192.0.2.1/mcp")
        page = await reader.press("/ui/import", 200, **forged)
        assert "Added: plain." in page.text and "192.0.2.1" not in path.read_text()
        await reader.open("/ui/import")
        await reader.press("/ui/import", text=GIVEN, name="mcp.json")
        assert "Added: docs." in (await reader.press("/ui/import", 200, **given)).text
        assert "${secret:b}" in path.read_text()


async def test_nothing_is_written_where_nothing_was_agreed_to(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        text = json.dumps({"mcpServers": {"docs": {"url": "http://192.0.2.1/mcp", "headers": {"A": "${KEY}"}}}})
        await reader.open("/ui/import")
        await reader.press("/ui/import", text=text, name="mcp.json")
        said = (await reader.press("/ui/import", 409)).text
        assert "docs was left out: nobody agreed to give the variable KEY to http://192.0.2.1/mcp, as docs" in said
        assert path.read_text() == WRITTEN


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"text": "[", "name": "mcp.json"}, "mcp.json"),
        ({"text": "{}", "name": "mcp.json", "dialect": "no such"}, "unknown dialect"),
        ({"text": THEIRS, "name": "x" * 300}, "Invalid body"),
        ({"text": "[" * 100_000, "name": "mcp.json"}, "nested too deeply"),
    ],
)
async def test_a_file_that_cannot_be_imported_says_why(path: Path, form: dict[str, str], says: str) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        await reader.open("/ui/import")
        status = 409 if "dialect" in form else 400
        assert says in (await reader.press("/ui/import", status, **form)).text
        assert path.read_text() == WRITTEN


async def test_nothing_is_read_by_a_path_that_a_browser_names(path: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("STOLEN=stolen-value")
    (tmp_path / "there.json").write_text(THEIRS)
    env_file = {"command": "x", "envFile": str(tmp_path / ".env")}
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        for called in (str(tmp_path / "there.json"), "../there.json", "/etc/passwd.json"):
            await reader.open("/ui/import")
            text = json.dumps({"mcpServers": {"s": env_file, "t": {"command": "${STOLEN}"}}})
            page = await reader.press("/ui/import", text=text, name=called)
            assert "stolen-value" not in page.text and "mcp-server-time" not in page.text


async def test_a_file_that_attacks_the_page_is_only_text(path: Path) -> None:
    evil = "</code></li><script>alert(1)</script>\u202e"
    hostile = json.dumps({"mcpServers": {evil: {"command": evil, "args": [evil], "env": {"A": evil}}}})
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        await reader.open("/ui/import")
        page = await reader.press("/ui/import", text=hostile, name=evil.replace("/", "") + ".json")
        assert "<script>alert(1)</script>\\u{202e}" in page.text and "\u202e" not in page.text


async def test_a_file_that_is_too_large_is_refused(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await signed_in(app)
        form = {"csrf": reader.page.hidden["csrf"], "text": "x" * LONGEST_FORM}
        assert (await reader.send("POST", "/ui/import", form)).status == 413


# What a client may do.


def button(reader: Reader, says: str) -> str:
    return next(each["value"] for each in reader.page.all("button") if each.get("aria-label", "") == says)


@pytest.mark.promise("b.operator.edits")
async def test_a_tool_is_denied_for_a_client_and_allowed_again_and_each_cell_says_why(path: Path) -> None:
    async with of_file(path, there()) as app:
        reader = await listed(app)
        page = await reader.open("/ui/access/ann")
        assert "delete there allow mcp_server_access, and no permission that says less" in page.text
        page = await reader.press("/ui/access/ann", set=button(reader, "Deny: delete of there"))
        assert "delete of there is off for ann." in page.text
        assert "delete there off mcp_permissions.tools: there__delete" in page.text
        assert "read there allow" in page.text and "# ours" in path.read_text()
        ann = Visitor(app, authorization=f"Bearer {KEYS['ada']}")
        refused = (await ann.ask_modern("tools/call", name="there__delete", arguments={})).last
        assert "ACCESS_DENIED" in json.dumps(refused)
        page = await reader.press("/ui/access/ann", set=button(reader, "As its server: delete of there"))
        assert "delete there allow mcp_server_access" in page.text and "delete" not in path.read_text()


@pytest.mark.parametrize("format", ["json", "yaml"])
async def test_files_of_each_format_are_edited_so(path: Path, format: str) -> None:
    ann = {"id": "ann", "key": KEYS["ada"], "mcp_server_access": "all"}
    bob = {"id": "bob", "key": KEYS["bob"], "mcp_permissions": {"tools": {"there__read": "ask"}}}
    tree = {"mcpServers": {"there": {"command": "x"}}, "clients": [bob, ann]}
    file = path.with_suffix(f".{format}")
    file.write_text(json.dumps(tree, indent=2))
    if format == "yaml":
        file.write_text(
            "# mine\nmcpServers:\n  there: {command: x}\nclients:\n"
            f"- id: bob\n  key: {KEYS['bob']}\n  mcp_permissions:\n    tools:\n      there__read: ask\n"
            f"- id: ann  # me\n  key: {KEYS['ada']}\n  mcp_server_access: all\n"
        )
    async with of_file(file, there()) as app:
        reader = await listed(app)
        for client, word, says in (("ann", "Deny", "off"), ("bob", "Allow", "allow"), ("bob", "As its server", "off")):
            await reader.open(f"/ui/access/{client}")
            page = await reader.press(f"/ui/access/{client}", set=button(reader, f"{word}: read of there"))
            assert f"read there {says}" in page.text
        assert ("# me" in file.read_text()) == (format == "yaml")


async def test_a_verdict_that_another_rule_overrules_is_not_written(path: Path) -> None:
    path.write_text(path.read_text().replace('"all"', '["other"]'))
    before = path.read_text()
    async with of_file(path, there()) as app:
        reader = await listed(app)
        page = await reader.open("/ui/access/ann")
        assert "read there off mcp_server_access, which does not name the server" in page.text
        page = await reader.press("/ui/access/ann", 409, set=button(reader, "Allow: read of there"))
        assert "it would still be off, by mcp_server_access" in page.text and path.read_text() == before


@pytest.mark.parametrize(
    ("set", "status"),
    [
        ('["there", "a*", "allow"]', 409),
        ('["there", "nothing", "allow"]', 404),
        ('["nowhere", "read", "allow"]', 404),
        ('["there", "read", "maybe"]', 400),
        ("[", 400),
        ("", 400),
    ],
)
async def test_no_button_that_nobody_was_shown_changes_anything(path: Path, set: str, status: int) -> None:
    async with of_file(path, there()) as app:
        reader = await listed(app)
        await reader.open("/ui/access/ann")
        await reader.press("/ui/access/ann", status, set=set)
        assert path.read_text() == WRITTEN
