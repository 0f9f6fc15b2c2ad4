"""What is told of the bundled list for 260 things that people say to a model: see `intents.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from toolgate.provision import catalogue
from toolgate.provision.provisioning import as_document
from toolgate.search import Hit, Index

INTENTS = tomllib.loads(Path(__file__).with_name("intents.toml").read_text("utf-8"))
AT_MOST_FALSE, AT_MOST_MISSED = 1, 3  # "Fetch the newspaper from the porch" is one of the first


@pytest.fixture(scope="module")
def bundled() -> Index:
    found = Index()
    found.put("", map(as_document, catalogue.bundled()))
    return found


def matched(index: Index, intent: str) -> Hit | None:
    hits = index.search(intent, 1)
    return hits[0] if hits and hits[0].verdict == "match" else None


def test_hardly_anything_that_no_server_does_is_answered_with_a_server(bundled: Index) -> None:
    answered = [intent for intent in INTENTS["none"] if matched(bundled, intent)]
    assert len(answered) <= AT_MOST_FALSE, answered


def test_nearly_all_that_a_server_does_finds_one_that_does_it(bundled: Index) -> None:
    found = {intent: matched(bundled, intent) for _, intent in INTENTS["fits"]}
    missed = [
        intent
        for names, intent in INTENTS["fits"]
        if not (hit := found[intent]) or not any(name in hit.document.name.lower() for name in names)
    ]
    assert len(missed) <= AT_MOST_MISSED, missed


@pytest.mark.parametrize("intent", ["Try once more", "Go on with what you were doing", "I am bored", "Who made you?"])
def test_a_word_that_stands_somewhere_inside_others_is_no_match(bundled: Index, intent: str) -> None:
    assert not matched(bundled, intent)
