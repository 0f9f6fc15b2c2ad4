"""What words can mean in this data: its columns, its values, the rows themselves.

Each `read_…` is a slot of the grammar: given a place among the tokens it says what stands there, as (end, meaning)
for each
meaning. A column must be named as it is, but for case, plural and the signs between its words. A value without quotes
must occur in its column. What is nearly right is kept in `problems`, for the refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from toolgate.sandbox.dataset.tables import Table, listed, quoted
from toolgate.sandbox.dataset.words import ENTITIES, KNOWN, MONTHS, NUMBERS, Token, parts_of, singular, tokens_of

_LONGEST_NAME = 8  # tokens of a name or a value without quotes
_MOST_CATEGORIES = 200  # different values of a column whose values may stand alone, as in "open tickets"
_MOST_INDEXED = 50  # columns that are looked through for those
_IDENTITIES = ("", "id", "name", "number", "no", "key", "code", "uuid", "email", "ref", "title", "username")

Found = list[tuple[int, Any]]
Form = tuple[str, str, Callable[..., Any]]  # name, pattern, and a function of the scope and the parts


class Scope:
    def __init__(self, tokens: Sequence[Token], table: Table) -> None:
        self.tokens, self.table = tokens, table
        self.problems: dict[str, tuple[int, tuple[str, ...]]] = {}  # by message, the place and hints
        self.assumed: dict[str, str] = {}  # by noun, what it was taken to mean
        self._values: dict[str, dict[tuple[str, ...], list[str]]] = {}

    def problem(self, at: int, message: str, *hints: str) -> None:
        self.problems.setdefault(message, (at, hints))

    # Columns.

    @cached_property
    def _columns(self) -> dict[tuple[str, ...], list[str]]:
        found: dict[tuple[str, ...], list[str]] = {}
        for name in [*self.table.columns, *self.table.paths]:
            found.setdefault(_key(parts_of(name)), []).append(name)
        leaves: dict[tuple[str, ...], list[str]] = {}
        for path in self.table.paths:
            leaves.setdefault(_key(parts_of(path.rpartition(".")[2])), []).append(path)
        for key, paths in leaves.items():
            found.setdefault(key, paths)
        found.pop((), None)
        return found

    def read_column(self, at: int) -> Found:
        if at < len(self.tokens) and self.tokens[at].kind == "quoted":
            text = self.tokens[at].text
            known = text in self.table.columns or text in self.table.paths
            return [(at + 1, text)] if known else []
        found: Found = []
        for end, tokens in self._spans(at):
            raw = tokens[0].raw
            if len(tokens) == 1 and (raw in self.table.columns or raw in self.table.paths):
                found.append((end, raw))
                continue
            key = _key(tuple(part for token in tokens for part in parts_of(token.raw)))
            found += [(end, name) for name in self._columns.get(key, ())]
        return found

    def read_flag(self, at: int) -> Found:
        """A column of true and false."""
        return [(end, name) for end, name in self.read_column(at) if self.table.kinds(name) == {"true or false"}]

    def _spans(self, at: int) -> Iterator[tuple[int, Sequence[Token]]]:
        for end in range(at + 1, min(at + _LONGEST_NAME, len(self.tokens)) + 1):
            if self.tokens[end - 1].kind in ("sign", "quoted"):
                return
            yield end, self.tokens[at:end]

    # Values.

    def read_value(self, at: int, column: str) -> Found:
        """A value of a column: in quotes any text; without, one that occurs, in any case."""
        if at >= len(self.tokens):
            return []
        token, kinds = self.tokens[at], self.table.kinds(column)
        if kinds == {"number"}:
            return self.read_number(at)
        if kinds == {"true or false"}:
            return [(at + 1, token.text == "true")] if token.text in ("true", "false") and token.kind == "word" else []
        if kinds - {"text"}:
            self.problem(
                at, f"Column {quoted(column)} holds {' and '.join(sorted(kinds))}, so what equals it is not clear"
            )
            return []
        if token.kind == "quoted":
            return [(at + 1, token.text)]
        return self._written_value(at, column)

    def _written_value(self, at: int, column: str) -> Found:
        index = self._indexed(column)
        found: Found = []
        for end in range(at + 1, min(at + _LONGEST_NAME, len(self.tokens)) + 1):
            if self.tokens[end - 1].kind == "quoted":
                break
            words = tuple(token.raw.casefold() for token in self.tokens[at:end])
            values = index.get(words, [])
            found += [(end, value) for value in values]
            if len(values) > 1:
                self.problem(
                    end, f"Column {quoted(column)} has {listed(map(quoted, values))}", "Write one of them in quotes"
                )
        if not found and not self.read_column(at):
            word = self.tokens[at].raw
            known = list(dict.fromkeys(value for values in index.values() for value in values))
            message = f"No row has {column} {quoted(word)}. Its values are {listed(map(quoted, known[:20]))}"
            self.problem(
                at,
                message if len(known) <= 20 else f"No row has {column} {quoted(word)}",
                f'Write "{word}" in quotes if you want it all the same',
            )
        return found

    def read_values(self, at: int, column: str) -> Found:
        """A list of values and how they are joined: "", "," , "or" or "and"."""
        found: Found = []
        for end, value in self.read_value(at, column):
            found.append((end, ((value,), "")))
            joiner, after = self._joiner(end)
            if joiner:
                for last, (others, join) in self.read_values(after, column):
                    joined = join if joiner == "," else joiner
                    if join in ("", joiner) or joiner == ",":
                        found.append((last, ((value, *others), joined or ",")))
        return found[:50]

    def _joiner(self, at: int) -> tuple[str, int]:
        texts = [token.text for token in self.tokens[at : at + 2]]
        if texts[:1] == [","]:
            return (texts[1], at + 2) if texts[1:] in (["or"], ["and"]) else (",", at + 1)
        return (texts[0], at + 1) if texts[:1] in (["or"], ["and"], ["nor"]) else ("", at)

    def _indexed(self, column: str) -> dict[tuple[str, ...], list[str]]:
        """By their words in lower case, the different texts of a column."""
        if column not in self._values:
            found: dict[tuple[str, ...], list[str]] = {}
            for value in dict.fromkeys(value for value in self.table.present(column) if isinstance(value, str)):
                words = _value_words(value)
                if words:
                    found.setdefault(words, []).append(value)
            self._values[column] = found
        return self._values[column]

    @cached_property
    def _categories(self) -> dict[tuple[str, ...], list[tuple[str, str]]]:
        """By their words, values that may stand alone, each with its column."""
        found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for column in [*self.table.columns, *self.table.paths][:_MOST_INDEXED]:
            if self.table.kinds(column) != {"text"} or len(set(self.table.present(column))) > _MOST_CATEGORIES:
                continue
            for words, values in self._indexed(column).items():
                if (len(words) == 1 and (words[0] in KNOWN or len(words[0]) == 1)) or not words[0][0].isalpha():
                    continue
                for key in {words, (*words[:-1], singular(words[-1]))}:
                    found.setdefault(key, []).extend((column, value) for value in values)
        return found

    def read_bare(self, at: int) -> Found:
        """A value or a true-or-false column that stands alone, as a condition."""
        found: Found = [(end, {"column": name, "is": True}) for end, name in self.read_flag(at)]
        for end, tokens in self._spans(at):
            words = tuple(token.raw.casefold() for token in tokens)
            keys = dict.fromkeys([words, (*words[:-1], singular(words[-1]))])
            meant = dict.fromkeys(each for key in keys for each in self._categories.get(key, ()))
            found += [(end, {"column": column, "is": value}) for column, value in meant]
        return found

    # The rows.

    def read_noun(self, at: int) -> Found:
        """What the rows are called, if each can be one such thing."""
        if at >= len(self.tokens) or self.tokens[at].kind != "word":
            return []
        word = self.tokens[at].text
        noun = singular(word)
        group = next((each for each in ENTITIES if noun in each), None)
        if noun == singular(self.table.name.casefold()):
            return [(at + 1, noun)]
        related = [each for each in self._identities({noun}) if group or parts_of(each)[1:] == ("id",)]
        if not related and group is None:
            return []
        for column in related or self._identities(group or {noun}):
            if self.table.kinds(column) & {"list", "object"} or not self._is_unique(column):
                self.problem(
                    at,
                    f"{quoted(word)} may mean the rows or the different values of {column}, and these differ here",
                    f"rows for the rows, unique {column} for its different values, or by {column} for a figure of each",
                )
                return []
        if not related:
            others = [each for each in self._unique_ids() if parts_of(each)[0] not in (group or ())]
            if others:
                self.problem(
                    at, f"A row seems to be one {parts_of(others[0])[0]}, not one {noun}", "Write rows for the rows"
                )
                return []
            self.assumed[noun] = f"A row was taken as one {noun}"
        return [(at + 1, noun)]

    def read_single(self, at: int) -> Found:
        """One of the rows: "row", or what a row is called, not in the plural."""
        if at < len(self.tokens) and self.tokens[at].text in ("row", "record", "entry", "item"):
            return [(at + 1, "")]
        return (
            self.read_noun(at)
            if at < len(self.tokens) and self.tokens[at].text == singular(self.tokens[at].text)
            else []
        )

    @cached_property
    def _named(self) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
        """By the first word of its name, singular, each column with the words of its name."""
        found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for column in [*self.table.columns, *self.table.paths]:
            parts = parts_of(column.rpartition(".")[2])
            if len(parts) in (1, 2):
                found.setdefault(singular(parts[0]), []).append((column, parts))
        return found

    def _identities(self, nouns: Iterable[str]) -> list[str]:
        """The columns that say which one of these things a row is about."""
        named = [each for noun in nouns for each in self._named.get(noun, ())]
        return [column for column, parts in named if (parts[1] if len(parts) == 2 else "") in _IDENTITIES]

    def _unique_ids(self) -> list[str]:
        ids = [column for each in self._named.values() for column, parts in each if parts[1:] in (("id",), ("uuid",))]
        return [column for column in ids if column in self.table.columns and self._is_unique(column)]

    def _is_unique(self, column: str) -> bool:
        values = self.table.held(column)
        if any(value is None or isinstance(value, list | dict) for value in values):
            return False
        return len(set(values)) == len(values)

    def date_column(self) -> str | None:
        """The one column of ISO dates, if there is one only."""
        found = [name for name in [*self.table.columns, *self.table.paths][:500] if self.table.is_dates(name)]
        if len(found) > 1:
            self.problem(0, f"There are several columns of dates: {listed(found)}", "Name the one that you mean")
        return found[0] if len(found) == 1 else None

    # Numbers, dates, texts, new names.

    def read_number(self, at: int) -> Found:
        if at >= len(self.tokens):
            return []
        token = self.tokens[at]
        if token.kind in ("number", "grouped"):
            text = token.text.replace(",", "")
            return [(at + 1, float(text) if "." in text else int(text))] if len(text) <= 300 else []
        return [(at + 1, NUMBERS[token.text])] if token.kind == "word" and token.text in NUMBERS else []

    def read_date(self, at: int) -> Found:
        """A date, a month (2026-11 or November 2026) or a year, as ISO text."""
        texts = [token.text for token in self.tokens[at : at + 2]]
        if not texts:
            return []
        token = self.tokens[at]
        if token.kind == "date":
            return [(at + 1, token.raw)]
        if token.kind == "number" and len(token.text) == 4 and token.text.isdigit():
            return [(at + 1, token.text)]
        if texts[0] in MONTHS and len(texts) == 2 and len(texts[1]) == 4 and texts[1].isdigit():
            return [(at + 2, f"{texts[1]}-{MONTHS.index(texts[0]) + 1:02}")]
        return []

    def read_text(self, at: int) -> Found:
        """One word, or a text in quotes."""
        if at >= len(self.tokens) or self.tokens[at].kind == "sign" or not self.tokens[at].text:
            return []
        token = self.tokens[at]
        return [(at + 1, token.text if token.kind == "quoted" else token.raw)]

    def read_newname(self, at: int) -> Found:
        return [each for each in self.read_text(at) if self.tokens[at].kind in ("word", "quoted")]


def _key(parts: tuple[str, ...]) -> tuple[str, ...]:
    return (*parts[:-1], singular(parts[-1])) if parts else ()


def _value_words(value: str) -> tuple[str, ...]:
    if len(value) > 100:
        return ()
    words = tuple(token.raw.casefold() for token in tokens_of(value))
    return words if len(words) <= _LONGEST_NAME else ()
