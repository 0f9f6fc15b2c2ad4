"""A server on the Rust SDK, which ends over a first message other than `initialize`: it starts, whoever comes first."""

from __future__ import annotations

import installed
import pytest
from processes.ground import gateway, real, settings

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(installed.missing_rust()), reason=installed.missing_rust() or ""),
]
SERVER = installed.RUST / "target" / "debug" / "first-message"


@pytest.mark.promise("b.rulings.16-first-message")
@pytest.mark.parametrize("scope", ["shared", "principal", "session"])
@pytest.mark.parametrize("first", ["2025-11-25", "2026-07-28"])
@real
async def test_a_server_on_the_rust_sdk_starts_whoever_comes_first(scope: str, first: str) -> None:
    async with gateway(settings(one={"command": str(SERVER), "scope": scope})) as served:
        pids = [await served.client(era).call("one__pid") for era in (first, "2025-11-25", "2026-07-28")]
        assert all(pid.isdigit() for pid in pids)
        assert len(set(pids)) == 1 or scope == "session"
        assert served.status("one").revision == "2025-11-25"
