"""What is promised, and the tests that hold it. Every conversation here is in memory, in virtual time."""

import pytest
from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    """Which revisions the test's client speaks: `stage.Asker`."""
    return request.param
