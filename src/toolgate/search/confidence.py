"""How likely it is that a hit is what was meant: a logistic regression over what the ranker saw anyway.

`confidence.json` has its coefficients and the thresholds of the verdicts; `bench/fit_confidence.py` makes it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from toolgate.search.documents import Verdict
from toolgate.search.ranking import IndexEntry, Ranking

_RIVALS = 4  # of one server


class Model(NamedTuple):
    coefficients: dict[str, float]
    match: float
    possible: float


@cache
def model() -> Model:
    read: Any = json.loads(Path(__file__).with_name("confidence.json").read_text())
    return Model(read["coefficients"], read["match"], read["possible"])


def of(ranking: Ranking, at: int) -> tuple[float, Verdict]:
    """The confidence and the verdict of the hit at this place."""
    return _judged(features(ranking, at))


def _judged(seen: dict[str, float]) -> tuple[float, Verdict]:
    coefficients, match, possible = model()
    confidence = 1 / (1 + math.exp(-sum(coefficients.get(name, 0) * value for name, value in seen.items())))
    verdict: Verdict = "match" if confidence >= match else "possible" if confidence >= possible else "none"
    return round(confidence, 2), verdict


def features(ranking: Ranking, at: int) -> dict[str, float]:
    """What is seen of the hit at this place; all from about 0 to 1, so that one sort of coefficients suits them."""
    query, order, parts, covers, named = ranking
    entry, worth = order[at]
    top = order[0][1]
    after = order[at + 1][1] if at + 1 < len(order) else 0.0
    total = sum(query.weights.values())
    rarest = max(query.weights, key=query.weights.__getitem__)
    has = [term for term in parts if entry in parts[term]]
    coverage = sum(covers[term][entry] for term in has) / total
    is_server = entry.document.kind == "servers"
    return {
        "always": 1.0,
        "coverage": coverage,
        "one word, not of its name": float(len(query.weights) == 1 and not named[entry]),
        "terms covered": len(has) / len(query.weights),
        "saturation": sum(parts[term][entry] for term in has) / total,
        "ratio to the top": worth / top,
        "margin": (worth - after) / top,
        "said of name": named[entry],
        "named by query": sum(query.weights[term] for term in has if term in entry.vector.name) / total,
        "rarest term": float(rarest in has),
        "terms": math.log(len(query.weights)) / 4,
        "rank": math.log(1 + at) / 4,
        "is first": float(at == 0),
        "catalogue": math.log(1 + query.total) / 10,
        "rivals": math.log(_rivals(order, worth / 2)) / 5,
        "covered alone": (worth - after) / top * coverage,
        "known": sum(query.weights[term] for term in parts) / total,
        "is a server": float(is_server),
        "named, of a server": is_server * named[entry],
        "covered, of a server": is_server * coverage,
    }


def _rivals(order: list[tuple[IndexEntry, float]], least: float) -> int:
    """Those that are worth more than this, of each server a few: so none makes others unsure by what it lists."""
    servers = Counter(entry.document.listed_by for entry, value in order if value > least)
    return sum(min(number, _RIVALS) if server else number for server, number in servers.items())
