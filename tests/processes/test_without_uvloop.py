"""Where uvloop is not installed (there is none for Windows and PyPy), the loop of asyncio serves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import websockets
from processes.ground import STREAM, WAIT, child, gateway, home, read_events, real, settings, shut, toolgate


def hide(environ: dict[str, str], *modules: str) -> None:
    folder = Path(environ["HOME"], "hidden")
    folder.mkdir()
    for module in modules:
        (folder / f"{module}.py").write_text("raise ImportError")
    environ["PYTHONPATH"] = str(folder)


@pytest.mark.promise("b.lifecycle.without-uvloop")
@real
async def test_a_gateway_serves_servers_over_http_and_programs_without_uvloop() -> None:
    async with gateway(settings(one=child("counting"))) as far:
        with home() as environ:
            hide(environ, "uvloop")
            config = {"far": {"url": f"http://127.0.0.1:{far.port}/mcp"}, "near": child("counting")}
            async with toolgate("serve", "--port", "0", config=config, environ=environ) as running:
                client = await running.until_it_serves()
                assert "uvloop" not in Path(f"/proc/{running.process.pid}/maps").read_text()
                assert {"far__one__slow", "near__slow"} <= {*await client.tools()}
                said = await asyncio.gather(
                    client.call("far__one__slow", say="far"), client.call("near__slow", say="near")
                )
                assert said == ["far", "near"]

                reader, writer = await client.start("subscriptions/listen", {"notifications": {}}, STREAM)
                async for event in read_events(reader):
                    assert "subscriptions" in event["method"]
                    break
                await shut(writer)
                async with websockets.connect(f"ws://127.0.0.1:{running.port}/mcp", proxy=None) as opened:
                    await opened.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
                    assert json.loads(await asyncio.wait_for(opened.recv(), WAIT))["result"] == {}
                running.process.terminate()
                assert await running.ended() == 0
