"""The log of a gateway that serves: lines for people, or an object of JSON in each for programs that collect them."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from toolgate.config.settings import Log
from toolgate.telemetry.access_log import LOGGER, Access, Beside

# Modules whose every step an operator wants to read of.
TOLD = (
    *("cli", "app", "gateway.reload", "gateway.notices", "state.opening"),
    *("frontends.frames", "frontends.operator", "frontends.server", "frontends.tls"),
)
_LEVELS: Mapping[str, int] = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class JsonLines(logging.Formatter):
    """`time` is UTC, `logger` which part of toolgate it is; `trace` is there where an error has one."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if isinstance(record.msg, Access):
            told = msgspec.to_builtins(record.msg)
            line |= {"message": "access", **{name: value for name, value in told.items() if value != ""}}
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["trace"] = record.exc_text
        return json.dumps(line)  # in ASCII: whatever was said, it is one line of any terminal or file


def log_to_stderr(log: Log, format: str) -> None:
    """What an operator reads: what toolgate does, and warnings of all else. `format` is that of lines for people."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = JsonLines() if log.format == "json" else logging.Formatter(format)
    handler.setFormatter(formatter)
    level = _LEVELS.get(log.level, logging.ERROR)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler])
    if log.level == "debug":
        logging.getLogger("toolgate").setLevel(level)
    elif log.level == "info":
        for name in TOLD:
            logging.getLogger(f"toolgate.{name}").setLevel(level)
    if log.access:
        beside = Beside(_to_stderr)
        beside.setFormatter(formatter)
        access_log = logging.getLogger(LOGGER)
        access_log.addHandler(beside)
        access_log.setLevel(logging.INFO)
        access_log.propagate = False


def _to_stderr(line: str) -> None:
    """Beside what the log writes there, each line whole: nobody waits for the other."""
    os.write(2, line.encode())
