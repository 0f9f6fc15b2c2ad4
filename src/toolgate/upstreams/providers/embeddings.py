"""Embeddings, as OpenAI and many others speak them: texts as vectors, in which what means the same lies close together.

Facts: the reference of the API. Only what all of them know is sent: a model and texts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from toolgate.config.providers import Provider
from toolgate.core import jsonrpc
from toolgate.upstreams.providers import api
from toolgate.upstreams.providers.api import Request, Unusable

Vector: TypeAlias = "array[float]"
"""Of length 1, so that a product of two is their likeness."""

MOST_DIMENSIONS = 8192
MOST_VALUES = MOST_DIMENSIONS + 100  # of JSON in an answer, for each text


def request(provider: Provider, texts: Sequence[str]) -> Request:
    headers = {"Authorization": f"Bearer {provider.key}"} if provider.key else {}
    return Request("/embeddings", headers, jsonrpc.encode({"model": provider.model, "input": texts}))


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]


def vectors(body: bytes, count: int) -> list[Vector]:
    """In the order of the texts. Raises `Unusable`."""
    found = {each.index: each.embedding for each in api.read(body, _Embeddings).data}
    if found.keys() != set(range(count)) or len(set(map(len, found.values()))) > 1:
        raise Unusable("the answer has other vectors than were asked for")
    return [_normal(found[index]) for index in range(count)]


def _normal(values: Sequence[float]) -> Vector:
    if len(values) > MOST_DIMENSIONS:
        raise Unusable(f"a vector of the answer has more than {MOST_DIMENSIONS:,} numbers")
    length = math.sqrt(sum(value * value for value in values))
    if not length or not math.isfinite(length):
        raise Unusable("a vector of the answer has no direction")
    return array("f", [value / length for value in values])
