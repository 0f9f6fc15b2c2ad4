"""Terms that were given up stand nowhere any more: `words.toml` has them, what replaced them, and the exceptions."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from architecture import imports
from architecture.imports import SOURCE

WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
ROOT = SOURCE.parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
TEXTS = sorted(
    path
    for path in (*SOURCE.rglob("*.py"), *PAGES)
    if path.name != "CHANGELOG.md" and "decisions" not in path.relative_to(ROOT).parts
)


def every(group: str) -> frozenset[str]:
    return frozenset((*WORDS[group]["words"], *WORDS[group]["forms"]))


NOWHERE = every("nowhere")
NOT_IN_NAMES = NOWHERE | every("not_in_names")
NOT_IN_MODULES_AND_CLASSES = NOT_IN_NAMES | every("not_in_modules_and_classes")


class Name(NamedTuple):
    module: str
    name: str
    names_a_module_or_class: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def parts(name: str) -> Collection[str]:
    """The words of a name: `a_name`, `aName` and `HTTPName` have two each."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+", name)}


def names(module: str, tree: ast.Module) -> Iterator[Name]:
    """All that the module defines, and the module."""
    yield Name(module, module, True)
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                yield Name(module, name, True)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield Name(module, name, False)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield Name(module, name, False)
            case _:
                pass


def refused(found: Iterable[Name]) -> set[str]:
    return {
        str(name)
        for name in found
        if parts(name.name) & (NOT_IN_MODULES_AND_CLASSES if name.names_a_module_or_class else NOT_IN_NAMES)
    }


@cache
def refused_in_the_source() -> frozenset[str]:
    return frozenset(refused(name for module, tree in imports.modules().items() for name in names(module, tree)))


WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(NOWHERE))})(?![a-z])")
PHRASE = re.compile("|".join(map(re.escape, WORDS["nowhere"]["phrases"])))


def lines_with_a_word(text: str) -> list[int]:
    """Words are found in small letters and with a capital, phrases as they are written."""
    found = [*WORD.finditer(text.lower()), *PHRASE.finditer(text)]
    return sorted({each.string.count("\n", 0, each.start()) + 1 for each in found})


def test_no_name_has_a_word_that_was_given_up() -> None:
    assert not refused_in_the_source() - WORDS["exceptions"].keys()


def test_every_exception_is_needed_and_has_a_reason() -> None:
    assert WORDS["exceptions"].keys() <= refused_in_the_source(), "take it out of words.toml"
    assert all(WORDS["exceptions"].values())


def test_no_text_has_a_word_that_was_given_up() -> None:
    assert [f"{path.relative_to(ROOT)}:{line}" for path in TEXTS for line in lines_with_a_word(path.read_text())] == []


# The check itself.


@pytest.mark.parametrize(
    "text",
    [
        "class UpstreamBerth: ...",
        "class Door: ...",
        "class HTTPRoom: ...",
        "def _shelf_of(): ...",
        "def call(guest): ...",
        "self._realm = 1",
        "SKINS = ()",
        "field: int\nfor spill in (): ...",
    ],
)
def test_a_word_in_a_name_is_found(text: str) -> None:
    assert refused(names("module", ast.parse(text)))


@pytest.mark.parametrize("text", ["def door(): ...", "room = 1", "class Doorway: ...", "recommended = amended = 1"])
def test_an_everyday_word_is_free_but_for_modules_and_classes(text: str) -> None:
    assert not refused(names("module", ast.parse(text)))


def test_a_module_is_found_by_any_of_its_packages() -> None:
    assert refused(names("upstreams.room.doors", ast.parse("")))


@pytest.mark.parametrize(
    "line", ["its mend", "Mend it.", "`skins`", "a_skin", "the secret is nowhere: looked in x", "Not let in: no key"]
)
def test_a_word_in_a_text_is_found(line: str) -> None:
    assert lines_with_a_word(f"\n{line}\n") == [2]


@pytest.mark.parametrize("line", ["recommend", "amended", "who is not let in any more", "bookshelf"])
def test_other_words_are_free(line: str) -> None:
    assert lines_with_a_word(line) == []
