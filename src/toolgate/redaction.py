"""Secrets that the gateway knows, taken out of what it shows: errors, logs, the audit, pages, excerpts of stderr.

The rule this file keeps: a value that was once known stays known, also when the configuration has others by now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

SHORTEST = 8  # characters; what is shorter stands in too many harmless texts
GONE = "[secret]"


class Redactor:
    """`learn` secrets from wherever they come; `text` and `body` give back what may be shown."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._texts: dict[str, None] = {}
        self._bodies: dict[bytes, None] = {}
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            if len(secret) >= SHORTEST:
                self._texts[secret] = None
                for ascii in (True, False):  # as JSON writes it, in either way
                    self._bodies[json.dumps(secret, ensure_ascii=ascii)[1:-1].encode()] = None

    def text(self, shown: str) -> str:
        for secret in self._texts:
            if secret in shown:
                shown = shown.replace(secret, GONE)
        return shown

    def body(self, shown: bytes) -> bytes:
        """The same in JSON, which stays JSON."""
        for secret in self._bodies:
            if secret in shown:
                shown = shown.replace(secret, GONE.encode())
        return shown
