"""What is told a service manager, by a socket that stands for it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.ground import real

from toolgate.cli.service_manager import ServiceManager


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as double:
        double.bind(str(tmp_path / "notify"))
        double.settimeout(30)
        yield double


def told(double: socket.socket) -> list[str]:
    return double.recv(4096).decode().splitlines()


def environ(double: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": double.getsockname(), **more}


def test_it_hears_that_the_gateway_serves_and_ends(heard: socket.socket) -> None:
    manager = ServiceManager(environ(heard))
    manager.ready("serving at https://gate.example.com/mcp")
    assert told(heard) == ["READY=1", "STATUS=serving at https://gate.example.com/mcp"]
    manager.stopping()
    assert told(heard)[0] == "STOPPING=1"


def test_it_may_have_no_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as double:
        double.bind(f"\0{tmp_path}")
        double.settimeout(30)
        ServiceManager({"NOTIFY_SOCKET": f"@{tmp_path}"}).stopping()
        assert told(double)[0] == "STOPPING=1"


@real
async def test_it_hears_again_and_again_that_the_gateway_is_alive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as double:
        double.bind(str(tmp_path / "notify"))
        double.setblocking(False)
        loop = asyncio.get_running_loop()
        came: asyncio.Queue[list[str]] = asyncio.Queue()
        loop.add_reader(double, lambda: came.put_nowait(told(double)))
        manager = ServiceManager(environ(double, WATCHDOG_USEC="2000", WATCHDOG_PID=str(os.getpid())))
        async with manager.alive():
            assert [await came.get() for _ in range(3)] == [["WATCHDOG=1"]] * 3
        loop.remove_reader(double)


@pytest.mark.parametrize("said", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"}])
@real
async def test_who_is_not_waited_for_says_nothing(heard: socket.socket, said: dict[str, str]) -> None:
    async with ServiceManager(environ(heard, **said)).alive():
        pass
    heard.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard.recv(4096)


def test_where_there_is_none_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({}).ready("serving")
    assert not caplog.messages


def test_one_that_is_gone_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}).ready("serving")
    assert caplog.messages == ["the service manager cannot be told READY=1: No such file or directory"]
