"""Fits `search/confidence.json` on a directory of retrieval sets: `bench/fit_confidence.py DATA`. See README.md."""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import retrieval

sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))
import search_fixture

from toolgate.provision import catalogue
from toolgate.provision.provisioning import as_document
from toolgate.search import Document, Hit, Index, confidence, words

PLACES = 5  # hits of each query that are learned from
RIDGE = 1.0  # keeps a coefficient small that the sets say little of
ROUNDS = 30
WANTED = 0.82  # precision where the verdict is `match`


MANY_SERVERS = 100  # a set with more is no catalogue of servers
FEW = 4
NAMES = 60  # of each set, that are asked for in a word
ONE_WORD, SMALL_TALK = 0.004, 0.03  # what such a request weighs
SEED = 90.0  # as many of the sets' first hits

Seen = list[dict[str, float]]


class Sample(NamedTuple):
    features: list[float]
    is_right: float
    weight: float
    is_first: bool


def samples(data: Path, seen: Seen) -> Iterator[Sample]:
    """`seen` is filled by the search itself with the features of its hits."""
    for each in retrieval.sets(data):
        ready = retrieval.index(each.documents)
        weight = 1 / math.sqrt(len(each.queries))  # a large set says more, but not all
        searched = retrieval.searched_with_a_third_unanswerable(each, ready, PLACES)
        yield from learned_from(each, searched, seen, weight)
        yield from of_one_word(each, ready, seen)
        if len({document.server for document in each.documents}) < MANY_SERVERS:
            yield from learned_from(each, searched_among_few(each, ready), seen, weight)
            servers = of_servers(each)
            ready = retrieval.index(servers.documents)
            searched = retrieval.searched_with_a_third_unanswerable(servers, ready, PLACES)
            yield from learned_from(servers, searched, seen, weight)
            yield from of_one_word(servers, ready, seen)
            yield from of_small_talk(ready, seen)


def of_servers(each: retrieval.Set) -> retrieval.Set:
    """The same, where not a tool is looked for but a server that has it, as in a registry."""
    of_item = {each.items[document]: document.server for document in each.documents}
    documents = {
        document.server: Document(
            "", document.server_name or document.server, "servers", description=document.server_description
        )
        for document in each.documents
    }
    items = {document: server for server, document in documents.items()}
    asked = [query._replace(grades={of_item[item]: 1 for item in query.grades}) for query in each.queries]
    return retrieval.Set(f"{each.name}, servers", list(documents.values()), items, asked)


def of_one_word(each: retrieval.Set, ready: Index, seen: Seen) -> Iterator[Sample]:
    """People type a single word as well. What has it in its name is meant; what says it in passing is not."""
    chance = random.Random(each.name)
    for document in chance.sample(each.documents, min(NAMES, len(each.documents))):
        said = sorted({word for word in words.terms(document.description) if len(word) > 2})
        for query in (document.name, *chance.sample(said, min(2, len(said)))):
            for place, hit in enumerate(ready.search(query, PLACES)):
                is_right = set(words.terms(query)) <= set(words.terms(f"{hit.document.name} {hit.document.title}"))
                if len(ready.ranking(query).query.weights) == 1:
                    yield Sample(list(seen[place].values()), is_right, ONE_WORD * (1 if place == 0 else 0.25), False)


def of_small_talk(ready: Index, seen: Seen) -> Iterator[Sample]:
    """Much that is said to a model is for itself alone."""
    for query in Path(__file__).with_name("small_talk.txt").read_text().splitlines():
        for place, _ in enumerate(ready.search(query, PLACES)):
            yield Sample(list(seen[place].values()), False, SMALL_TALK * (1 if place == 0 else 0.25), False)


def of_seed(seen: Seen) -> Iterator[Sample]:
    """What seed 002 says of its own examples is part of what confidence means: learned from like the rest, and as much
    as it takes; the calibration on the sets says what that costs."""
    bundled = retrieval.index(map(as_document, catalogue.bundled()))
    yield from of_small_talk(bundled, seen)
    for ready, query, sure in (
        (search_fixture.local(), search_fixture.SCREENSHOT, 0.95),
        (search_fixture.local(), search_fixture.CRAWL, 0.87),
        (search_fixture.registry(), search_fixture.GITHUB_ISSUES, 0.92),
    ):
        ready.search(query, PLACES)
        yield Sample(list(seen[0].values()), sure, SEED, False)


