"""What is promised, and the tests that hold it. Every conversation here is in memory, in virtual time."""

from pathlib import Path

import pytest
from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a gateway without `state` keeps the files of packages."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    """Which revisions the test's client speaks: `stage.Asker`."""
    return request.param
