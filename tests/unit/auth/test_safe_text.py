"""What strangers wrote is shown exactly, and cannot pass for what stands around it."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.auth import safe_text
from toolgate.auth.safe_text import Ambiguous, Number
from toolgate.core.spelling import INVISIBLE

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(tree: Any) -> Any:
    return safe_text.read(json.dumps(tree).encode())


@given(st.text())
def test_a_quoted_text_is_that_text_in_json(text: str) -> None:
    assert json.loads(safe_text.quoted(text)) == text
    assert json.loads(safe_text.named(text)) == text and safe_text.named(text).isascii()


@given(TREES)
def test_what_is_shown_of_json_is_that_json(tree: Any) -> None:
    shown = read(tree)
    assert json.loads(safe_text.written(shown)) == tree
    lines = list(safe_text.laid_out(shown))
    assert json.loads("\n".join(lines).translate({0x2068: None, 0x2069: None})) == tree
    assert not any("\n" in line for line in lines)


@given(TREES, TREES)
def test_equal_trees_and_no_others_have_the_same_canonical_bytes(one: Any, other: Any) -> None:
    is_same = safe_text.written(read(one)) == safe_text.written(read(other))
    assert (safe_text.canonical(read(one)) == safe_text.canonical(read(other))) == is_same
    assert safe_text.canonical(read([1])) != safe_text.canonical(read([[0, "1"]])) != safe_text.canonical(read(["1"]))


@given(TREES.map(lambda tree: {"a": tree}))
def test_what_is_too_long_before_anything_is_written_out_is_so_afterwards(tree: Any) -> None:
    lines = "\n".join(safe_text.laid_out(read(tree), "    "))
    assert not safe_text.is_longer(read(tree), len(lines))


@given(st.text())
def test_nothing_that_is_not_seen_or_turns_the_order_is_shown_as_it_is(text: str) -> None:
    shown = safe_text.plain(text)
    assert not any(unicodedata.category(each)[0] == "C" or each in "\u2028\u2029\xa0\u200b\u202e" for each in shown)
    assert not set(shown) & set('"`*[]<>~|&$')
    assert "  " not in shown and shown == shown.strip(" ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, file_name.txt (1)", "plain words, file_name.txt (1)"),
        ("Grüße, 世界, привет", "Grüße, 世界, привет"),
        ("two\nlines\tand\r", r"two\nlines\tand\r"),
        ("a\\n", r"a\u005cn"),
        ('a", "b": "c', r"a\u0022, \u0022b\u0022: \u0022c"),
        ("a”", r"a\u201d"),
        (
            "**now** `x` <b> [l](u) ~~s~~ a|b &amp; $x$ _e_ a_b",
            r"\u002a\u002anow\u002a\u002a \u0060x\u0060 \u003cb\u003e \u005bl\u005d(u) \u007e\u007es\u007e\u007e "
            r"a\u007cb \u0026amp; \u0024x\u0024 \u005fe\u005f a_b",
        ),
        ("left\u202etfel", r"left\u202etfel"),
        ("no\u200bthing \ufeff \u2060 \u00ad", r"no\u200bthing \ufeff \u2060 \u00ad"),
        ("\U000e0041\U0001d159\u3164\u2800\ufe0f", r"\udb40\udc41\ud834\udd59\u3164\u2800\ufe0f"),
        ("\x1b[2J\x07\x9b", r"\u001b\u005b2J\u0007\u009b"),
        ("a  b ", r"a \u0020b\u0020"),
        ("o\u0301\u0301\u0301\u0301", "o\u0301\u0301\\u0301\\u0301"),
        ("\u0301o", r"\u0301o"),
        ("nbsp\u00a0 \u2028", r"nbsp\u00a0 \u2028"),
        ("_init_", r"\u005finit\u005f"),
    ],
)
def test_what_looks_like_what_it_is_not_is_shown_by_its_number(text: str, shown: str) -> None:
    assert safe_text.plain(text) == shown


def test_a_letter_of_another_alphabet_cannot_stand_in_a_name() -> None:
    assert safe_text.named("d\u0435lete_file") == r'"d\u0435lete_file"'


def test_what_is_read_from_right_to_left_stays_where_it_stands() -> None:
    (_, line, _) = safe_text.laid_out(read({"אב": "גד"}))
    assert line == '  \u2068"אב"\u2069: \u2068"גד"\u2069'


@pytest.mark.parametrize(
    "text",
    [
        b'{"path":"/safe","path":"/etc"}',
        b'{"a":{"x":1,"\\u0078":2}}',
        b"{",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":"\xff"}',
        b"\xff\xfe{\x00}\x00",
        *(b"[" * depth + b"]" * depth for depth in (safe_text.DEEPEST + 1, 900, 100_000)),
    ],
)
def test_what_readers_understand_in_several_ways_is_not_shown(text: bytes) -> None:
    with pytest.raises(Ambiguous):
        safe_text.read(text)


def test_a_number_is_shown_as_it_is_spelled() -> None:
    for spelled in (
        "1",
        "1.0",
        "1e400",
        "-0",
        "123456789012345678901234567890",
        "0.1000000000000000055511151231257827",
    ):
        assert safe_text.written(safe_text.read(f"[{spelled}]")) == f"[{spelled}]"
    assert safe_text.read("1") == Number("1") != safe_text.read('"1"')


# What the patterns say, once more, in a step for each character.

ODD = [
    *("ab1_ -=", "_ ", " a", "a\u0300\u0301\u0488\u093f\U000e0100\u00e9", "a\u202e\u200b\u200d\ufe0f\u2068\u061c"),
    *("a\U0001f469\u200d\U0001f3fd\u2764\ufe0f\U0001d159", "\u6f22\u4e00\U00020000\U0002a6df", "a\ud800\udfff\udc00"),
    *("a\u05d0\u05f4\u0661 ", "a\n\r\t\x00\x85\u2028\u00a0", 'a"\\`*[]<>~|&$^', "\u2167\u00b2\u0663\u096b\u0301a"),
    *("\u201c\u02ba\u02ee\u115f\u3164\u3000\U000f0000\U0010ffff\u0378a", "".join(map(chr, range(0x250)))),
]
ODD_TEXTS = st.lists(st.one_of(st.sampled_from(ODD).flatmap(st.sampled_from), st.characters()), max_size=12).map(
    "".join
)


def is_mark(each: str) -> bool:
    return unicodedata.category(each)[0] == "M"


def is_harmless(each: str) -> bool:
    if INVISIBLE.match(each) or each in '"\\`*[]<>~|&$^\ufffc\U0001d159':
        return False
    if each in "\u201c\u201d\u201e\u201f\u2033\u2036\u02ba\u02dd\u02ee\u275d\u275e\u301d\u301e\u301f\uff02\u05f4\u3003":
        return False
    return each == " " or unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me")


def stands_well(text: str, place: int) -> bool:
    each, before, after = text[place], text[max(0, place - 1) : place], text[place + 1 : place + 2]
    if each == " ":
        return before not in ("", " ") and after != ""
    if each == "_":
        return all(side.isalnum() or side == "_" for side in (before, after))
    is_first = before.isalpha()
    is_second = place > 1 and is_mark(before) and text[place - 2].isalpha()
    return not is_mark(each) or is_first or is_second


def slowly(text: str, is_allowed: Callable[[str], bool] = lambda _: True) -> str:
    def shown(place: int, each: str) -> str:
        if is_allowed(each) and is_harmless(each) and stands_well(text, place):
            return each
        code = each.encode("utf-16-be", "surrogatepass").hex()
        escaped = "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(each, escaped)

    return "".join(shown(*each) for each in enumerate(text))


@given(ODD_TEXTS)
def test_odd_characters_are_shown_as_one_by_one(text: str) -> None:
    assert safe_text.plain(text) == slowly(text)
    assert safe_text.named(text) == f'"{slowly(text, str.isascii)}"'
    turns = any(unicodedata.bidirectional(each) in ("R", "AL", "AN") for each in slowly(text))
    assert safe_text.kept_apart(text) == (f'\u2068"{slowly(text)}"\u2069' if turns else f'"{slowly(text)}"')
    assert safe_text.is_visible(text) == any(
        not each.isspace() and not INVISIBLE.match(each) and each not in "\ufffc\U0001d159" for each in text
    )


@pytest.mark.parametrize("pattern", ["a{}b", "a\u0301{}\u0301b", "1{}_"])
def test_each_character_of_unicode_is_shown_as_by_itself(pattern: str) -> None:
    planes = (*range(0x3400), *range(0xA000, 0xAC10), *range(0xD790, 0x20010), *range(0xE0000, 0xE0200), 0x10FFFF)
    text = "".join(pattern.format(chr(code)) for code in planes)
    assert safe_text.plain(text) == slowly(text)
    turning = [chr(code) for code in planes if unicodedata.bidirectional(chr(code)) in ("R", "AL", "AN")]
    assert all(safe_text.kept_apart(each)[0] == "\u2068" for each in turning if is_harmless(each) and not is_mark(each))


def test_no_mark_at_the_beginning_belongs_to_the_quote_before_it() -> None:
    assert safe_text.quoted("\u0301abc") == r'"\u0301abc"'


@pytest.mark.parametrize("first", ["", "a"])
@pytest.mark.parametrize("name", ["letters", "marks", "private", "lone", "symbols", "quotes"])
def test_texts_of_65_000_odd_characters_are_written_in_a_few_steps(name: str, first: str) -> None:
    blocks = {
        "letters": range(0x4E00, 0x9FFF),
        "marks": range(0x300, 0x370),
        "private": range(0xF0000, 0xFFFF0),
        "lone": range(0xD800, 0xDC00),
        "symbols": range(0x1D000, 0x1D800),
        "quotes": range(0x22, 0x23),
    }
    chosen = random.Random(1).choices(blocks[name], k=65_000)
    text = "".join(first + chr(code) for code in chosen)
    safe_text.laid_out(["\u05d0"])  # so that the patterns are there
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        safe_text.written({"x": text})
        safe_text.laid_out({"x": text})
    finally:
        sys.setprofile(None)
    assert steps < 200