def learned_from(
    each: retrieval.Set, searched: Iterable[tuple[retrieval.Asked, list[Hit]]], seen: Seen, weight: float
) -> Iterator[Sample]:
    for query, hits in searched:
        for place, hit in enumerate(hits):
            is_right = each.items[hit.document] in query.grades
            yield Sample(list(seen[place].values()), is_right, weight * (1 if place == 0 else 0.25), place == 0)


def searched_among_few(each: retrieval.Set, ready: Index) -> Iterator[tuple[retrieval.Asked, list[Hit]]]:
    """Most people have a few servers, not seventy: those of the query among a few others, and a third without them."""
    chance = random.Random(each.name)
    of_item = {each.items[document]: document.server for document in each.documents}
    for number, query in enumerate(each.queries):
        own = {of_item[item] for item in query.grades}
        others = sorted(set(of_item.values()) - own)
        few = set(chance.sample(others, min(FEW, len(others))))
        yield query, ready.search(query.text, PLACES, servers=few if number % 3 == 1 else few | own)


def solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gauss, with pivots."""
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for at in range(len(rows)):
        best = max(range(at, len(rows)), key=lambda row: abs(rows[row][at]))
        rows[at], rows[best] = rows[best], rows[at]
        for other in range(len(rows)):
            if other != at:
                factor = rows[other][at] / rows[at][at]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[at], strict=True)]
    return [row[-1] / row[at] for at, row in enumerate(rows)]


def likely(coefficients: list[float], features: list[float]) -> float:
    return 1 / (1 + math.exp(-sum(a * b for a, b in zip(coefficients, features, strict=True))))


def fitted(learned: list[Sample]) -> list[float]:
    """Newton's method; all but the constant are drawn to nought."""
    size = len(learned[0].features)
    scale = sum(sample.weight for sample in learned) / len(learned)
    coefficients = [0.0] * size
    for _ in range(ROUNDS):
        slope = [-RIDGE * scale * value * (at > 0) for at, value in enumerate(coefficients)]
        bend = [[RIDGE * scale * (a == b and a > 0) for a in range(size)] for b in range(size)]
        for features, is_right, weight, _ in learned:
            chance = likely(coefficients, features)
            for a in range(size):
                slope[a] += weight * (is_right - chance) * features[a]
                curved = weight * chance * (1 - chance) * features[a]
                if curved:
                    for b in range(size):
                        bend[a][b] += curved * features[b]
        step = solve(bend, slope)
        coefficients = [value + by for value, by in zip(coefficients, step, strict=True)]
        if max(map(abs, step)) < 1e-6:
            break
    return coefficients


def threshold(coefficients: list[float], learned: list[Sample]) -> float:
    """The least confidence from which on enough of the first hits are right."""
    firsts = sorted(((likely(coefficients, s.features), s.is_right) for s in learned if s.is_first), reverse=True)
    right, found = 0, 1.0
    for count, (chance, is_right) in enumerate(firsts, 1):
        right += is_right
        if count > 20 and right / count >= WANTED:
            found = chance
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    names: list[str] = []
    seen: Seen = []
    features = confidence.features

    def noted(ranking, at):  # type: ignore[no-untyped-def]
        if at == 0:
            seen.clear()
        seen.append(features(ranking, at))
        names[:] = seen[-1]
        return seen[-1]

    confidence.features = noted
    learned = [*samples(args.data, seen), *of_seed(seen)]
    coefficients = fitted(learned)
    match = threshold(coefficients, learned)
    made = {
        "coefficients": {name: round(value, 3) for name, value in zip(names, coefficients, strict=True)},
        "match": round(match, 2),
        "possible": round(match / 2, 2),
    }
    target = Path(confidence.__file__).with_name("confidence.json")
    target.write_text(json.dumps(made, indent=2) + "\n")
    print(target.read_text(), len(learned), "samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
