"""The access log of a gateway: a line for each call, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from inmemory import Scripted, Visitor, gateway, said, tools

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.config.settings import Log
from toolgate.telemetry.access_log import LOGGER, Access

KEY, SECRET = "tg-a-key-that-is-long-enough", "s3cret-word-of-a-server"
ANN = KnownClient(id="ann", name="ann", key=KEY, servers="all")
LOGGED = Config(clients=(ANN,), log=Log(access=True))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[Access]]:
    caplog.set_level(logging.INFO, LOGGER)
    found: list[Access] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert isinstance(record.msg, Access)
            found.append(record.msg)

    kept = Kept()
    logging.getLogger(LOGGER).addHandler(kept)
    yield found
    logging.getLogger(LOGGER).removeHandler(kept)


def opened(config: Config = LOGGED, **answers: Any) -> Any:
    return gateway(
        scripts={"git": Scripted(tools_list=tools("t"), **{"tools_call": said("x"), **answers})}, config=config
    )


async def test_each_call_is_a_line(lines: list[Access]) -> None:
    async with opened() as app:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        for _ in range(3):  # the first by the long way, and others by a plan
            await ann.ask_modern("tools/call", name="git__t", arguments={"a": 1})
    assert len(lines) == 3
    for line in lines:
        assert (line.who, line.server, line.target) == ("client:ann", "git", "t")
        assert (line.decision, line.outcome, line.bytes_in) == ("allow", "done", len('{"a": 1}'))


async def test_what_is_refused_is_a_line_with_its_code(lines: list[Access]) -> None:
    off = msgspec.structs.replace(ANN, permissions=Permissions(tools={"git__t": "off"}))
    async with opened(msgspec.structs.replace(LOGGED, clients=(off,))) as app:
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("tools/call", name="git__t")
    (line,) = lines
    assert (line.decision, line.outcome, line.code) == ("deny", "error", "ACCESS_DENIED")


async def test_a_secret_that_a_client_names_is_in_no_line(lines: list[Access]) -> None:
    async with opened() as app:
        app.redactor.learn([SECRET])
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("resources/read", uri=f"file:///{SECRET}")
    (line,) = lines
    assert SECRET not in str(line)
    assert line.target == "file:[secret]"


async def test_there_is_no_line_where_nobody_wants_one(lines: list[Access]) -> None:
    async with opened(msgspec.structs.replace(LOGGED, log=Log())) as app:
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("tools/call", name="git__t")
    assert lines == []
