"""The doors: every test is a conversation with the whole gateway in memory, in virtual time."""

from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call
