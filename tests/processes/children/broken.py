"""Answers one tool with what is no JSON inside, as programs do that write it themselves."""

from __future__ import annotations

import json
from typing import Any

import legacy

dumps = json.dumps


def broken(value: Any, **more: Any) -> str:
    return dumps(value, **more).replace("half an escape", "\\q")


json.dumps = broken
legacy.serve({"breaks": lambda _: "half an escape", "works": lambda _: "fine"})
