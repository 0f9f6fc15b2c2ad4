"""What is said of a field to the user who is to trust a file: it stands beside the field's `Key`.

The rule this file keeps: each field of the configuration has one of the three, or is a table whose fields have;
`tests/attack/test_trust_shows_all.py` finds one that was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, get_type_hints

import msgspec


class Allows(msgspec.Struct, frozen=True):
    """`sentence` is shown for a value that is not the default; `{}` is the value, `{server}` the server's name. Not for
    one that is `stronger`: it allows no more than the default."""

    sentence: str
    stronger: tuple[Any, ...] = ()


class Harmless(msgspec.Struct, frozen=True):
    """Not shown, and why."""

    why: str


class Told(msgspec.Struct, frozen=True):
    """`toolgate trust` shows it in a sentence of its own, together with others."""


Trust: TypeAlias = Allows | Harmless | Told

TOLD = Told()
MEMORY = Harmless("how much is kept, and for how long: clients that are let in use more or less memory")
PACE = Harmless("how fast it works")
LOOKS = Harmless("how tools are shown; other fields say which may be used")
WRITTEN = Harmless("how, and how much of it, what toolgate does is written to its log")
LESS = Harmless("it allows no more than the default")
MADE = Harmless("set by toolgate, and in no file")
REFUSED = Harmless("refused in a file that was found")
TOLD_BY_ENDPOINT = Harmless("what is sent where `telemetry.endpoint` says")
LABEL = Harmless("a name for what is shown")
SPOKEN_TO = Harmless("how the gateway communicates with it")


def said(struct: type[msgspec.Struct]) -> Iterator[tuple[str, Trust | None]]:
    """(field, what is said of it) of a struct, in the order of its fields."""
    hints = get_type_hints(struct, include_extras=True)
    for field in struct.__struct_fields__:
        found = (each for each in getattr(hints[field], "__metadata__", ()) if isinstance(each, Trust))
        yield field, next(found, None)


def widenings(value: msgspec.Struct, usual: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """(sentence, value) of all that a struct, and the structs in it, allow and `usual` does not."""
    for field, trust in said(type(value)):
        held, default = getattr(value, field), getattr(usual, field)
        if isinstance(trust, Allows) and held != default and held not in trust.stronger:
            yield trust.sentence, held
        elif trust is None and isinstance(held, msgspec.Struct):
            yield from widenings(held, default)
