"""A gateway that a service manager has started says when it serves and when it ends."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from processes.ground import WAIT, child, home, real, toolgate


@real
async def test_a_served_gateway_is_ready_alive_and_stopping() -> None:
    with home() as environ, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as double:
        place = Path(environ["HOME"], "notify")
        double.bind(str(place))
        double.setblocking(False)
        told: list[str] = []
        everything = asyncio.Event()

        def hear() -> None:
            told.append(double.recv(4096).decode())
            if "STOPPING=1" in told[-1]:
                everything.set()

        asyncio.get_running_loop().add_reader(double, hear)
        about = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "200000"}
        async with toolgate("serve", "--port", "0", config={"one": child("counting")}, environ=environ | about) as run:
            await run.until_it_serves()
            async with asyncio.timeout(WAIT):
                while not any(each.startswith("READY=1\nSTATUS=serving at http://127.0.0.1:") for each in told):
                    await asyncio.sleep(0.01)
            run.process.terminate()
            async with asyncio.timeout(WAIT):
                await everything.wait()
            assert await run.ended() == 0
        asyncio.get_running_loop().remove_reader(double)
        assert "WATCHDOG=1" in told
