"""Whether JavaScript takes a pattern, in the mode in which its readers of JSON Schema compile all patterns (`u`):
there, what means nothing is an error. ECMA-262, section "Patterns".

The rule this file keeps: it may refuse what an engine takes (other scripts, groups with one name in two alternatives,
flags inside a pattern), and never takes what an engine refuses.
"""

from __future__ import annotations

import re

LONGEST, DEEPEST = 10_000, 100  # characters, and groups in groups
_NAME = r"[A-Za-z_$][A-Za-z0-9_$]*"
_CATEGORIES = (
    "L LC Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co Cn "
    "Letter Lowercase_Letter Uppercase_Letter Mark Number Decimal_Number Punctuation Symbol Separator Other"
).replace(" ", "|")
_SCRIPTS = "Latin Greek Cyrillic Han Hiragana Katakana Hangul Arabic Hebrew Thai Devanagari Armenian Georgian".replace(
    " ", "|"
)
_OF_OTHER_KINDS = (
    "Any|ASCII|Alphabetic|Lowercase|Uppercase|White_Space|Emoji|Emoji_Presentation|Extended_Pictographic|ID_Start"
    "|ID_Continue"
)
_PROPERTY = (
    rf"[pP]\{{(?:(?:(?:General_Category|gc)=)?(?:{_CATEGORIES})|(?:Script|sc|scx)=(?:{_SCRIPTS})|{_OF_OTHER_KINDS})\}}"
)
_CHARACTER = (
    r"[fnrtv^$\\.*+?()\[\]{}|/]|c[A-Za-z]|0(?![0-9])|x[0-9A-Fa-f]{2}|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}"
    r"|u\{0{0,9}[0-9A-Fa-f]{1,5}\}"
)
_token = re.compile(
    rf"""(?P<class>\[\^?)
    | (?P<look>\(\?<?[=!])
    | (?P<open>\((?:\?:|\?<(?P<name>{_NAME})>|(?!\?)))
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<many>[*+?]\??|\{{(?P<least>[0-9]{{1,6}})(?:,(?P<most>[0-9]{{0,6}}))?\}}\??)
    | (?P<place>[\^$]|\\[bB])
    | (?P<back>\\(?:(?P<number>[1-9][0-9]{{0,3}})|k<(?P<known>{_NAME})>))
    | (?P<atom>[^\^$\\.*+?()\[\]{{}}|]|\.|\\(?:[dDsSwW]|{_PROPERTY}|{_CHARACTER}))
    """,
    re.VERBOSE | re.DOTALL,
)
_in_class = re.compile(
    rf"(?P<end>\])|(?P<set>\\(?:[dDsSwW]|{_PROPERTY}))|(?P<one>[^\\\]]|\\(?:[b-]|{_CHARACTER}))", re.DOTALL
)
_MEANING = {"b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "0": 0}


def is_taken(pattern: str) -> bool:
    """Each piece is looked at once."""
    if len(pattern) > LONGEST:
        return False
    place = count = 0
    open_groups: list[bool] = []  # whether each may be repeated: what looks ahead or back may not
    names: list[str] = []
    wanted_names: set[str] = set()
    most_wanted = 0
    may_repeat = False
    while place < len(pattern):
        found = _token.match(pattern, place)
        if not found:
            return False
        place = found.end()
        if found["class"]:
            end = _end_of_class(pattern, place)
            if end < 0:
                return False
            place, may_repeat = end, True
        elif found["open"] or found["look"]:
            open_groups.append(bool(found["open"]))
            count += found["open"] is not None and not found["open"].startswith("(?:")
            names += [found["name"]] if found["name"] else []
            may_repeat = False
            if len(open_groups) > DEEPEST:
                return False
        elif found["close"]:
            if not open_groups:
                return False
            may_repeat = open_groups.pop()
        elif found["many"]:
            if not may_repeat or (found["most"] and int(found["most"]) < int(found["least"])):
                return False
            may_repeat = False
        else:
            may_repeat = bool(found["atom"] or found["back"])
            most_wanted = max(most_wanted, int(found["number"] or 0))
            wanted_names |= {found["known"]} if found["known"] else set()
    is_known = wanted_names <= set(names) and most_wanted <= count
    return not open_groups and is_known and len(set(names)) == len(names)


def _end_of_class(pattern: str, place: int) -> int:
    """Where what follows a class begins; -1 where the class has none, or a range that is none."""
    before: int | None = None  # the character that a range may begin with
    begun: int | None = None  # that one has begun with
    is_set_before = is_range = False
    while found := _in_class.match(pattern, place):
        place = found.end()
        if found["end"]:
            return place
        code = None if found["set"] else _code(found["one"])
        if is_range:
            if code is None or begun is None or code < begun:
                return -1
            is_range, before, is_set_before = False, None, False
        elif found["one"] == "-" and (before is not None or is_set_before) and pattern[place : place + 1] != "]":
            is_range, begun = True, before
        else:
            before, is_set_before = code, code is None
    return -1


def _code(written: str) -> int:
    if not written.startswith("\\"):
        return ord(written)
    rest = written[1:]
    if rest[0] == "c":
        return ord(rest[1]) % 32
    if rest[0] in "xu" and len(rest) > 1:
        return int(rest[1:].strip("{}"), 16)
    return _MEANING.get(rest, ord(rest[0]))
