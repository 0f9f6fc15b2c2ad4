"""What an operator's log tells of."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from toolgate.cli.common import TOLD


@pytest.mark.parametrize("name", TOLD)
def test_each_module_that_an_operator_hears_of_is_there(name: str) -> None:
    assert find_spec(f"toolgate.{name}")
