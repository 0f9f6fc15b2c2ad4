"""Templates of resource URIs (RFC 6570), and what the arguments of a completion make of one.

The rule this file keeps: servers match and expand templates more or less strictly. What is made here is for decisions:
where readers differ, each of their readings is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.spelling import normalized

EXPRESSION = re.compile(r"\{[^{}]*\}")
MOST_EXPRESSIONS = 32  # of a template that is listed; those of real ones have five
_OPERATORS = {  # what an expression begins with, stands between its variables, and whether it names them
    "+": ("", ",", False),
    "#": ("#", ",", False),
    ".": (".", ".", False),
    "/": ("/", "/", False),
    ";": (";", ";", True),
    "?": ("?", "&", True),
    "&": ("&", "&", True),
}
_PLAIN = ("", ",", False)
LONGEST = 16 * 1024  # characters of what is made, beyond which nobody looks at it
_variable = re.compile(r"([^:*]*)(?::([0-9]{1,4}))?\*?")


class Completing(msgspec.Struct, frozen=True):
    """The arguments of a completion: the one that is being completed, and those that were chosen before."""

    name: str
    value: str
    given: Mapping[str, str]

    def made(self, template: str) -> tuple[str, ...]:
        """What the template is with what was chosen before, alone and with what is being completed; four URIs at
        most."""
        others = {name: value for name, value in self.given.items() if same(name) != same(self.name)}
        before = [filled(template, each) for each in (others, self.given)]
        return tuple(dict.fromkeys((*before, *self.completed(template, self.value))))

    def completed(self, template: str, value: str) -> tuple[str, ...]:
        """The template with a value of the argument that is being completed, whole and as the template cuts it. Where
        the template has no such variable, a server may mean any that is left."""
        values = {**self.given, self.name: value}
        if same(self.name) not in map(same, variables(template)):
            values = {**dict.fromkeys(variables(template), value), **self.given}
        return tuple({filled(template, values): None, filled(template, values, is_cut=True): None})


class _Argument(msgspec.Struct):
    name: str
    value: str


class _Context(msgspec.Struct):
    arguments: dict[str, str] = {}


_argument, _context = jsonrpc.Decoder(_Argument), jsonrpc.Decoder(_Context)


def completing(argument: Raw, context: Raw) -> Completing:
    """By the parameters of a completion of these names. Raises `jsonrpc.UNREADABLE` where they are out of shape."""
    found = _argument.decode(argument)
    return Completing(found.name, found.value, _context.decode(context or jsonrpc.EMPTY_OBJECT).arguments)


def variables(template: str) -> tuple[str, ...]:
    return tuple(name for each in EXPRESSION.findall(template) for name, _ in _variables(each[1:-1])[1])


def filled(template: str, values: Mapping[str, str], is_cut: bool = False) -> str:
    """The template with these values as they are written, not encoded. Variables without one stay. `is_cut`: to as many
    characters as the template says. What is longer than `LONGEST` ends somewhere behind that."""
    known = {same(name): value for name, value in values.items()}
    parts: list[str] = []
    size = end = 0
    for found in EXPRESSION.finditer(template):
        made = _expanded(found[0], known, is_cut)
        parts += (template[end : found.start()], made)
        size, end = size + len(made), found.end()
        if size > LONGEST:
            return "".join(parts)
    return "".join((*parts, template[end:]))


def _expanded(expression: str, known: Mapping[str, str], is_cut: bool) -> str:
    (first, between, is_named), names = _variables(expression[1:-1])
    if not any(same(name) in known for name, _ in names):
        return expression
    parts: list[str] = []
    for name, most in names:
        value = known.get(same(name), "{" + name + "}")[: LONGEST + 1]
        shown = value[:most] if is_cut and most else value
        parts.append(f"{name}={shown}" if is_named else shown)
    return first + between.join(parts)


def _variables(expression: str) -> tuple[tuple[str, str, bool], list[tuple[str, int]]]:
    """How an expression is expanded, and its variables with the length that they are cut to (0: none)."""
    operator = _OPERATORS.get(expression[:1])
    listed = (expression[1:] if operator else expression).split(",")
    found = [match for each in listed if (match := _variable.fullmatch(each))]
    return operator or _PLAIN, [(match[1], int(match[2] or 0)) for match in found]


def same(name: str) -> str:
    """A name as readers take it that mind neither case nor signs."""
    return normalized(name).casefold().replace("_", "").replace("-", "").replace(" ", "")
