"""Does what it is told, as a server that turned hostile would: `do` runs Python code and tells what that printed."""

from __future__ import annotations

import contextlib
import io
import os

import legacy


def do(arguments: legacy.Json) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(arguments["code"], {"__name__": "told"})
        except BaseException as error:  # whatever it is, it is told
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


legacy.serve({"do": do, "pid": lambda _: str(os.getpid())}, threads=False)
