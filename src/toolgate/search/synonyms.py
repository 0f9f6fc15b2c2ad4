"""Which words say nearly the same: `synonyms.txt`, by stems, read when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from toolgate.search.words import stem


@cache
def table() -> Mapping[str, tuple[str, ...]]:
    """Each stem, and the stems that stand in a group with it."""
    lines = Path(__file__).with_name("synonyms.txt").read_text("utf-8").splitlines()
    found: dict[str, dict[str, None]] = {}
    for group in ([stem(word) for word in line.split()] for line in lines if not line.startswith("#")):
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(group))
    return {word: tuple(other for other in others if other != word) for word, others in found.items()}
