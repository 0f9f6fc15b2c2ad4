"""Which patterns JavaScript takes in its mode `u`: recorded from Node 20, by which 100,000 patterns were tried."""

from __future__ import annotations

import pytest

from toolgate.eras import js_patterns

TAKEN = [
    *(
        "",
        "a|",
        "|",
        "()",
        "(?:a)*",
        "(?=a)b",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)",
        "a{2}",
        "a{2,}?",
        "a{1,5}b??",
        "^$",
        r"\b\B",
    ),
    *(
        r"(?<a>x)\k<a>",
        r"\k<a>(?<a>x)",
        r"(a)\1",
        r"\1(a)",
        r"\d\D\w\W\s\S",
        r"\p{L}\P{Lu}",
        r"\p{Script=Greek}",
        r"\0",
    ),
    *(
        r"\x41\u0041\u{1F600}\cA",
        r"\/\.\*\(\)\[\]\{\}\|\^\$\\",
        "[]",
        "[^]",
        "[a-z]",
        "[-a]",
        "[a-]",
        "[--a]",
        "[a-b-c]",
    ),
    *(
        r"[\w-]",
        r"[\b]",
        r"[\-]",
        r"[\]]",
        "[[]",
        r"[\u0041-\u{5A}]",
        "é😀",
        "[é-😀]",
        "&&",
        "a\nb",
        "x-y",
        "<>:=!,;%@#~`'\"",
    ),
]
REFUSED = [
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "*",
        "a**",
        "a{2,1}",
        "a{,5}",
        "^*",
        r"\b+",
        "(?=a)*",
        "(?<=a)+",
        "a{2}{3}",
        "(?i)x",
    ),
    *("(?P<a>x)", "(?>a)", "(?<a>x)(?<a>y)", "(?<1>x)", "(?<a", r"\k<a>", r"\k", r"\1", r"(a)\2", r"\01", r"\a", r"\-"),
    *(
        r"\A",
        r"\Z",
        r"\h",
        r"\_",
        r"\x4",
        r"\u12",
        r"\u{110000}",
        r"\c",
        r"\c1",
        r"\p{Foo}",
        r"\pL",
        r"\p",
        "\\",
        "[z-a]",
    ),
    *(r"[\w-a]", r"[a-\w]", r"[\A]", r"[\B]", "[a", r"[\uDBFF\uDFFF-\uE000]", "(" * 200 + ")" * 200, "a" * 20_000),
]


@pytest.mark.parametrize("pattern", TAKEN)
def test_what_javascript_takes_is_taken(pattern: str) -> None:
    assert js_patterns.is_taken(pattern)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_it_refuses_is_refused(pattern: str) -> None:
    assert not js_patterns.is_taken(pattern)
