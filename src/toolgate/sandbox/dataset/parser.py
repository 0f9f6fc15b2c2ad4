"""All readings of a sequence of tokens by a table of forms, in bounded time.

A form is a name, a pattern and what makes a value of the parts:

    ("measure", "<agg> THE? <column>", lambda scope, agg, column: ...)

A pattern's elements stand apart by spaces: a word (or words with | between), a CLASS of phrases, a <form> or a slot
of the
scope; `?` makes one optional. The function is given the scope and the values of the elements in <>, None for one that
is
absent; where it returns None, that reading is none. All readings are kept: who asks decides whether one is left. Each
combination of form and place is tried once, and the whole work has a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolgate.sandbox.dataset.tables import Refused
from toolgate.sandbox.dataset.words import PHRASES

_MOST_WORK = 400_000  # elements tried; about a second
_MOST_READINGS = 400  # of one form at one place

Found = list[tuple[int, Any]]


class Element(NamedTuple):
    kind: str  # words, class, or form
    name: str
    optional: bool
    argument: int | None  # which value before it is handed to the slot


class Compiled(NamedTuple):
    elements: tuple[Element, ...]
    action: Callable[..., Any]


def compiled(forms: Sequence[tuple[str, str, Callable[..., Any]]]) -> Mapping[str, list[Compiled]]:
    made: dict[str, list[Compiled]] = {}
    for name, pattern, action in forms:
        made.setdefault(name, []).append(Compiled(tuple(map(_element, pattern.split())), action))
    return made


def _element(text: str) -> Element:
    optional, text = text.endswith("?"), text.removesuffix("?")
    if text.startswith("<"):
        name, _, argument = text[1:-1].partition(":")
        return Element("form", name, optional, int(argument) if argument else None)
    return Element("class" if text in PHRASES else "words", text, optional, None)


class Parser:
    """Readings of the tokens of one scope, whose methods `read_…` are the slots. `furthest` is how far any reading
    came."""

    def __init__(self, forms: Mapping[str, list[Compiled]], scope: Any) -> None:
        self._forms, self._scope = forms, scope
        self._words = [token.text if token.kind != "quoted" else "" for token in scope.tokens]
        self._made: dict[tuple[str, int, str], Found] = {}
        self._work = 0
        self.furthest = 0

    def whole(self, name: str) -> list[Any]:
        """The readings that take all tokens."""
        return [value for end, value in self.readings(name, 0) if end == len(self._words)]

    def readings(self, name: str, at: int, argument: Any = None) -> Found:
        key = (name, at, repr(argument))
        if key not in self._made:
            self._made[key] = []  # a form that begins with itself has no reading
            self._made[key] = self._read(name, at, argument)
            if len(self._made[key]) > _MOST_READINGS:
                raise self._too_much()
        return self._made[key]

    def _read(self, name: str, at: int, argument: Any) -> Found:
        if name not in self._forms:
            slot = getattr(self._scope, f"read_{name}")
            found: Found = slot(at) if argument is None else slot(at, argument)
            self.furthest = max([self.furthest, *(end for end, _ in found)])
            return found
        made: dict[tuple[int, str], tuple[int, Any]] = {}
        for form in self._forms[name]:
            for end, values in self._sequence(form.elements, 0, at, ()):
                value = form.action(self._scope, *values)
                if value is not None:
                    made.setdefault((end, repr(value)), (end, value))
        return list(made.values())

    def _sequence(
        self, elements: tuple[Element, ...], index: int, at: int, values: tuple[Any, ...]
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        self._work += 1
        if self._work > _MOST_WORK:
            raise self._too_much()
        if index == len(elements):
            yield at, values
            return
        element = elements[index]
        if element.kind == "form":
            given = None if element.argument is None else values[element.argument]
            for end, value in self.readings(element.name, at, given):
                yield from self._sequence(elements, index + 1, end, (*values, value))
            if element.optional:
                yield from self._sequence(elements, index + 1, at, (*values, None))
            return
        for end in self._ends(element, at):
            self.furthest = max(self.furthest, end)
            yield from self._sequence(elements, index + 1, end, values)
        if element.optional:
            yield from self._sequence(elements, index + 1, at, values)

    def _ends(self, element: Element, at: int) -> Iterator[int]:
        if at >= len(self._words):
            return
        if element.kind == "words":
            if self._words[at] in element.name.split("|"):
                yield at + 1
            return
        for phrase in PHRASES[element.name]:
            if self._words[at] == phrase[0] and tuple(self._words[at : at + len(phrase)]) == phrase:
                yield at + len(phrase)

    def _too_much(self) -> Refused:
        return Refused(
            "The operation has too many possible readings",
            "Say it in shorter sentences, or use parameters.steps or parameters.sql",
        )
