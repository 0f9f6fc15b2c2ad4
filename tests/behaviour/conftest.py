"""What is promised, and the tests that hold it. Every conversation here is in memory, in virtual time."""

from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call
