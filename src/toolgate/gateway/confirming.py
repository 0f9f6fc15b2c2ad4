"""Which guards an edit takes away: it is served when the operator has said so, and not because a file is another.

A file that is cut off, by a full disk or an editor that was killed, may still be a valid one, without the clients at
its end. Clients that are kept out would be let in by it.

What the operator has said to one gateway holds for the others of its store that wait with the very same text.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator

import msgspec

from toolgate.config import Config, ConfigError, Problem
from toolgate.state.audit import is_on
from toolgate.state.base import NotKept, Store

log = logging.getLogger(__name__)

SPACE = "agreements"
LASTS = 60.0  # seconds; a gateway that starts later reads the file as it is


class Unconfirmed(ConfigError):
    """An edit waits for the operator. `losses` are sentences of what it takes away."""

    def __init__(self, wanted: Config, losses: tuple[str, ...]) -> None:
        what = f"this edit waits, and what was served before still is: {'; '.join(losses)}"
        hint = "if that is meant, run: toolgate reload"
        super().__init__((Problem(wanted.source or "configuration", "", what, hint),))
        self.wanted = wanted
        self.losses = losses


class Agreements:
    """What the operator has agreed to lose, for a while in which the other gateways of this store look."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, wanted: Config, losses: Collection[str]) -> None:
        if losses:
            try:
                await self._store.put(SPACE, _text_of(wanted), msgspec.json.encode(list(losses)), LASTS)
            except NotKept as why:
                log.warning("other gateways of this configuration wait until each is restarted: %s", why)

    def are_for(self, waiting: Unconfirmed) -> bool:
        found = self._store.get(SPACE, _text_of(waiting.wanted))
        return found is not None and set(waiting.losses) <= set(msgspec.json.decode(found, type=list[str]))


def _text_of(wanted: Config) -> str:
    """By which very text it is known."""
    return hashlib.sha256(f"{wanted.source}\0{wanted.text.written}".encode()).hexdigest()


def check(served: Config, wanted: Config, confirmed: Collection[str]) -> None:
    """Raises `Unconfirmed` where `wanted`, a file as it was found, takes away what is not among the sentences that were
    `confirmed`."""
    _require((*_losses(served, wanted), *_cut_off(served, wanted)), wanted, confirmed)


def check_edit(served: Config, found: Config | None, wanted: Config, confirmed: Collection[str]) -> tuple[str, ...]:
    """The same for an edit of ours of the file as it was `found`, where that could be read. We write files as a whole;
    but what was cut off before is lost by it, unless the edit puts it there again. What others lose by it who find it,
    and serve what is served here."""
    was_cut_off = tuple(_cut_off(served, found)) if found else ()
    if found and wanted.text.written.endswith(served.text.written[len(found.text.written) :]):
        was_cut_off = ()
    losses = tuple(_losses(served, wanted))
    _require((*losses, *was_cut_off), wanted, confirmed)
    return (*losses, *_cut_off(served, wanted))


def _require(losses: tuple[str, ...], wanted: Config, confirmed: Collection[str]) -> None:
    if not set(losses) <= set(confirmed):
        raise Unconfirmed(wanted, losses)


def _losses(served: Config, wanted: Config) -> Iterator[str]:
    if wanted.is_open and not served.is_open:
        yield "without `clients` and an issuer, every program on this machine could call every tool without a key"
    if is_on(served) and not is_on(wanted):
        yield "calls would no longer be noted in the audit log"


def _cut_off(served: Config, found: Config) -> Iterator[str]:
    before, now = served.text.written, found.text.written
    if found != served and len(now) < len(before) and before.startswith(now):
        yield f"the file is the first {len(now):,} bytes of the {len(before):,} that are served, as if it was cut off"
