"""What counts how much.

Field-weighted BM25: a term counts by its rarity, by the fields it stands in and how often, and less in a long field.
The lengths that are usual are constants, not averages of the catalogue: so a document's vector is its own, whatever
else is indexed, and a tool that a client may not see has no part in what that client finds.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Field(NamedTuple):
    weight: float
    length_matters: float  # BM25's b
    usual_length: float


FIELDS = {
    "name": Field(4, 0.6, 3),
    "title": Field(2, 0.3, 3),
    "server": Field(0.6, 0.3, 2),
    "about": Field(0.15, 0.3, 15),
    "first": Field(1.5, 0.3, 9),
    "rest": Field(0.2, 0.75, 20),
    "parameters": Field(0.5, 0.6, 5),
    "said": Field(0.3, 0.6, 25),
}

SATURATION = 3.0  # BM25's k1: how much more a term counts that stands there more often
RARITY = 0.8  # the power of the idf
COVERAGE = 0.8  # the power of the share of the query that a document answers
NAME = 0.2  # what a name is worth of which the query says every part
SERVER = 0.15  # what the best tool of a server lends to the others
SYNONYM = 0.4  # a word's synonym, as against the word itself
UNKNOWN = 1.5  # and how much more where nothing has the word itself
SYNONYM_COVERS = 0.7
CLAUSE = 0.3  # what it is worth to be best for one clause of a long request
CLAUSE_BEST = 3  # the power that favours the best of each clause
CLAUSE_LENGTH = 0.5  # the power of a clause's share of the request
VOTES = 40  # of one server, at most, on how common a term is
LIKENESS = 0.8  # what it is worth to be written like the request


def rarity(count: float, total: float) -> float:
    """What a term is worth that `count` of `total` documents have."""
    return math.log(1 + (total - count + 0.5) / (count + 0.5)) ** RARITY
