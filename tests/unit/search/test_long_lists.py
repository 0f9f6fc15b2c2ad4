"""Long lists, kept as numbers: found and ranked as an index of objects has them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from toolgate.provision import catalogue
from toolgate.provision.provisioning import as_document
from toolgate.search import Comparison, Document, Index, LongLists
from toolgate.search.documents import Vector, fields
from toolgate.search.ranking import Ranking

INTENTS = tomllib.loads((Path(__file__).parents[1] / "provision" / "intents.toml").read_text("utf-8"))
ASKED = [*INTENTS["none"], *(intent for _, intent in INTENTS["fits"])]
TOPICS = "weather maps music letters planets recipes trains birds colours poems stars games books roads"
WORDS = TOPICS.split(" ")
STRANGERS = [
    Document("https://one", f"p{at % 3}/{a}-{b}", "servers", "", f"Finds {a} for {b}. Keeps notes of {a}.")
    for at, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS)
]
LISTS = {"": [as_document(each) for each in catalogue.bundled()], "https://one": STRANGERS}


def read(key: str, numbers: Iterable[int]) -> Mapping[int, Document]:
    return {number: LISTS[key][number] for number in numbers}


@pytest.fixture(scope="module")
def both() -> tuple[Index, LongLists]:
    index, lists = Index(), LongLists()
    for key, documents in LISTS.items():
        index.put(key, documents)
        lists.put(key, ((at, each, 0.0) for at, each in enumerate(documents)))
    return index, lists


def told(ranking: Ranking) -> object:
    """The candidates, and in their order those that may be meant: which of the others, that are worth as little, are
    compared by spelling is left open."""
    found = Comparison(ranking)
    judged = [(each.document, round(each.worth, 4), found.judged(each)) for each in found.candidates]
    return {each.document for each in found.candidates}, [each for each in judged if each[2][1] != "none"]


@pytest.mark.parametrize("asked", [ASKED[at::8] for at in range(8)], ids=range(8))
def test_what_is_asked_for_is_ranked_as_by_an_index(both: tuple[Index, LongLists], asked: list[str]) -> None:
    index, lists = both
    for intent in asked:
        assert told(lists.ranking(intent, read)) == told(index.ranking(intent)), intent


@pytest.mark.parametrize("intent", ["trains", "eather", "recipes", "planets", "", "zzz q"])
def test_so_is_what_strangers_list(both: tuple[Index, LongLists], intent: str) -> None:
    index, lists = both
    assert told(lists.ranking(intent, read)) == told(index.ranking(intent))


def test_of_many_that_are_equal_the_oldest_are_looked_at() -> None:
    documents = [Document("https://one", f"p{at}/notes", "servers", "", "Keeps notes") for at in range(3000)]
    lists = LongLists()
    lists.put("", ((at, each, 3000.0 - at) for at, each in enumerate(documents)))

    def those(_key: str, numbers: Iterable[int]) -> Mapping[int, Document]:
        return {number: documents[number] for number in numbers}

    found = {entry.document for entry, _ in lists.ranking("keep notes", those).order}
    assert found == set(documents[2000:])


def test_a_list_that_is_dropped_is_not_found() -> None:
    lists = LongLists()
    lists.put("https://one", ((at, each, 0.0) for at, each in enumerate(STRANGERS)))
    assert lists.ranking("birds", read).order
    lists.drop("https://one")
    assert not lists.ranking("birds", read).order


def test_of_every_text_that_a_server_writes_a_part_is_read() -> None:
    long = "\ufdfa word " * 100_000
    name = "_".join(f"part{at}" for at in range(50_000))
    properties = {f"parameter {at} " + "x y " * 10_000: {} for at in range(20)}
    schema = json.dumps({"properties": properties}).encode()
    found = fields(Document("one", name, "tools", long, long, schema))
    assert max(len(terms) for terms in found.values()) < 20_000
    assert len(Vector(Document("one", name)).name) < 1_000
