"""Which guards an edit takes away: it is served when the operator has said so, and not because a file is another.

A file that is cut off, by a full disk or an editor that was killed, may still be a valid one, without the clients at
its end. Clients that are kept out would be let in by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from toolgate.config import Config, ConfigError, Problem
from toolgate.state.audit import is_on


class Unconfirmed(ConfigError):
    """An edit waits for the operator. `losses` are sentences of what it takes away."""

    def __init__(self, source: str, losses: tuple[str, ...]) -> None:
        what = f"this edit waits, and what was served before still is: {'; '.join(losses)}"
        super().__init__((Problem(source or "configuration", "", what, "if that is meant, run: toolgate reload"),))
        self.losses = losses


def check(served: Config, wanted: Config, confirmed: Collection[str], is_ours: bool = False) -> None:
    """Raises `Unconfirmed` where `wanted` takes away what is not among the sentences that were `confirmed`. `is_ours`:
    we write the file as a whole, so that it cannot be cut off."""
    losses = tuple(_losses(served, wanted, is_ours))
    if not set(losses) <= set(confirmed):
        raise Unconfirmed(wanted.source, losses)


def _losses(served: Config, wanted: Config, is_ours: bool) -> Iterator[str]:
    if wanted.is_open and not served.is_open:
        yield "without `clients` and an issuer, every program on this machine could call every tool without a key"
    if is_on(served) and not is_on(wanted):
        yield "calls would no longer be noted in the audit log"
    before, now = served.text.written, wanted.text.written
    if not is_ours and wanted != served and len(now) < len(before) and before.startswith(now):
        yield f"the file is the first {len(now):,} bytes of the {len(before):,} that are served, as if it was cut off"
