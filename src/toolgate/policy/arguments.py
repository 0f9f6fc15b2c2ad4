"""Arguments as they are noted, and shown to who watches: where that is wanted."""

from __future__ import annotations

import logging

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.redaction import Secrets

log = logging.getLogger(__name__)

LARGEST = 64 * 1024  # bytes


def whole(arguments: Raw, secrets: Secrets) -> Raw | None:
    """All of them without secrets, in one line. What is too long, or cannot be written so, has its hash alone: a line
    there is in any case."""
    if memoryview(arguments).nbytes > LARGEST:
        return None
    try:
        return Raw(secrets.body(_in_one_line(bytes(arguments))))
    except Exception as error:  # noqa: BLE001  the rescue: its caller may have brought it about
        log.warning("arguments could not be noted: %s", type(error).__name__)
        return None


def _in_one_line(arguments: bytes) -> bytes:
    try:
        return msgspec.json.format(arguments, indent=-1)
    except jsonrpc.UNREADABLE:  # a line break is nothing but white space in JSON
        return jsonrpc.one_line(arguments)
