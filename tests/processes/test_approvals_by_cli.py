"""A call waits in a gateway, and an operator decides on it in another process, by `toolgate approvals`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from processes.ground import LEGACY, MODERN, Client, Failed, Served, child, failure, gateway, real, settings

from toolgate.config import access
from toolgate.core.clock import SystemClock
from toolgate.core.model import Call
from toolgate.core.redaction import Redactor
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import Approvals
from toolgate.policy.validate import Validate
from toolgate.state import SqliteStore

ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])


@contextlib.asynccontextmanager
async def asking(folder: Path, wait: float) -> AsyncIterator[Served]:
    """A gateway whose calls ask an operator, with a store on disk."""
    clock = SystemClock()
    store = SqliteStore(folder, clock)

    def verdict(call: Call) -> access.Verdict:
        return "ask"

    by = access.Approvals(by=("operator",), wait=wait)
    rule = Approval(verdict, Approvals(store, clock), by, Redactor(), clock, {}, [Validate().check])
    async with gateway(settings(one=child("noisy")), policies=[rule], store=store) as served:
        yield served
    await store.close()


async def cli(folder: Path, *arguments: str) -> str:
    """What `toolgate approvals …` prints, as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-W", "error", "-m", "toolgate", "approvals", *arguments],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder.parent,
        env={"HOME": str(folder.parent), "XDG_STATE_HOME": str(folder.parent), "PATH": os.environ["PATH"]},
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def waiting(folder: Path) -> Any:
    """The one call that waits, once it does."""
    while not (found := json.loads(await cli(folder, "list", "--json"))):
        pass
    return found[0]


async def opened(served: Served, era: str) -> Client:
    client = served.client(era)
    if era == LEGACY:
        await client.open()
    return client


@pytest.mark.promise("b.approval.operator")
@pytest.mark.parametrize("way", ["allow", "deny", "edit"])
@ERAS
@real
async def test_a_call_that_waits_goes_on_as_another_process_decides(era: str, way: str, tmp_path: Path) -> None:
    folder = tmp_path / "toolgate"
    async with asking(folder, wait=60.0) as served:
        client = await opened(served, era)
        call = asyncio.ensure_future(client.call("one__echo", say="hello"))
        request = await waiting(folder)
        assert (request["server"], request["target"], request["arguments"]) == ("one", "echo", '{"say": "hello"}')
        assert not call.done()
        if way == "deny":
            await cli(folder, "deny", request["id"])
            assert (await failure(call)).data["code"] == "APPROVAL_DENIED"
        else:
            edited = ["--arguments", '{"say": "goodbye"}'] if way == "edit" else []
            assert '"hello"' in await cli(folder, "allow", request["id"], "--yes", *edited)
            assert await call == ("goodbye" if way == "edit" else "hello")


@pytest.mark.promise("b.approval.operator")
@ERAS
@real
async def test_a_decision_outlives_the_gateway_that_asked_for_it(era: str, tmp_path: Path) -> None:
    folder = tmp_path / "toolgate"
    async with asking(folder, wait=0.0) as served:
        refused = await failure((await opened(served, era)).call("one__echo", say="hello"))
        assert refused.data["code"] == "APPROVAL_REQUIRED"
        command = refused.data["approval"]["command"].split()
    await cli(folder, *command[2:], "--yes")
    async with asking(folder, wait=0.0) as served:
        client = await opened(served, era)
        for say, code in (("other", "APPROVAL_REQUIRED"), ("hello", ""), ("hello", "APPROVAL_REQUIRED")):
            try:
                assert (await client.call("one__echo", say=say), code) == ("hello", "")
            except Failed as failed:
                assert failed.data["code"] == code
