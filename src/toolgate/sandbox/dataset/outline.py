"""What a model is shown of data in place of the data: its shape, the types of its values, and three samples, masked
where that is wanted.

The rule this file keeps: whatever the data is, an outline is small; keys that stand for data (those of an object with
many) are not in its shape; and a masked sample has no letter and no digit of a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from toolgate.sandbox.dataset.tables import KINDS, is_array, is_object, one_form_of_dates

SAMPLES = 3
_MOST_LOOKED_AT = 200  # items of one array, from all parts of it
_MOST_KEYS = 50  # of an object; one with more maps keys to values that are alike
_MOST_NODES = 400  # of a shape
_DEEPEST = 6
_LONGEST_KEY = 100  # characters
_LONGEST = 60  # characters of a text in a sample
_UPPER, _LOWER, _DIGIT = re.compile(r"[^\W\d_a-z]"), re.compile(r"[a-z]"), re.compile(r"\d")

Json = dict[str, Any]


def outline(data: Any, samples: str) -> Json:
    """`samples` is "masked", "plain" or "none"."""
    shapes = _Shapes()
    made: Json = {"data": shapes.of([data], 0)}
    if samples == "none":
        return made
    inside = data.values() if is_object(data) else ()
    rows = data if is_array(data) else next((each for each in inside if is_array(each)), [data])
    known = shapes.keys if samples == "masked" else None
    return {**made, "samples": [_sample(each, known, 0) for each in _spread(rows, SAMPLES)]}


class _Shapes:
    def __init__(self) -> None:
        self._left = _MOST_NODES
        self.keys = set[str]()  # that are in it, and so stand for no data

    def of(self, values: Sequence[Any], depth: int) -> Any:
        """That of values that stand in one place: one shape, or a list of those that there are."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return "…"
        objects, arrays = [each for each in values if is_object(each)], [each for each in values if is_array(each)]
        found: list[Any] = _words([each for each in values if not isinstance(each, dict | list)])
        if objects:
            found.append(self._object(objects, depth))
        if arrays:
            items = [item for each in arrays for item in _spread(each, _MOST_LOOKED_AT)]
            found.append({"list of": self.of(_spread(items, _MOST_LOOKED_AT), depth + 1), "items": _counts(arrays)})
        return found[0] if len(found) == 1 else found

    def _object(self, objects: Sequence[Json], depth: int) -> Json:
        keys = dict.fromkeys(key for each in objects for key in list(each)[: _MOST_KEYS + 1])
        if len(keys) > _MOST_KEYS:
            values = [value for each in objects for value in list(each.values())[:_MOST_LOOKED_AT]]
            return {
                "object with keys": _counts(objects),
                "values": self.of(_spread(values, _MOST_LOOKED_AT), depth + 1),
            }
        self.keys.update(keys)
        return {key[:_LONGEST_KEY]: self.of([each.get(key) for each in objects], depth + 1) for key in keys}


def _counts(each: Sequence[Any]) -> Any:
    sizes = {len(one) for one in each}
    return sizes.pop() if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"


def _words(scalars: Sequence[Any]) -> list[Any]:
    texts = [each for each in scalars if isinstance(each, str)]
    kinds: set[type] = {each.__class__ for each in scalars}
    words = {KINDS.get(kind, "null") for kind in kinds}
    if texts and one_form_of_dates(texts):
        words = {*words - {"text"}, "text (ISO dates)"}
    return sorted(words)


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """So many of them, from the first to the last."""
    if len(items) <= most:
        return list(items)
    return [items[at * (len(items) - 1) // (most - 1)] for at in range(most)]


def _sample(value: Any, known: Collection[str] | None, depth: int) -> Any:
    """`known`: it is masked, keys too that are not among these; None: it is shown as it is."""
    if is_object(value):
        pairs = list(value.items())[: _MOST_KEYS if len(value) <= _MOST_KEYS else SAMPLES]
        is_data = len(value) > _MOST_KEYS
        return (
            "…"
            if depth > 3
            else {
                (key if known is None or (key in known and not is_data) else _masked(key))[:_LONGEST_KEY]: _sample(
                    each, known, depth + 1
                )
                for key, each in pairs
            }
        )
    if is_array(value):
        return "…" if depth > 3 else [_sample(each, known, depth + 1) for each in value[:SAMPLES]]
    if isinstance(value, str):
        cut = value[:_LONGEST]
        return cut if known is None else _masked(cut)
    if known is not None and isinstance(value, int | float) and not isinstance(value, bool):
        return _masked_number(value)
    return value


def _masked(text: str) -> str:
    return _DIGIT.sub("9", _LOWER.sub("x", _UPPER.sub("X", text)))


def _masked_number(value: float) -> str:
    """As a text: a number with the digits of another would be taken for a value."""
    try:
        return _masked(str(value))[:_LONGEST]
    except ValueError:  # Python does not write integers of more than 4,300 digits
        return "9"
