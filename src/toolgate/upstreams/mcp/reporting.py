"""Calls of one connection that became tasks of 2025-11-25: their servers report progress by the ids of their requests.

The rule this file keeps: no more is kept of such a call than where its notes go; and of too many, whoever has most
loses the oldest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toolgate.core.exchange import Exchange, Part
from toolgate.core.fairness import Shares
from toolgate.core.model import Call
from toolgate.core.notes import Notes

MOST_REPORTING = 1024


class Report(NamedTuple):
    """`whole` is what the call was a part of, if anything; `whose` it is: see `Principal.counted_as`."""

    task: str
    whose: str
    notes: Notes | None
    whole: Exchange | None


class Reporting:
    def __init__(self) -> None:
        self._reports: dict[int, Report] = {}
        self._shares: Shares[int] = Shares()

    def __len__(self) -> int:
        return len(self._reports)

    def add(self, id: int, call: Call, exchange: Exchange, task: str) -> None:
        whole = exchange.whole if isinstance(exchange, Part) else None
        report = self._reports[id] = Report(task, call.client.principal.counted_as, call.notes, whole)
        self._shares.put(report.whose, id, id)
        if len(self._reports) > MOST_REPORTING:
            self._drop(next(self._shares.greatest()))

    def notes(self, id: int) -> Notes | None:
        """Where the notes go of the call that was made by this request."""
        report = self._reports.get(id)
        return report.notes if report else None

    def forget(self, is_over: Callable[[Report], bool]) -> None:
        for id in [id for id, report in self._reports.items() if is_over(report)]:
            self._drop(id)

    def _drop(self, id: int) -> None:
        self._shares.remove(self._reports.pop(id).whose, id)
