"""What strangers wrote, as a person is shown it who decides by it: exact, and unable to pass for what stands around it.

The rules this file keeps: a shown text is one line, and the same in plain view, in a terminal and as Markdown; what
cannot be seen, what turns the order of reading and what looks like a closing quote is shown as `\\uXXXX`, as JSON has
it, so that what is shown of JSON is that JSON. JSON that readers understand in more than one way is not shown at all.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.core.spelling import INVISIBLE

Tree: TypeAlias = Any  # None, a flag, a text, a `Number`, a list of trees, a dict of them


class Number(msgspec.Struct, frozen=True):
    """A number as it was spelled: readers differ in what they make of a long one."""

    text: str


class Ambiguous(ValueError):
    """This is no JSON, or it means one thing to one reader and another to the next. `str()` says why."""


def read(text: bytes | str) -> Tree:
    """Raises `Ambiguous`."""
    try:
        written = bytes(text).decode() if not isinstance(text, str) else text
        tree = json.loads(
            written, object_pairs_hook=_object, parse_int=Number, parse_float=Number, parse_constant=_no_number
        )
    except Ambiguous:
        raise
    except UnicodeDecodeError:
        raise Ambiguous("it is not UTF-8") from None
    except RecursionError:
        raise Ambiguous(_TOO_DEEP) from None
    except ValueError as error:
        raise Ambiguous(f"it is not valid JSON ({error})") from None
    _check_depth(tree, DEEPEST)
    return tree


DEEPEST = 64  # levels


def _check_depth(tree: Tree, left: int) -> None:
    if not isinstance(tree, dict | list):
        return
    if not left:
        raise Ambiguous(_TOO_DEEP)
    for each in cast("dict[str, Tree]", tree).values() if isinstance(tree, dict) else cast("list[Tree]", tree):
        if isinstance(each, dict | list):
            _check_depth(each, left - 1)


_TOO_DEEP = "it is nested too deeply"


def _object(pairs: list[tuple[str, Tree]]) -> dict[str, Tree]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Ambiguous("an object has a duplicate member")
    return found


def _no_number(text: str) -> None:
    raise Ambiguous(f"{text} is not a number")


def canonical(tree: Tree) -> bytes:
    """Equal trees make equal bytes, and others make others. In C: nothing in them is looked at for who reads it."""
    return _plainly(tree, ensure_ascii=True).encode()


def is_longer(tree: Tree, most: int) -> bool:
    """Whether it is laid out in more characters than that, even if none of them had to be written out."""
    return len(_plainly(tree, ensure_ascii=False)) > most


def _plainly(tree: Tree, ensure_ascii: bool) -> str:
    return json.dumps(
        tree,
        sort_keys=True,
        ensure_ascii=ensure_ascii,
        separators=(",", ":"),
        check_circular=False,
        default=_spelled,
    )


def _spelled(number: Number) -> list[Any]:
    """No tree has such a 0 in it: its numbers are all `Number`."""
    return [0, number.text]


def written(tree: Tree) -> str:
    """The tree in one line of JSON, as a person may be shown it. Equal trees make equal lines."""
    return "".join(_compact(tree))


def _compact(tree: Tree) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from _joined("{}", ", ", (_member(each) for each in _members(tree)))
    elif isinstance(tree, list):
        yield from _joined("[]", ", ", (_compact(each) for each in cast("list[Tree]", tree)))
    else:
        yield _scalar(tree, quoted)


def _member(member: tuple[str, Tree]) -> Iterator[str]:
    yield f"{quoted(member[0])}: "
    yield from _compact(member[1])


def _joined(ends: str, between: str, parts: Iterable[Iterator[str]]) -> Iterator[str]:
    yield ends[0]
    for number, part in enumerate(parts):
        yield between if number else ""
        yield from part
    yield ends[1]


def _members(tree: Tree) -> list[tuple[str, Tree]]:
    return sorted(cast("dict[str, Tree]", tree).items())


def laid_out(tree: Tree, indent: str = "") -> Iterator[str]:
    """The tree as lines, each value on one of its own. What is read from right to left is kept to its place."""
    yield from _laid_out(tree, indent, "", "")


def _laid_out(tree: Tree, indent: str, head: str, tail: str) -> Iterator[str]:
    ends, parts = _parts(tree)
    if not parts:
        yield f"{indent}{head}{ends or _scalar(tree, kept_apart)}{tail}"
        return
    yield f"{indent}{head}{ends[0]}"
    for number, (name, part) in enumerate(parts, 1):
        yield from _laid_out(part, indent + "  ", name, "," if number < len(parts) else "")
    yield f"{indent}{ends[1]}{tail}"


def _parts(tree: Tree) -> tuple[str, list[tuple[str, Tree]]]:
    if isinstance(tree, dict):
        return "{}", [(f"{kept_apart(name)}: ", each) for name, each in _members(tree)]
    return ("[]", [("", each) for each in cast("list[Tree]", tree)]) if isinstance(tree, list) else ("", [])


def _scalar(tree: Tree, quote: Callable[[str], str]) -> str:
    if isinstance(tree, Number):
        return tree.text
    return quote(tree) if isinstance(tree, str) else json.dumps(tree)


# Texts.

_ISOLATED, _TO_HERE = "\u2068", "\u2069"  # Unicode's own: what stands between is put in order by itself
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))


def quoted(text: str) -> str:
    """A text in quotes that it cannot leave."""
    return f'"{plain(text)}"'


def named(text: str) -> str:
    """The same for a name: in it no letter looks like another."""
    return f'"{plain(text, str.isascii)}"'


def cited(text: str) -> str:
    """A text of many lines beside those of others: each begins with a mark, and no other line does. As Markdown it is a
    quotation, which it cannot leave either; on a terminal, it moves no cursor."""
    return "\n".join(f"> {_steady(line)}" if line else ">" for line in text.splitlines())


def in_one_line(text: str) -> str:
    """A short text beside those of others, which no reader takes for more than one line."""
    return _steady(" ".join(text.splitlines()))


def visible(text: str) -> str:
    """A short text that is sent back as it is, so that who chooses it sees all of it in one line: breaks of lines are
    written out, and it stands in quotes if nothing of it could be seen."""
    return _steady(text) if is_visible(text) else quoted(text)


def is_visible(text: str) -> bool:
    return any(not each.isspace() and not _is_invisible(each) for each in text)


def _is_invisible(each: str) -> bool:
    return each in _INVISIBLE_TOO or bool(INVISIBLE.match(each))


def _steady(line: str) -> str:
    """Without what moves a cursor, turns the order of reading or hides a part; all else stays as it is."""
    return _UNSTEADY.sub(lambda found: _escaped(found[0]), line)


# Of what cannot be seen, what joins letters (U+200C, U+200D) is needed to write some languages, and one that chooses
# how the character before it looks (U+FE00 to U+FE0F) stands in emoji.
_UNSTEADY = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb\ud800-\udfff]|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
    f"|(?![\u200c\u200d\ufe00-\ufe0f]){INVISIBLE.pattern}"
)


def kept_apart(text: str) -> str:
    """The same for a line that other texts share: what is read from right to left does not reach beyond its quotes."""
    shown = plain(text)
    if shown.isascii() or not any(unicodedata.bidirectional(each) in _RIGHT_TO_LEFT for each in shown):
        return f'"{shown}"'
    return f'{_ISOLATED}"{shown}"{_TO_HERE}'


def plain(text: str, is_allowed: Callable[[str], bool] = lambda _each: True) -> str:
    """A text of strangers without the quotes."""

    def shown(found: re.Match[str]) -> str:
        each, place = found[0], found.start()
        is_shown = is_allowed(each) and _is_harmless(each) and _stands_well(text, place, each)
        return each if is_shown else _escaped(each)

    return _SUSPICIOUS.sub(shown, text)


# All that means something somewhere, or may: see `_stands_well` for spaces and underscores.
_SUSPICIOUS = re.compile(
    r"[^A-Za-z0-9.,;:!?@#%(){}/'+=_ -]|(?<![^ ]) | (?![^ ])|(?<![A-Za-z0-9_])_|_(?![A-Za-z0-9_])", re.ASCII
)
MOST_MARKS = 2  # on one letter


def _stands_well(text: str, place: int, each: str) -> bool:
    """What means something in some places only: a second space, and one at an end, are not seen; an underscore
    emphasizes, but not inside a word; and a mark belongs to a letter."""
    before, after = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    if each == " ":
        return before not in ("", " ") and after != ""
    if each == "_":
        return all(side.isalnum() or side == "_" for side in (before, after))
    return not _is_mark(each) or any(
        letter.isalpha() and all(map(_is_mark, text[place - marks : place]))
        for marks in range(MOST_MARKS)
        for letter in text[max(0, place - marks - 1) : place - marks]
    )


@functools.lru_cache(4096)
def _is_mark(each: str) -> bool:
    return unicodedata.category(each)[0] == "M"


_ACTIVE = frozenset('"\\`*[]<>~|&$^')  # of JSON, HTML, or one of the kinds of Markdown
_LIKE_QUOTES = frozenset(
    "\u201c\u201d\u201e\u201f\u2033\u2036\u02ba\u02dd\u02ee\u275d\u275e\u301d\u301e\u301f\uff02\u05f4\u3003"
)
_INVISIBLE_TOO = "\ufffc\U0001d159"  # in many fonts
_NOT_SHOWN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"))
_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@functools.lru_cache(4096)
def _is_harmless(each: str) -> bool:
    if each in _ACTIVE or each in _LIKE_QUOTES or _is_invisible(each):
        return False
    return each == " " or unicodedata.category(each) not in _NOT_SHOWN


@functools.lru_cache(4096)
def _escaped(each: str) -> str:
    if each in _ESCAPED:
        return _ESCAPED[each]
    code = ord(each)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
