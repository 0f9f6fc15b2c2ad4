"""Crashes at import, as a server does whose dependencies are not installed."""

import a_module_that_nobody_has  # noqa: F401
