"""What all rooms of the tests share: the marker that ties a test to a promise (`tests/behaviour/promises.toml`)."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'promise("id", ...): the promises that this test holds')
