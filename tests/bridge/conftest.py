"""The bridge between the eras: every test is a conversation in memory, in virtual time."""

from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call
