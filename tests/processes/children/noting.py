"""Notes who called it in which order: `note` who `says`, `noted` gives them all."""

from __future__ import annotations

import json
import os

import legacy

notes: list[str] = []


def note(arguments: legacy.Json) -> str:
    notes.append(arguments["says"])
    return str(os.getpid())


legacy.serve({"note": note, "noted": lambda _: json.dumps(notes)})
