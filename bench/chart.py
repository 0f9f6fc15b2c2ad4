"""Pictures as SVG: a table as horizontal bars on a logarithmic scale, and samples as a flame graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABELS, ROW, TOP = 860, 330, 22, 34
WIDE = 1400  # of a flame graph


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


class Flame:
    """A function and what it called, by their share."""

    def __init__(self) -> None:
        self.count = 0.0
        self.above: dict[str, Flame] = {}


LINE, LEAST = 17, 0.5  # pixels: of a row, and of the narrowest that is drawn


def flames(title: str, stacks: Mapping[tuple[str, ...], float]) -> str:
    """A flame graph: each function stands on its caller, as wide as its share. Names show when pointed at."""
    root = Flame()
    for stack, count in stacks.items():
        here = root
        here.count += count
        for frame in stack:
            here = here.above.setdefault(frame, Flame())
            here.count += count
    depth = max((len(stack) for stack in stacks), default=0)
    height = 40 + LINE * (depth + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDE}" height="{height}" fill="#fff"/>',
        f'<text x="8" y="20" font-size="14">{escape(title)}</text>',
    ]
    scale = (WIDE - 16) / (root.count or 1)

    def draw(flame: Flame, x: float, y: float) -> None:
        for name, each in sorted(flame.above.items()):
            width = each.count * scale
            if width >= LEAST:
                share = f"{name}: {each.count / root.count:.1%}"
                colour = "#9cc3ff" if "(toolgate/" in name else "#f0b67f" if ".py" in name else "#d9d9d9"
                shown = name if len(name) * 6 < width else name[: max(0, int(width / 6) - 1)]
                place = f'y="{y}" width="{max(width - 0.5, 0.3):.1f}" height="{LINE - 1}"'
                parts.append(f'<g><title>{escape(share)}</title><rect x="{x:.1f}" {place} fill="{colour}"/>')
                parts.append(f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(shown)}</text></g>')
                draw(each, x, y - LINE)
            x += width

    draw(root, 8, height - LINE - 8)
    return "\n".join([*parts, "</svg>"]) + "\n"
