"""What strangers wrote, as a person is shown it who decides by it: exact, and unable to pass for what stands around it.

The rules this file keeps: a shown text is one line, and the same in plain view, in a terminal and as Markdown; what
cannot be seen, what turns the order of reading and what looks like a closing quote is shown as `\\uXXXX`, as JSON has
it, so that what is shown of JSON is that JSON. JSON that readers understand in more than one way is not shown at all.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, groupby
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
    if isinstance(tree, dict):
        return "{" + ", ".join([f"{quoted(name)}: {written(each)}" for name, each in _members(tree)]) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join([written(each) for each in cast("list[Tree]", tree)]) + "]"
    return _scalar(tree, quoted)


def _members(tree: Tree) -> list[tuple[str, Tree]]:
    return sorted(cast("dict[str, Tree]", tree).items())


def laid_out(tree: Tree, indent: str = "") -> list[str]:
    """The tree as lines, each value on one of its own. What is read from right to left is kept to its place."""
    lines: list[str] = []
    _lay_out(tree, indent, "", "", lines)
    return lines


def _lay_out(tree: Tree, indent: str, head: str, tail: str, lines: list[str]) -> None:
    ends, parts = _parts(tree)
    if not parts:
        lines.append(f"{indent}{head}{ends or _scalar(tree, kept_apart)}{tail}")
        return
    lines.append(f"{indent}{head}{ends[0]}")
    for number, (name, part) in enumerate(parts, 1):
        _lay_out(part, indent + "  ", name, "," if number < len(parts) else "", lines)
    lines.append(f"{indent}{ends[1]}{tail}")


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


def quoted(text: str) -> str:
    """A text in quotes that it cannot leave."""
    return f'"{plain(text)}"'


def named(text: str) -> str:
    """The same for a name: in it no letter looks like another."""
    return f'"{_with_escapes(text, _IN_ASCII)}"'


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
    return bool(_VISIBLE.search(text))


def _steady(line: str) -> str:
    """Without what moves a cursor, turns the order of reading or hides a part; all else stays as it is."""
    return _with_escapes(line, _UNSTEADY)


# Of what cannot be seen, what joins letters (U+200C, U+200D) is needed to write some languages, and one that chooses
# how the character before it looks (U+FE00 to U+FE0F) stands in emoji.
_UNSTEADY = re.compile(
    "([\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb\ud800-\udfff]|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
    f"|(?![\u200c\u200d\ufe00-\ufe0f]){INVISIBLE.pattern})"
)


def kept_apart(text: str) -> str:
    """The same for a line that other texts share: what is read from right to left does not reach beyond its quotes."""
    shown = plain(text)
    if shown.isascii() or not _right_to_left().search(shown):
        return f'"{shown}"'
    return f'{_ISOLATED}"{shown}"{_TO_HERE}'


def plain(text: str) -> str:
    """A text of strangers without the quotes."""
    return _with_escapes(text, _IN_ASCII if text.isascii() else _suspicious())


def _with_escapes(text: str, suspicious: re.Pattern[str]) -> str:
    """With what the pattern finds, as its one group, written out. All of it at once: a step of Python for each of
    65,000 characters would take a tenth of a second."""
    parts = suspicious.split(text)
    if len(parts) > 1:
        parts[1::2] = _escaped(_SEPARATOR.join(parts[1::2])).split(_escaped(_SEPARATOR))
    return "".join(parts)


_SEPARATOR = "-"  # which no pattern finds


def _escaped(text: str) -> str:
    """Each character as `\\uXXXX`, the large ones as two of these, as JSON has it."""
    found = "\\u" + text.encode("utf-16-be", "surrogatepass").hex(" ", 2).replace(" ", "\\u")
    return found.replace(r"\u000a", r"\n").replace(r"\u000d", r"\r").replace(r"\u0009", r"\t")


_ACTIVE = '"\\`*[]<>~|&$^'  # of JSON, HTML, or one of the kinds of Markdown
_LIKE_QUOTES = "\u201c\u201d\u201e\u201f\u2033\u2036\u02ba\u02dd\u02ee\u275d\u275e\u301d\u301e\u301f\uff02\u05f4\u3003"
_INVISIBLE_TOO = "\ufffc\U0001d159"  # in many fonts
_UNSEEN = INVISIBLE.pattern[1:-1] + _INVISIBLE_TOO  # of a class of characters
_HIDDEN = f"{re.escape(_ACTIVE)}{_LIKE_QUOTES}{_UNSEEN}"
_VISIBLE = re.compile(rf"[^\s{_UNSEEN}]")

MOST_MARKS = 2  # on one letter

# A second space, and one at an end, are not seen; an underscore emphasizes, but not inside a word.
_OUT_OF_PLACE = r" (?:\Z|(?<![^ ] ))|_(?:(?!\w)|(?<!\w_))"

_IN_ASCII = re.compile(rf"([^\x20-\x7e]|[{re.escape(_ACTIVE)}]|{_OUT_OF_PLACE})")


@cache
def _suspicious() -> re.Pattern[str]:
    """What is no letter or number is not shown but where Unicode, in this Python's version, says what it is; and a mark
    belongs to a letter, with `MOST_MARKS` at most on one. It takes some hundredths of a second to make."""
    hidden = re.compile(f"[{_HIDDEN}]")
    numbers, marks, shown = list[str](), list[str](), list[str]()
    for each in filter(str.isprintable, _characters(_NOT_ONLY_LETTERS)):
        if each.isalnum():
            if not each.isalpha():
                numbers.append(each)
            continue
        category = unicodedata.category(each)
        if category != "Me" and not hidden.match(each):
            shown.append(each)
        if category[0] == "M":
            marks.append(each)
    letter, mark = rf"(?!{_one_of(numbers)})[^\W_]", _one_of(marks)
    lonely = rf"(?!\w){mark}" + "".join(f"(?<!{letter}{mark * count})" for count in range(1, MOST_MARKS + 1))
    return re.compile(rf"((?!{_one_of(shown)})\W|[{_HIDDEN}]|{lonely}|{_OUT_OF_PLACE})")


def prepare() -> None:
    """Make the patterns, which takes a tenth of a second: the first text that needs them would have others wait."""
    _suspicious()
    _right_to_left()


@cache
def _right_to_left() -> re.Pattern[str]:
    turning = [each for each in _characters(_TURNING) if unicodedata.bidirectional(each) in ("R", "AL", "AN")]
    return re.compile(_one_of(turning))


# Where Unicode has what is no letter, and what is read from right to left.
_NOT_ONLY_LETTERS = ((0, 0x20000), (0xE0100, 0xE01F0))
_TURNING = ((0x590, 0x900), (0xFB1D, 0xFF00), (0x10800, 0x11000), (0x1E800, 0x1F000))


def _characters(blocks: Iterable[tuple[int, int]]) -> Iterator[str]:
    return chain.from_iterable(map(chr, range(*block)) for block in blocks)


def _one_of(characters: Iterable[str]) -> str:
    """A pattern for one of these, which come in their order, some up to U+FFFF and some beyond. The latter are looked
    for range by range, so they are in blocks."""
    blocks = {where: _ranges(each) for where, each in groupby(characters, lambda each: max(0xF, ord(each) >> 12))}
    basic = blocks.pop(0xF)
    beyond = "|".join(
        f"(?=[{chr(where << 12)}-{chr((where << 12) + 0xFFF)}])[{ranges}]" for where, ranges in blocks.items()
    )
    return rf"(?:[{basic}]|(?![\0-\uffff])(?:{beyond}))"


def _ranges(characters: Iterable[str]) -> str:
    found: list[tuple[int, int]] = []
    for code in map(ord, characters):
        first = found.pop()[0] if found and found[-1][1] == code - 1 else code
        found.append((first, code))
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in found)
