"""A request as terms: its clauses, what each of its terms is worth here, and which synonyms stand for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from toolgate.search import weights, words

_CLAUSE_END = re.compile(
    r"[.!?;:\n](?=\s|$)|,\s|\s(?:and|then|also|but|with|while|or|finally|after that|\+)\s", re.IGNORECASE
)
LONGEST = 4_000  # characters, and
_MOST_TERMS = 64  # terms of a request that are looked at


class Query(NamedTuple):
    """`weights` has every term, `variants` those that something here has: what it is found by, and what each is worth
    then, the term itself first. `clauses` are sets of such terms. `total` is how many documents could be
    found, as far as they count."""

    weights: Mapping[str, float]
    variants: Mapping[str, Mapping[str, float]]
    clauses: tuple[frozenset[str], ...]
    total: float


def read(
    text: str, count: Callable[[str], float], total: float, within: Callable[[str], Iterable[str]] = lambda _term: ()
) -> Query:
    """`count` says how many of `total` documents have a term, `within` which parts of names it is a piece of, where it
    is no such part itself."""
    clauses = [_terms(clause, count) for clause in _CLAUSE_END.split(text[:LONGEST])]
    worth = {term: weights.rarity(count(term), total) for clause in clauses for term in clause}
    if len(worth) > _MOST_TERMS:
        worth = {term: worth[term] for term in sorted(worth, key=lambda term: -worth[term])[:_MOST_TERMS]}
    variants = {term: _variants(term, worth, count, total, within) for term in worth}
    variants = {term: found for term, found in variants.items() if found}
    known = (frozenset(term for term in clause if term in variants) for clause in clauses)
    return Query(worth, variants, tuple(clause for clause in known if clause), total)


def _terms(text: str, count: Callable[[str], float]) -> list[str]:
    """A compound counts whole where it is known so, and else in its parts."""
    found: list[str] = []
    for whole, parts in words.compounds(text):
        found += parts if parts and not count(whole) else (whole,)
    return found


def _variants(
    term: str,
    worth: Mapping[str, float],
    count: Callable[[str], float],
    total: float,
    within: Callable[[str], Iterable[str]],
) -> dict[str, float]:
    own = {term: worth[term]} if count(term) else {}
    share = weights.SYNONYM * (1 if own else weights.UNKNOWN)
    known = (*synonyms().get(term, ()), *within(term))
    others = (other for other in known if other not in worth)
    return own | {
        other: share * min(worth[term], weights.rarity(found, total)) for other in others if (found := count(other))
    }


@cache
def synonyms() -> Mapping[str, tuple[str, ...]]:
    """Each stem of `synonyms.txt`, and the stems that stand in a group with it; read when it is first needed."""
    lines = Path(__file__).with_name("synonyms.txt").read_text("utf-8").splitlines()
    found: dict[str, dict[str, None]] = {}
    for group in ([words.stem(word) for word in line.split()] for line in lines if not line.startswith("#")):
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(group))
    return {word: tuple(other for other in others if other != word) for word, others in found.items()}
