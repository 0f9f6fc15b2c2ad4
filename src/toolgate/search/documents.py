"""What can be found, the fields of it that are searched, and the terms that it can be found by.

The rule this file keeps: whatever stands in a schema, reading it neither fails nor takes long.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from toolgate.search import words
from toolgate.search.weights import FIELDS, SATURATION

Verdict: TypeAlias = Literal["match", "possible", "none"]

_DEEPEST = 6
_MOST_PARAMETERS = 200
_MOST_TEXT = 20_000
_LONGEST_NAME = 1_000  # characters of a name whose parts are told apart: no honest one has as many
_OF_A_TERM = 10  # characters of a text that are read for each term that is kept of it
_SENTENCE = re.compile(r"[.!?](?=\s)|\n|。")
_LEVELS = tuple(level / 1000 for level in range(1001))  # one float for all that are equal


class Document(NamedTuple):
    """One thing of one server. `schema` is its input schema, raw; it is read when the document is put into an index."""

    server: str
    name: str
    kind: str = "tools"
    title: str = ""
    description: str = ""
    schema: bytes = b""
    server_name: str = ""
    server_description: str = ""

    @property
    def size(self) -> int:
        """Bytes and characters of its texts."""
        return len(self.name) + len(self.title) + len(self.description) + len(self.schema)

    @property
    def listed_by(self) -> str:
        """Who alone decides what is listed beside it: its server, or in a registry who has published it. Nobody does in
        the bundled list, or where a name does not say."""
        if self.kind != "servers" or not self.server:
            return self.server
        publisher = self.name.rpartition("/")[0]
        return f"{self.server} {publisher}" if publisher else ""


class Hit(NamedTuple):
    """`relevance` orders the hits of one search and means nothing beyond it; `score` is seed 002's integer;
    `confidence` is how likely it is that this is what was meant, and `verdict` what follows from that."""

    document: Document
    relevance: float
    score: int
    confidence: float
    verdict: Verdict


class Unsearchable(ValueError):
    """A query that cannot be searched for; its text says why and what would do."""


class Vector:
    """A document as numbers. Equal documents share one, which is kept as long as one of them is. Of more than `most`
    terms it has those that weigh most."""

    __slots__ = ("__weakref__", "name", "terms")

    def __init__(self, document: Document, most: int | None = None) -> None:
        found = fields(document, _MOST_TEXT if most is None else min(_MOST_TEXT, most * _OF_A_TERM))
        sums: dict[str, float] = defaultdict(float)
        for field, (weight, length_matters, usual) in FIELDS.items():
            each = weight / (1 - length_matters + length_matters * len(found[field]) / usual)
            for term in found[field]:
                sums[term] += each
        if most is not None and len(sums) > most:
            sums = dict(nlargest(most, sums.items(), key=itemgetter(1)))
        self.terms = {term: _LEVELS[round(1000 * total / (SATURATION + total))] for term, total in sums.items()}
        self.name = parts_of_name(document.name[:_LONGEST_NAME])


def parts_of_name(name: str) -> frozenset[str]:
    return frozenset(part for whole, parts in words.compounds(name) for part in parts or (whole,))


def fields(document: Document, most: int = _MOST_TEXT) -> dict[str, list[str]]:
    """The terms of each field that is searched, in the first `most` characters of each text."""
    first, rest = sentences(document.description[:most])
    names, said = parameters(document.schema)
    label = document.server_name if document.server_name.lower() != document.server.lower() else ""
    texts = {
        "name": document.name[:most],
        "title": document.title[:most],
        "server": f"{document.server} {label}",
        "about": document.server_description[:most],
        "first": first,
        "rest": rest,
        "parameters": names[:most],
        "said": said[:most],
    }
    return {field: words.terms(text) for field, text in texts.items()}


def sentences(text: str) -> tuple[str, str]:
    """The first sentence, and what follows."""
    text = text.strip()
    end = _SENTENCE.search(text)
    return (text[: end.end()], text[end.end() :]) if end else (text, "")


def parameters(schema: bytes) -> tuple[str, str]:
    """The names of all parameters and all that is said of them, nested ones too; nothing of what cannot be read."""
    try:
        read: Any = json.loads(schema) if schema else None
    except (ValueError, RecursionError):
        read = None
    found = list(islice(_parameters(read, _DEEPEST), _MOST_PARAMETERS))
    return " ".join(name for name, _ in found), "\n".join(said for _, said in found)


def _parameters(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict) or not depth:
        return
    properties = _object(schema, "properties")
    for name in properties:
        about = _object(properties, name)
        yield name, _said(about)
        yield from _parameters(about, depth - 1)
    yield from _parameters(_object(schema, "items"), depth - 1)


def _object(of: Any, name: str) -> dict[str, Any]:
    value = of.get(name)
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _said(about: dict[str, Any]) -> str:
    choices = about.get("enum")
    said: list[Any] = [about.get("description"), *(cast(list[Any], choices)[:20] if isinstance(choices, list) else ())]
    return " ".join(each for each in said if isinstance(each, str))
