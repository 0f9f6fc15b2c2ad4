"""Attacks, each as it was found and in variations. What is marked `attack` takes long: `make attack` runs all of them,
`make test` the others. Tests that are coroutines run in virtual time."""

from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call
