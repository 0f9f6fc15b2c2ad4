"""A picture of a table: horizontal bars on a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABELS, ROW, TOP = 860, 330, 22, 34


class Bar(NamedTuple):
    label: str
    value: float
    ours: bool = False


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Each bar begins at 1, so that ten times as much is always the same length more."""
    most = max([math.log10(max(row.value, 1.1)) for row in rows], default=1)
    height = TOP + ROW * len(rows) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="8" y="20" font-size="14">{escape(title)}</text>',
    ]
    for at, row in enumerate(sorted(rows, key=lambda row: row.value)):
        y = TOP + at * ROW
        length = math.log10(max(row.value, 1.1)) / most * (WIDTH - LABELS - 80)
        colour = "#1f6feb" if row.ours else "#9aa4af"
        parts += [
            f'<text x="{LABELS - 8}" y="{y + 14}" text-anchor="end">{escape(row.label)}</text>',
            f'<rect x="{LABELS}" y="{y + 2}" width="{length:.1f}" height="{ROW - 6}" fill="{colour}"/>',
            f'<text x="{LABELS + length + 6:.1f}" y="{y + 14}">{row.value:,.0f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
