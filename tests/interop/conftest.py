"""The interop suite: real clients and real servers of every generation. Off unless its cache is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import installed


@pytest.fixture(autouse=True, scope="session")
def the_cache_is_installed() -> Iterator[None]:
    if reason := installed.missing():
        pytest.skip(reason)
    yield
