"""Changes, with conversations in virtual time that a copy of `src` with the change has."""

from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call
