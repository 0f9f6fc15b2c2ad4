"""docs/limits.md and docs/audit.md show what is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from virtualtime import FakeClock, play

from toolgate import config
from toolgate.cli.audit import app
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, Principal
from toolgate.policy.arguments import LARGEST
from toolgate.policy.audit import AuditEntry
from toolgate.policy.base import Passed
from toolgate.policy.limits import Limits, Meters
from toolgate.state import audit
from toolgate.state.audit import NOTHING, chained, read_line

DOCS = Path(__file__).parents[1] / "docs"
LIMITS, AUDIT = (DOCS / "limits.md").read_text(), (DOCS / "audit.md").read_text()
ENVIRON = {"CI_KEY": "a-key-that-is-long-enough-for-anybody", "HOME": "/home/ann"}


def block(page: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", page, re.M | re.S)
    assert found
    return found[1]


def read(page: str) -> config.Config:
    return config.read(block(page, "toml"), file="/etc/toolgate/toolgate.toml", environ=ENVIRON, format="toml")


def test_the_refusal_is_what_a_client_gets() -> None:
    shown = json.loads(block(LIMITS, "json"))

    async def conversation() -> None:
        clock = FakeClock()
        rule = Limits(read(LIMITS), Meters(clock))
        who = Client(Principal("client:ci", client="ci"))
        for number in range(60):
            call = Call("tools/call", "create_issue", who, server=f"s{number}")
            passed = rule.before(call, False)
            rule.ended(call, Done(b"{}"), passed.ticket if isinstance(passed, Passed) else None)
        await clock.advance(0.2)
        with pytest.raises(Fault) as caught:
            rule.before(Call("tools/call", "create_issue", who, server="github"), False)
        fault = caught.value.at("github", "create_issue")
        assert {"code": fault.rpc, "message": fault.message, "data": fault.data()} == shown

    play(conversation())


def test_the_example_of_the_audit_is_read() -> None:
    found = read(AUDIT)
    assert audit.is_on(found)
    assert audit.place(found, ENVIRON) == Path("/etc/toolgate/audit.jsonl")
    assert found.audit == config.Audit(enabled=True, path="audit.jsonl")


def test_a_line_has_the_members_that_are_shown() -> None:
    shown = json.loads(block(AUDIT, "json"))
    record = {name: each for name, each in shown.items() if name not in ("seq", "prev", "hash")}
    written, _ = chained(NOTHING, [b"{}", json.dumps(record).encode()][1:])
    assert read_line(written.strip())
    assert list(json.loads(written)) == list(shown)
    assert set(record) <= set(AuditEntry.__struct_fields__)
    assert [name for name in AuditEntry.__struct_fields__ if name in record] == list(record)


def test_what_is_said_of_sizes_is_so() -> None:
    assert f"up to {LARGEST // 1024} KiB" in AUDIT
    assert f"up to {audit.MOST_WAITING // 1024 // 1024} MiB" in AUDIT
    assert f"some {audit.GATHER * 1000:.0f} ms" in AUDIT


def test_every_command_that_is_named_is_there() -> None:
    there = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert set(re.findall(r"toolgate audit (\w+)", AUDIT)) == there
