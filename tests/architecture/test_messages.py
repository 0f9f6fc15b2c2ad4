"""What the collector of messages finds, and what holds for every message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from architecture import imports, messages
from architecture.messages import Message, written

MADE_UP = '''
"""A docstring is no message."""

from typing import cast


def act(path: str, count: int) -> None:
    """Neither is this one."""
    log.warning("%s cannot be read: %s", path, count)
    print("The file was removed.")
    typer.Option(help="Where the file is.")
    typer.echo(f"{path} has {count:,} lines")
    if count:
        raise Fault("NOT_FOUND", f"Not found: {path}", hint="check the path")
    raise ValueError("the count " "must be positive")


def other() -> None:
    "Nor is this."
    found: Annotated[str, Key(text, "the name of the file")] = ""
    cast("dict[str, list[int]]", found)
    found["one-word"]
'''

FOUND = [
    "%s cannot be read: %s",
    "The file was removed.",
    "Where the file is.",
    "{path} has {count} lines",
    "Not found: {path}",
    "check the path",
    "the count must be positive",
    "the name of the file",
]


def test_the_collector_finds_each_kind_of_message_and_nothing_else() -> None:
    assert [text for _, text in messages.texts_of(ast.parse(MADE_UP))] == FOUND


def test_it_finds_the_messages_of_all_packages() -> None:
    found = list(messages.collected())
    assert len(found) > 1_000
    packages = {each.module.partition(".")[0] for each in found}
    assert packages >= {"auth", "catalog", "cli", "config", "policy", "upstreams"}


# What is no sentence: patterns, words of search and of the grammar of operations, styles and SQL; and the demo server
# greets people.
CODE = re.compile(r"\\[bsSwd.]|\(\?|\[\^|\{\w+:[^}]*;|<style>|\b(?:SELECT|CREATE|PRAGMA|INSERT|BEGIN|DELETE)\b")
NOT_PROSE = (
    "catalog.poisoning",
    "sandbox.dataset.rows",
    "sandbox.dataset.sentences",
    "sandbox.dataset.words",
    "search.signatures",
    "search.words",
    "search.queries",
    "upstreams.inprocess.demo",
)


@cache
def prose() -> tuple[tuple[Message, str], ...]:
    """Each message, and its words alone: without values, and without what is quoted as code."""
    found = (each for each in messages.collected() if each.module not in NOT_PROSE and not CODE.search(each.text))
    return tuple((each, re.sub(r"`[^`]*`|\{[^{}]*\}", "{}", each.text)) for each in found)


RULES: Mapping[str, str] = {
    "has two spaces between words": r"[a-z][,.;:]?  +[a-z]",
    "has a space before a comma or a full stop": r"\w [,.;](?:\s|$)",
    "has no space after a comma": r"[a-z],[a-z]{2,}",
    "has an exclamation mark after a word": r"\w!(?:\s|$)",
    "says please or sorry": r"(?i)\b(?:please|sorry|oops)\b",
    "begins with Error": r"(?i)^error:",
    "ends with an ellipsis or a second full stop": r"(?:\.\.|…)$",
    "says a word twice": r"(?i)\b([a-z]{2,}) \1\b",
    "has a contraction": r"(?i)\b(?:can't|don't|won't|isn't|doesn't|didn't|it's|aren't)\b",
    "has a typographic quotation mark": "[\u2018\u2019\u201c\u201d]",
    "has an article before the wrong sound": r"\b(?:a (?:error|item|object|origin|issuer)|an (?:server|tool|user))\b",
    "has a rare word or phrase where there is a usual one": (
        r"(?i)\b(?:beside|whoever|anew|thereof|upon|of what|that which|as it was|stands? (?:in|below|inside))\b"
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_no_message(rule: str) -> None:
    assert not [str(message) for message, words in prose() if re.search(RULES[rule], words)]


HINT_AT = {"wrong": 1, "Finding": 1, "refused": 2}  # functions that take the fix of a message, and in which place


def hints() -> Iterator[str]:
    for module, tree in imports.modules().items():
        for node in ast.walk(tree):
            found: list[ast.expr] = []
            if isinstance(node, ast.keyword) and node.arg in ("hint", "fix", "needed"):
                found = [node.value]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HINT_AT:
                found = node.args[HINT_AT[node.func.id] :][:1]
            yield from (f"{module}: {written(each)}" for each in found if written(each))


def test_hints_go_on_after_a_message() -> None:
    """So they begin in lower case, or with what is quoted, and have no full stop at the end."""
    found = list(hints())
    assert len(found) > 30
    assert not [each for each in found if not re.search(r"^[\w.]+: [a-z`{\"$0-9].*[^.]$", each, re.DOTALL)]
