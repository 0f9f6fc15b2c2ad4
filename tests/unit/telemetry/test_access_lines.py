"""The access log: what a line looks like, and who waits for it."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from toolgate.cli.log_lines import JsonLines
from toolgate.telemetry.access_log import LOGGER, WHOLE, Access, AccessRecord, Beside

BOUNDED = 10  # seconds


def access(**more: Any) -> Access:
    usual: dict[str, Any] = {"who": "client:ci", "address": "127.0.0.1", "method": "tools/call", "server": "git"}
    usual |= {"target": "log", "decision": "allow", "outcome": "done", "code": "", "via": "", "ms": 1.5}
    return Access(**{**usual, "bytes_in": 2, "bytes_out": 30, **more})


def record(line: Access) -> logging.LogRecord:
    return logging.LogRecord(LOGGER, logging.INFO, "", 0, line, (), None)


def test_a_line_of_text_is_made_of_keys_and_values() -> None:
    assert str(access()) == (
        "access who=client:ci address=127.0.0.1 method=tools/call server=git target=log decision=allow "
        "outcome=done ms=1.5 bytes_in=2 bytes_out=30"
    )


@pytest.mark.parametrize(
    "target", ["two\nlines", 'a "quote"', "a b", "x=y outcome=done", "\x1b[31m", "é\u2028", "\ud800"]
)
def test_whatever_is_named_is_one_value_of_one_line(target: str) -> None:
    written = str(access(target=target))
    assert written.isascii() and written.isprintable()
    quoted = written.partition("target=")[2]
    assert json.JSONDecoder().raw_decode(quoted)[0] == target
    (line,) = JsonLines().format(record(access(target=target))).splitlines()
    assert json.loads(line)["target"] == target


@pytest.mark.parametrize("name", ["who", "method", "target"])
def test_a_long_name_is_cut(name: str) -> None:
    assert len(str(access(**{name: "x" * 100_000}))) < 600


def test_a_line_of_json_has_what_each_line_has_and_says_what_became_of_the_call() -> None:
    found = json.loads(JsonLines().format(record(access(code="TIMEOUT", outcome="error"))))
    assert (found["logger"], found["level"], found["message"]) == (LOGGER, "info", "access")
    assert (found["who"], found["code"], found["outcome"], found["ms"]) == ("client:ci", "TIMEOUT", "error", 1.5)
    assert "via" not in found


def test_what_is_empty_is_in_no_line() -> None:
    """A call of a tool that does not exist is for no server."""
    line = access(server="", address="")
    found = json.loads(JsonLines().format(record(line)))
    assert not {"server", "address", "code", "via"} & found.keys()
    assert "server" not in str(line) and "address" not in str(line)


def test_nobody_waits_where_lines_cannot_be_written_and_the_lost_ones_are_told() -> None:
    may_write, written = threading.Event(), list[str]()
    begun = threading.Event()

    def write(lines: str) -> None:
        begun.set()
        assert may_write.wait(BOUNDED)
        written.extend(lines.splitlines())

    beside = Beside(write, most=5)
    beside.setFormatter(logging.Formatter("%(message)s"))
    beside.handle(record(access(target="first")))
    assert begun.wait(BOUNDED)
    for number in range(8):
        beside.handle(record(access(target=str(number))))
    may_write.set()
    beside.close()
    assert len(written) == 6
    beside.handle(record(access(target="later")))
    beside.close()
    assert "3 lines were lost" in written[6]
    assert "target=later" in written[7]


def test_lines_are_written_together_as_far_as_a_pipe_takes_them_whole() -> None:
    written: list[str] = []
    beside = Beside(written.append)
    for number in range(200):
        beside.handle(AccessRecord(access(target=f"t{number}")))
    beside.close()
    lines = "".join(written).splitlines()
    assert len(lines) == 200 and [f"target=t{n}" in line for n, line in enumerate(lines)] == [True] * 200
    assert len(written) < 100
    assert all(len(each) <= WHOLE for each in written)


def test_a_record_of_the_access_log_has_what_formats_ask_for() -> None:
    found = AccessRecord(access())
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s").format(found)
    assert text.endswith(f"INFO {LOGGER} {access()}")
    assert json.loads(JsonLines().format(found))["logger"] == LOGGER


def test_what_nobody_reads_is_lost_and_no_more() -> None:
    written: list[str] = []

    def write(line: str) -> None:
        if not written:
            written.append("")
            raise BrokenPipeError
        written.append(line)

    beside = Beside(write)
    beside.handle(record(access(target="a")))
    beside.close()
    beside.handle(record(access(target="b")))
    beside.close()
    assert "1 lines were lost" in written[1] and "target=b" in written[1]
