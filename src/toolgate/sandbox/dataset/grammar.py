"""An English operation and a table → steps, or a refusal. Nothing between: what is not understood in full is refused.

"then" cuts a text into sentences, each read with the columns that the one before leaves. A sentence has to have one
reading.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from toolgate.sandbox.dataset import steps
from toolgate.sandbox.dataset.compose import compose
from toolgate.sandbox.dataset.parser import Parser, compiled
from toolgate.sandbox.dataset.scope import Scope
from toolgate.sandbox.dataset.sentences import FORMS
from toolgate.sandbox.dataset.tables import Refused, Step, Table, listed, nearest, quoted
from toolgate.sandbox.dataset.words import KNOWN, NUMBERS, PHRASES, Token, tokens_of

_LONGEST = 1_000  # characters
_MOST_TOKENS = 80

_FORMS = compiled(FORMS)
_MEANT = (
    KNOWN
    | NUMBERS.keys()
    | {
        word
        for forms in _FORMS.values()
        for form in forms
        for element in form.elements
        for word in element.name.split("|")
    }
)
_ENDS_A_SENTENCE = PHRASES["THEN"]

EXAMPLES = (
    "top 5 by price",
    "count by status",
    "average price by category, highest first",
    'only rows where status is "open" and price > 100, then keep only name and price',
    "unique emails",
    "parameters.steps or parameters.sql say the same without English",
)


class Understood(NamedTuple):
    steps: list[Step]
    table: Table  # what they make of the data
    notes: tuple[str, ...]  # what was assumed


def understood(text: str, table: Table) -> Understood:
    """What a text means, done. Raises `Refused`."""
    if len(text) > _LONGEST or len(tokens := tokens_of(text)) > _MOST_TOKENS:
        raise Refused(
            f"The operation has more than {_LONGEST} characters or {_MOST_TOKENS} words",
            "Say it shorter, or use parameters.steps or parameters.sql",
        )
    if not tokens:
        raise Refused("The operation is empty", *EXAMPLES)
    done: list[Step] = []
    notes: dict[str, None] = {}
    for sentence in _sentences(tokens):
        if done and "values" in done[-1]:
            table = table.made(table.rows, table.columns, "objects")
            done[-1] = {"select": [done[-1]["values"]]}
        if done and steps.OPERATIONS[last := next(iter(done[-1]))].ends:
            raise Refused(f"Nothing can follow {last}")
        found, assumed = _one_reading(sentence, table)
        table = steps.run(found, table)
        done += found
        notes |= dict.fromkeys(assumed)
        if len(done) > steps.MOST_STEPS:
            raise Refused(f"More than {steps.MOST_STEPS} steps")
    return Understood(done, table, tuple(notes))


def _sentences(tokens: Sequence[Token]) -> list[list[Token]]:
    made: list[list[Token]] = [[]]
    at = 0
    while at < len(tokens):
        words = tuple("" if token.kind == "quoted" else token.text for token in tokens[at : at + 5])
        ending = next((phrase for phrase in _ENDS_A_SENTENCE if words[: len(phrase)] == phrase), None)
        goes_on = ending and words[len(ending) : len(ending) + 1] == ("by",)  # "sort by a, then by b"
        if ending and made[-1] and not goes_on:
            made.append([])
            at += len(ending)
        else:
            made[-1].append(tokens[at])
            at += 1
    if not made[-1]:
        raise Refused("The operation ends with then")
    return made


def _one_reading(tokens: list[Token], table: Table) -> tuple[list[Step], list[str]]:
    scope = Scope(tokens, table)
    parser = Parser(_FORMS, scope)
    found = {json.dumps(made): made for parts in parser.whole("sentence") if (made := compose(scope, parts))}
    if len(found) > 1:
        readings = [steps.interpretation(made) for made in found.values()]
        raise Refused("The operation can be read in several ways", *readings[:4])
    if not found:
        raise _not_understood(scope, parser.furthest)
    return next(iter(found.values())), list(scope.assumed.values())


def _not_understood(scope: Scope, furthest: int) -> Refused:
    """Why there is no reading: what is nearly right, else a word that means nothing here, else where it stopped."""
    table = scope.table
    if not table.columns:
        return Refused("The data is empty: it has no rows and no columns, so only rows can be counted")
    unknown = {at: token.raw for at, token in enumerate(scope.tokens) if _is_unknown(scope, at)}
    problems = sorted(scope.problems.items(), key=lambda each: -each[1][0])
    if unknown:  # then only what concerns one of these words
        problems = [each for each in problems if each[1][0] in unknown]
    if problems:
        message, (_, hints) = problems[0]
        return Refused(message, *hints)
    known = f"The columns are {listed(table.columns)}"
    if unknown:
        names = [*table.columns, *table.paths]
        near = [
            f"Did you mean {name} instead of {word}?"
            for word in [*unknown.values()][:5]
            for name in nearest(word, names)
        ]
        return Refused(f"Not understood: {listed(map(quoted, unknown.values()))}. {known}", *(near or EXAMPLES))
    rest = " ".join(token.raw for token in scope.tokens[furthest:]) or "the end"
    return Refused(f"Not understood from {quoted(rest)} on. {known}", *EXAMPLES)


def _is_unknown(scope: Scope, at: int) -> bool:
    token = scope.tokens[at]
    if token.kind in ("number", "grouped", "date", "quoted") or token.text in _MEANT:
        return False
    return not any(
        end > at
        for start in range(max(0, at - 7), at + 1)
        for read in (scope.read_column, scope.read_bare, scope.read_noun)
        for end, _ in read(start)
    )
