"""What all rooms of the tests share: the marker that ties a test to a promise (`tests/behaviour/promises.toml`).

No property has a deadline: how long an example takes depends on how busy the machine is.
"""

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'promise("id", ...): the promises that this test holds')
