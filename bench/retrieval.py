"""How well search finds the right tool: `make retrieval DATA=dir`. See README.md."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toolgate.search import Document, Hit, Index, semantic
from toolgate.search.folder import LocalModel

Figures = dict[str, float]
DEPTH = 50
SHOWN = 10  # as many as a search shows
BATCH = 64  # texts that are made vectors at once


class Asked(NamedTuple):
    text: str
    grades: Mapping[str, float]  # by item


class Set(NamedTuple):
    """One catalogue with one file of queries. Several documents may be one item: variants of one name."""

    name: str
    documents: list[Document]
    items: Mapping[Document, str]
    queries: list[Asked]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def document(row: dict[str, Any]) -> Document:
    return Document(
        server=row["server"],
        name=row["tool"],
        description=row["description"] or "",
        schema=json.dumps(row["inputSchema"]).encode(),
        server_name=row.get("server_title") or "",
        server_description=row.get("server_description") or "",
    )


def item(id: str, row: Mapping[str, Any]) -> str:
    return row["tool"] if id.startswith(row["tool"] + "@") else id


def asked(row: dict[str, Any], items: Mapping[str, str]) -> Asked:
    grades = row.get("grades") or dict.fromkeys(row["relevant"], 1)
    return Asked(row["text"], {items.get(id, id): grade for id, grade in grades.items() if grade})


def sets(data: Path) -> Iterator[Set]:
    for folder in sorted(path.parent for path in data.glob("*/corpus.jsonl")):
        corpus = rows(folder / "corpus.jsonl")
        documents = [document(row) for row in corpus]
        items = {row["id"]: item(row["id"], row) for row in corpus}
        for file in sorted(folder.glob("queries*.jsonl")):
            name = ":".join([folder.name, *file.stem.split("_", 1)[1:]])
            by_document = dict(zip(documents, items.values(), strict=True))
            yield Set(name, documents, by_document, [asked(row, items) for row in rows(file)])


def index(documents: Iterable[Document]) -> Index:
    by_server: dict[str, list[Document]] = defaultdict(list)
    for each in documents:
        by_server[each.server].append(each)
    found = Index()
    for server, own in by_server.items():
        found.put(server, own)
    return found


def gain(grades: Iterable[float]) -> float:
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades))


def scores(found: list[str], grades: Mapping[str, float]) -> Figures:
    got = [grades.get(each, 0) for each in found]
    best = sorted(grades.values(), reverse=True)
    first = next((place for place, grade in enumerate(got) if grade), None)
    return {
        **{f"ndcg@{n}": gain(got[:n]) / gain(best[:n]) for n in (5, 10)},
        **{f"recall@{n}": sum(map(bool, got[:n])) / len(grades) for n in (5, 10)},
        "mrr": 0 if first is None else 1 / (first + 1),
        "top1": float(first == 0),
        "hit@3": float(first is not None and first < 3),
    }


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def mean(figures: list[Figures]) -> Figures:
    return {name: sum(each[name] for each in figures) / len(figures) for name in figures[0]}


Search = Callable[[str, int], list[Hit]]


def by_meaning(each: Set, index: Index, model: LocalModel) -> Search:
    """By words and by meaning, as `virtual_search.mode = "semantic"` does."""
    vectors: dict[Document, Any] = {}
    for at in range(0, len(each.documents), BATCH):
        part = each.documents[at : at + BATCH]
        vectors |= zip(part, model.embed([semantic.text_of(document) for document in part]), strict=True)

    def search(text: str, limit: int) -> list[Hit]:
        (meant,) = model.embed([text])
        return semantic.fused(text, meant, vectors, index.search(text, semantic.CANDIDATES), limit)

    return search


def measured(each: Set, search: Search) -> Figures:
    found: list[Figures] = []
    took: list[float] = []
    for query in each.queries:
        start = time.perf_counter()
        search(query.text, SHOWN)
        took.append((time.perf_counter() - start) * 1e3)
        hits = search(query.text, DEPTH)
        found.append(scores(list(dict.fromkeys(each.items[hit.document] for hit in hits)), query.grades))
    figures = {name: value * 100 for name, value in mean(found).items()}
    return figures | {"p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}


def searched_with_a_third_unanswerable(each: Set, index: Index, limit: int = 1) -> Iterator[tuple[Asked, list[Hit]]]:
    """Every third query has none of its tools to find."""
    for number, query in enumerate(each.queries):
        removed = query.grades.keys() if number % 3 == 0 else ()
        permitted = (lambda document, r=removed: each.items[document] not in r) if removed else None
        yield query, index.search(query.text, limit, permitted=permitted)


def judged(each: Set, index: Index) -> Iterator[tuple[float, bool, str]]:
    """Confidence, truth and verdict of the first hit of each query."""
    for query, hits in searched_with_a_third_unanswerable(each, index):
        if hits:
            yield hits[0].confidence, each.items[hits[0].document] in query.grades, hits[0].verdict
        else:
            yield 0.0, False, "none"


def calibration(found: list[tuple[float, bool, str]]) -> Figures:
    """The expected calibration error, in ten bins, over all queries of all sets."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for confidence, right, _ in found:
        bins[min(9, int(confidence * 10))].append((confidence, right))
    off = sum(abs(sum(confidence - right for confidence, right in own)) for own in bins.values())
    matched = [right for _, right, verdict in found if verdict == "match"]
    return {
        "ece": 100 * off / len(found),
        "precision_at_match": 100 * sum(matched) / (len(matched) or 1),
        "coverage_at_match": 100 * len(matched) / len(found),
    }


def line(dataset: str, figures: Figures, **more: Any) -> None:
    print(
        json.dumps({"dataset": dataset, **more, **{name: round(each, 2) for name, each in figures.items()}}), flush=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a directory of sets: SET/corpus.jsonl and SET/queries*.jsonl")
    parser.add_argument("--by-set", action="store_true", help="the calibration of each set as well")
    parser.add_argument("--model", type=Path, help="by meaning too: the directory of a model, see docs/providers.md")
    args = parser.parse_args()
    model = LocalModel(args.model) if args.model else None
    engine = "semantic" if model else "default"
    all_figures: list[Figures] = []
    all_judged: list[tuple[float, bool, str]] = []
    for each in sets(args.data):
        ready = index(each.documents)
        figures = measured(each, by_meaning(each, ready, model) if model else ready.search)
        line(each.name, figures, engine=engine, queries=len(each.queries))
        found = list(judged(each, ready))
        if args.by_set:
            line(f"calibration:{each.name}", calibration(found))
        all_figures.append(figures)
        all_judged += found
    if not all_figures:
        sys.exit(f"there is no set in {args.data}")
    line("mean", mean(all_figures), engine=engine, queries=len(all_judged))
    line("calibration", calibration(all_judged))
    return 0


if __name__ == "__main__":
    sys.exit(main())
