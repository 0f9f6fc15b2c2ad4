"""Seed 002's integer score: what people see beside a hit. It orders nothing."""

from __future__ import annotations

import re
from collections.abc import Collection

from toolgate.search import words
from toolgate.search.documents import Document

_WORD = re.compile(r"\w+")
_NAME_TOKEN, _IN_NAME, _IN_DESCRIPTION = 10, 5, 2


def asked(query: str) -> Collection[str]:
    """The words of a query that count, for `of` each of its hits."""
    return dict.fromkeys(word for word in _WORD.findall(query.lower()) if word not in words.STOP_WORDS)


def of(asked: Collection[str], document: Document) -> int:
    tokens = {token.lower() for token in words.split(document.name)}
    said = set(_WORD.findall(document.description.lower()))
    return sum(_points(word, document.name.lower(), tokens, said) for word in asked)


def _points(word: str, name: str, tokens: set[str], said: set[str]) -> int:
    in_name = _NAME_TOKEN if word in tokens else _IN_NAME if word in name else 0
    return in_name + (_IN_DESCRIPTION if word in said else 0)
