"""The configuration that the owner serves, in memory that workers read: whatever stands in the files, they serve no
other.

The rule this file keeps: what is read is one configuration as a whole, also while the owner writes the next one.
"""

from __future__ import annotations

import hashlib
import os
import time

import msgspec

from toolgate.config import Config, ConfigError, Problem

DIGEST = 16  # bytes, before the configuration
_TRIES, _PAUSE = 100, 0.01  # seconds


class Handed:
    """`file` has no name: only those read it that inherit it, since secrets are in it."""

    def __init__(self, file: int) -> None:
        self.file = file

    def write(self, config: Config) -> None:
        """Raises `OSError`; then none is read until another is written."""
        packed = msgspec.msgpack.encode(config)
        whole = _digest(packed) + packed
        os.ftruncate(self.file, os.pwrite(self.file, whole, 0))

    def read(self) -> Config:
        """This waits while another is written: call it in a thread. Raises `ConfigError` where there is none."""
        for _ in range(_TRIES):
            whole = os.pread(self.file, os.fstat(self.file).st_size, 0)
            digest, packed = whole[:DIGEST], whole[DIGEST:]
            if digest == _digest(packed):
                return msgspec.msgpack.decode(packed, type=Config)
            time.sleep(_PAUSE)
        raise ConfigError((Problem("configuration", "", "the owner of this worker has handed none over"),))


def made() -> Handed:
    return Handed(os.memfd_create("toolgate configuration", os.MFD_CLOEXEC))


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=DIGEST).digest()
