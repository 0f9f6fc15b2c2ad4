"""What a description says in one short line.

The rule this file keeps: whatever a description is, each of its characters is looked at a few times at most.
"""

from __future__ import annotations

import re

_LONGEST = 100
_READ = 2_000  # characters of a description that are looked at
_LOOKED_THROUGH = 2 * _LONGEST  # characters in which its first sentence is looked for
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\n]*(?:\([^()\n]*\))?\)")
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s+|>\s+|[-*+]\s+|```\w*\s*$|<[^>\n]{1,40}>\s*$)|[*`]|\b__|__\b", re.MULTILINE)
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+#]|\d+[.)])\s)")
_END = re.compile(r"[.!?](?=[\s\"')\]]|$)|。")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|a\.k\.a|etc|vs|cf|incl|approx|resp|max|min|no|fig|dr|mr|mrs|ms|st|inc|ltd|u\.s|ca|al)|\b[a-z])\.$",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 8  # characters, with one before it


def brief(description: str) -> str:
    """The first sentence, at most 100 characters."""
    paragraphs = (_MARKUP.sub("", _LINK.sub(r"\1", each)) for each in _BREAK.split(description[:_READ].strip()))
    first = next((each for each in paragraphs if each.strip()), "")
    return _cut(_first_sentence(" ".join(first.split())[:_LOOKED_THROUGH]))


def _first_sentence(text: str) -> str:
    for end in _END.finditer(text):
        before = text[max(0, end.end() - _LONGEST_ABBREVIATION) : end.end()]
        if not _goes_on(before, text[end.end() :].lstrip(" \"')]")):
            return text[: end.end()]
    return text


def _goes_on(before: str, after: str) -> bool:
    """After an abbreviation a sentence goes on, save where a new one clearly begins after one that can end it."""
    if not after or not _ABBREVIATION.search(before):
        return False
    return not (before.lower().endswith("etc.") and after[0].isupper())


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    whole_words, _, _ = text[: _LONGEST - 1].rpartition(" ")
    return (whole_words or text[: _LONGEST - 1]).rstrip(" ,;:") + "…"
