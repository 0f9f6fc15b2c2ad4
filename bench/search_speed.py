"""How long a search takes among many tools, beside SQLite's FTS5 in the same run. See README.md."""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import time
from pathlib import Path

import retrieval

from toolgate.search import Document, words


def catalogue(data: Path, size: int) -> tuple[list[Document], list[str]]:
    """So many tools, repeated on other servers where the sets have fewer, and queries of all sets."""
    sets = list(retrieval.sets(data))
    chance = random.Random(size)
    tools = list(dict.fromkeys(document for each in sets for document in each.documents))
    chance.shuffle(tools)
    many = [tools[at % len(tools)] for at in range(size)]
    renamed = [d._replace(server=f"{d.server}-{at // len(tools)}") for at, d in enumerate(many)]
    return renamed, [query.text for each in sets for query in chance.sample(each.queries, min(150, len(each.queries)))]


def full_text(documents: list[Document]) -> sqlite3.Connection:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE VIRTUAL TABLE tools USING fts5(name, description, tokenize = 'porter unicode61')")
    base.executemany("INSERT INTO tools VALUES (?, ?)", [(each.name, each.description) for each in documents])
    return base


def match(base: sqlite3.Connection, text: str) -> None:
    query = " OR ".join(f'"{term}"' for term in dict.fromkeys(w for w, _ in words.compounds(text))) or '"x"'
    base.execute("SELECT rowid, rank FROM tools WHERE tools MATCH ? ORDER BY rank LIMIT 10", (query,)).fetchall()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tools", type=int, default=5000)
    args = parser.parse_args()
    documents, queries = catalogue(args.data, args.tools)
    start = time.thread_time()
    index = retrieval.index(documents)
    built = time.thread_time() - start
    base = full_text(documents)
    ways = {
        "ours": index.search,
        "ours, with a permission to ask for each": lambda text: index.search(
            text, kinds=("tools",), permitted=lambda document: document.server != "none"
        ),
        "fts5": lambda text: match(base, text),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for text in queries:
        for name, search in ways.items():
            start = time.thread_time()
            search(text)
            took[name].append((time.thread_time() - start) * 1e3)
    print(f"{args.tools} tools, {len(queries)} queries; indexed in {built:.2f} s")
    for name, all in took.items():
        print(f"{name}: p50 {retrieval.percentile(all, 0.5):.2f} ms, p99 {retrieval.percentile(all, 0.99):.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
