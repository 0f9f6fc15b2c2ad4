"""What an operator's log tells of."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from toolgate.cli.log_lines import TOLD, JsonLines


@pytest.mark.parametrize("name", TOLD)
def test_each_module_that_an_operator_hears_of_is_there(name: str) -> None:
    assert find_spec(f"toolgate.{name}")


def line(message: str, *args: Any, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord(
        "toolgate.cli", logging.WARNING, __file__, 1, message, args, **{"exc_info": None, **more}
    )
    record.created = 1_764_280_000.25
    (written,) = JsonLines().format(record).splitlines()
    return json.loads(written)


def test_a_line_of_json_says_when_how_bad_where_and_what() -> None:
    assert line("%s does not start", "git") == {
        "time": "2025-11-27T21:46:40.250Z",
        "level": "warning",
        "logger": "toolgate.cli",
        "message": "git does not start",
    }


@pytest.mark.parametrize("said", ["two\nlines", '"quotes" and \\', "\x1b[31m red \u2028", "\ud800"])
def test_whatever_is_said_stays_in_its_line(said: str) -> None:
    assert line("%s", said)["message"] == said


def test_an_error_has_its_trace_in_the_same_line() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        found = line("it failed", exc_info=(ValueError, error, error.__traceback__))
    assert found["trace"].startswith("Traceback") and found["trace"].endswith("ValueError: wrong")


@pytest.mark.parametrize(
    ("level", "told", "of_others"),
    [
        ("debug", logging.DEBUG, logging.DEBUG),
        ("info", logging.INFO, logging.WARNING),
        ("warning", logging.WARNING, logging.WARNING),
        ("error", logging.ERROR, logging.ERROR),
    ],
)
def test_a_level_says_how_much_is_written(level: Any, told: int, of_others: int) -> None:
    code = (
        "import logging; from toolgate.cli.log_lines import log_to_stderr; from toolgate.config.settings import Log;"
        f"log_to_stderr(Log(level={level!r}), '%(message)s');"
        "print(*(logging.getLogger(f'toolgate.{name}').getEffectiveLevel() for name in ('cli', 'catalog')))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.split() == [str(told), str(of_others)]
