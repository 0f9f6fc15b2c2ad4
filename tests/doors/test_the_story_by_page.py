"""The story of an operator, by page alone: import a client's configuration, see servers come up, try a tool, deny it
for a client, approve a call with other arguments, watch it in live traffic, find it in the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doors.issuers import KEYS
from doors.test_live_traffic import calls, pass_time, watched
from doors.test_operator_pages import until_written
from inmemory import Scripted, Visitor, of_file, said, tools
from reader import signed_in
from virtualtime import FakeClock

from toolgate.core.redaction import Redactor
from toolgate.state.audit import Trail

CURSOR = {"mcpServers": {"files": {"command": "npx", "args": ["-y", "files@1"], "env": {"FILES_TOKEN": "abc-of-ann"}}}}
FILE = f"""# The gateway of a team.
[[clients]]
id = "ann"
key = "{KEYS["ada"]}"
mcp_server_access = "all"
mcp_permissions = {{ tools = {{ "files__write" = "ask" }} }}

[approvals]
by = ["operator"]
wait = "0s"
"""


@pytest.mark.promise("b.operator.story")
async def test_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    path, clock = tmp_path / "toolgate.toml", FakeClock()
    path.write_text(FILE)
    files = Scripted(tools_list=tools("read", "write"), tools_call=said("done"))
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    async with of_file(path, {"files": files}, audit=trail, clock=clock) as app:
        reader = await signed_in(app)

        # Import a client's configuration.
        await reader.open("/ui/import")
        page = await reader.press("/ui/import", text=json.dumps(CURSOR), name="mcp.json", dialect="cursor")
        assert "run npx -y files@1" in page.text and "abc-of-ann" not in page.text
        page = await reader.press("/ui/import")
        assert "Added: files." in page.text and "files configured" in page.text

        # See servers come up.
        await reader.open("/ui/servers/files")
        assert "It is ready and lists 2 tools." in (await reader.press("/ui/servers/files/check")).text

        # Try a tool.
        await reader.open("/ui/tools/tool?name=files__read")
        assert "Result done" in (await reader.press("/ui/tools/try", json='{"path": "/a"}')).text

        # Deny it for a client.
        await reader.open("/ui/access/ann")
        page = await reader.press("/ui/access/ann", set='["files", "read", "off"]')
        assert "read files off mcp_permissions.tools: files__read" in page.text
        ann = Visitor(app, authorization=f"Bearer {KEYS['ada']}")
        refused = (await ann.ask_modern("tools/call", name="files__read", arguments={})).last
        assert "ACCESS_DENIED" in json.dumps(refused)

        # Approve a call with other arguments, and watch it in live traffic.
        watching = await watched(app, reader)
        asked = (await ann.ask_modern("tools/call", name="files__write", arguments={"path": "/etc/passwd"})).last
        assert "APPROVAL_REQUIRED" in json.dumps(asked)
        page = await reader.open("/ui")
        assert "write of files waits for your decision" in page.text
        (waiting,) = [each["href"] for each in page.all("a") if each["href"].startswith("/ui/approvals/")]
        await reader.open(waiting)
        page = await reader.press(waiting, decision="allow", lasts="once", arguments='{"path": "/tmp/a"}')
        assert "The call was allowed with other arguments." in page.text
        done = (await ann.ask_modern("tools/call", name="files__write", arguments={"path": "/etc/passwd"})).last
        assert "done" in json.dumps(done)
        assert files.requests[-1]["params"]["arguments"] == {"path": "/tmp/a"}
        await pass_time(app)
        assert [(each["target"], each["outcome"]) for each in calls(watching)][-1] == ("write", "done")

        # Find it in the audit.
        await until_written(clock, trail, 11)
        page = await reader.open("/ui/audit?q=files")
        for event in ("configuration.import", "access.edit", "approvals.allow"):
            assert event in page.text, event
        assert "allow files write done" in page.text
        await reader.press("/ui/audit/verify")
        assert "Every line is as it was written" in reader.page.text
        await watching.gone()
    await trail.close()
    assert path.read_text().startswith("# The gateway of a team.")
