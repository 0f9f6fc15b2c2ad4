"""Answers one tool with half a character, as programs do that cut texts anywhere: that is no JSON inside."""

from __future__ import annotations

import legacy

legacy.serve({"breaks": lambda _: "\ud83d", "works": lambda _: "fine"})
