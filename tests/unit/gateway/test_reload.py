"""When an edit of the configuration's file takes hold, by a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from virtualtime import FakeClock

from toolgate import config as configs
from toolgate.app import App, running
from toolgate.gateway import reload
from toolgate.state.settings import Settings

SERVER = '[mcpServers.{}]\ncommand = "true"\n'
SOON = 0.45  # seconds; what is left of half a second is for reading the file


@asynccontextmanager
async def served(file: Path, clock: FakeClock) -> AsyncGenerator[App]:
    file.write_text(SERVER.format("one"))
    settings = Settings(lambda: configs.load(file, {}), {}, file)
    async with running(settings.read(), environ={}, settings=settings, clock=clock) as app:
        yield app


def names(app: App) -> list[str]:
    return [each.name for each in app.gateway.snapshot.config.servers]


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.5, 0.8, 0.99])
async def test_an_edit_takes_hold_within_half_a_second_whenever_it_is_made(tmp_path: Path, part: float) -> None:
    file, clock = tmp_path / "toolgate.toml", FakeClock()
    async with served(file, clock) as app:
        await clock.advance(10 * reload.LOOK + part * reload.LOOK)
        file.write_text(SERVER.format("another"))
        await clock.advance(SOON)
        assert names(app) == ["another"]


async def test_a_file_that_is_still_written_is_not_read(tmp_path: Path) -> None:
    file, clock = tmp_path / "toolgate.toml", FakeClock()
    async with served(file, clock) as app:
        await clock.advance(reload.LOOK / 2)
        for number in range(10):
            with file.open("a") as more:
                more.write(SERVER.format(f"more{number}"))
            await clock.advance(reload.LOOK)
            assert names(app) == ["one"]
        await clock.advance(SOON)
        assert len(names(app)) == 11
