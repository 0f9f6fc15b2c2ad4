"""One file for each of `src`. Tests that are coroutines run in virtual time."""

from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call
