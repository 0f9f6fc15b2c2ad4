"""What a tool says of itself that is meant for the model rather than for its user: a table of patterns, and the look.

The rule this file keeps: it only reports. What is found is an occasion to look, not a proof; what is not found is none
either. Every pattern looks at a bounded stretch, since the texts are strangers'.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolgate.core.spelling import normalized

MOST_TEXT = 64 * 1024  # characters of one tool that are looked at: at worst 50 ms
LONGEST_SPELLED = MOST_TEXT + MOST_TEXT // 4  # in one kind of spelling, in which a character may become eighteen
MOST_ALIKE = 3  # that are named of one kind: what is harmless and stands there often hides nothing else
LONGEST_PLACE = 200  # characters that say where something stands
EXCERPT = 60  # characters
LONG = 200  # characters without a space: no word
UNSEEN = ("icons", "_meta")  # members of a tool that no model is shown


class PoisoningSign(msgspec.Struct, frozen=True, array_like=True):
    """`what` it is, where it stands (`description`, `inputSchema.properties.q`), and the words themselves."""

    what: str
    where: str
    words: str

    def __str__(self) -> str:
        return f"{self.what} in its {self.where}: {self.words}"


# In the text as it is: what people do not see and models read.
HIDDEN = {
    "hidden text in tag characters": r"[\U000E0000-\U000E007F]",
    "hidden text in variation selectors": r"[\U000E0100-\U000E01EF]|[\uFE00-\uFE0F]{2}",
    "characters that change the text direction": r"[\u202A-\u202E\u2066-\u2069]",
    "zero-width characters": r"[\u200B\u2060-\u2064\uFEFF\u180E]|(?<=[!-~])[\u200C\u200D](?=[!-~])",
    "characters that show nothing": (
        r"[\u034F\u115F\u1160\u17B4\u17B5\u2065\u2800\u3164\uFFA0\uFFF0-\uFFFB\U0001D159\U0001D173-\U0001D17A"
        r"\U000E0080-\U000E00FF\U000E01F0-\U000E0FFF]"
    ),
    "control characters": r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]",
}

_ALL = r"(?:all |any |the |your |my |of |these |those )*"
_TOOL = r"(?:tools?|functions?|servers?)\b"
_KEPT = r"(?:conversation|chat) (?:history|log|transcript)|(?:entire|whole|full) conversation|system prompt"
_SECRETS = r"api keys?|credentials?|passwords?|private keys?|ssh keys?|access tokens?|environment variables?|secrets?\b"

# In small letters, in one kind of spelling, with single spaces.
WORDS = {
    "an order to ignore other instructions": (
        rf"\b(?:ignore|disregard|forget|override|bypass) {_ALL}(?:previous|prior|above|earlier|preceding|other|"
        r"existing|original|system|safety) (?:\w+ )?"
        r"(?:instructions?|prompts?|rules?|guidelines?|messages?|directions?|context)"
        r"|\b(?:ignore|disregard|forget) (?:everything|all that|anything) (?:above|before|you)"
    ),
    "an order to hide something from the user": (
        r"\b(?:do not|don't|never|must not|should not|without) (?:ever )?(?:tell|mention|inform|show|reveal|notify|"
        r"alert|disclose|let|telling|mentioning|informing|showing|revealing|notifying|alerting|disclosing)\b"
        r"[^.]{0,40}\b(?:the )?(?:user|human|customer|operator)\b"
        r"|\b(?:secretly|covertly|surreptitiously)\b|\bhide (?:this|it|that) from\b"
    ),
    "text that imitates a system prompt": (
        r"<\s?/?\s?(?:important|system|secret|hidden|admin|instructions?|critical|sys)\s?>|<\|(?:im[_ ]start|system)"
        r"|\[/?inst\]|\b(?:new|updated|real|actual) (?:system )?(?:instructions?|prompt) ?:"
        r"|\byou are now (?:a|an|in|the)\b"
        r"|(?:^|\x1e) ?#{0,3} ?system ?(?:prompt|message|note)? ?:"
    ),
    "an order about other tools": (
        r"\b(?:before|after|instead of|when|whenever|prior to) (?:using|calling|invoking|running|use of|you \w+)"
        rf" (?:any|all|every|another|(?:the |any )?other)\b[^.]{{0,30}}{_TOOL}"
        r"|\b(?:always|must|first) (?:be )?(?:call|use|invoke|run)(?:ed|d)? (?:this|it)? ?(?:tool|function)? ?"
        r"(?:first|before (?:any|all|every|other|using|calling|anything))"
        rf"|\b(?:do not|don't|never) (?:use|call|invoke|trust) (?:any )?(?:of )?(?:the )?other {_TOOL}"
        rf"|\bother {_TOOL}[^.]{{0,40}}\b(?:are|is) (?:deprecated|broken|obsolete|unsafe|disabled)"
    ),
    "an order to send data out": (
        rf"\b(?:send|forward|post|upload|transmit|leak|exfiltrate|append|include|pass|attach|copy|provide)\b[^.]{{0,60}}"
        rf"\b(?:{_KEPT})"
        rf"|\b(?:send|forward|upload|transmit|leak|exfiltrate)\b[^.]{{0,40}}\b(?:{_SECRETS})[^.]{{0,40}}\b(?:to|at|via)\b"
        rf"|\b(?:read|open|cat|load|fetch|get) (?:the )?(?:contents? of )?[^.\n]{{0,30}}(?:{_KEPT})"
        r"|\bexfiltrat"
    ),
    "a path where secrets are stored": (
        r"\.ssh/|\bid[_ ](?:rsa|ed25519|ecdsa)\b|\.aws/credentials|/etc/(?:passwd|shadow)\b|\.cursor/mcp\.json"
        r"|claude[_ ]desktop[_ ]config|\.git-credentials|\.netrc\b|\.kube/config|\.gnupg/|169\.254\.169\.254"
    ),
    "a long encoded text": rf"[a-z0-9+/]{{{LONG}}}",
}

# Of each of these groups a text has one at least where the pattern is in it: these are found in a tenth of the time.
# What may stand anywhere has none.
NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "an order to ignore other instructions": (("ignore", "disregard", "forget", "override", "bypass"),),
    "an order to hide something from the user": (
        (" not", "don't", "never", "without", "secretly", "covertly", "surreptitiously", "hide "),
    ),
    "text that imitates a system prompt": (("<", "inst]", "instruction", "prompt", "you are now", "system"),),
    "an order about other tools": (
        ("tool", "function", "server", "call", "use", "invoke", "run"),
        (
            "before",
            "after",
            "instead of",
            "when",
            "prior to",
            "always",
            "must",
            "first",
            " not",
            "n't",
            "never",
            "other",
        ),
    ),
    "an order to send data out": (
        (
            *("conversation", "chat ", "system prompt", "exfiltrat", "api key", "credential", "password"),
            *("private key", "ssh key", "access token", "environment variable", "secret"),
        ),
    ),
    "a path where secrets are stored": (
        (
            *(".ssh/", "rsa", "ed25519", "ecdsa", ".aws/", "/etc/", ".cursor/", "claude", ".git-credentials"),
            *(".netrc", ".kube/", ".gnupg/", "169.254."),
        ),
    ),
    "a long encoded text": (),
}

# The same where words stand in any order: of several that belong together one.
_NEEDED_ALONE = {
    what: [[max(words.split(), key=len) for words in group] for group in groups] for what, groups in NEEDED.items()
}

_BETWEEN = "\x1e"  # texts, where all of a tool's are searched at once: most tools say nothing of this kind

_SPACES = str.maketrans("\t\r\n", "   ")

_SMALL = bytes.maketrans(b'\t\r\n_*`"' + string.ascii_uppercase.encode(), b" " * 7 + string.ascii_lowercase.encode())
"""ASCII as `_spelled` has it, but for spaces that follow each other."""

_hidden = {what: re.compile(pattern) for what, pattern in HIDDEN.items()}
_words = {what: re.compile(pattern) for what, pattern in WORDS.items()}
_words_anywhere = {what: re.compile(pattern.replace(r"(?:^|\x1e)", "")) for what, pattern in WORDS.items()}
_spaces = re.compile(r"[ \t\r\n_*`\"]+")
_invisible = re.compile("|".join(HIDDEN.values()) + "|\u00ad")
_sets = re.findall(r"(?<!=)\[([^]]+)\]", "".join(HIDDEN.values()))
_may_hide = re.compile(f"[{''.join(_sets)}\u00ad]")
"""Any character that these may find: one set is looked for in a fifth of the time."""
_blank = re.compile(HIDDEN["characters that show nothing"])  # some are letters, and printable to Python


class Pairs(list[tuple[str, Any]]):
    """The members of an object as they are written, those that stand there twice too: of two readers one may take the
    first, the other the last."""


def read(tool: Raw | bytes) -> Any:
    """Raises `ValueError` or `RecursionError`."""
    return _decoder.decode(bytes(tool).decode("utf-8", "surrogatepass"))


_decoder = json.JSONDecoder(object_pairs_hook=Pairs)


def of_each(tools: Iterable[tuple[Raw, bool]]) -> list[tuple[PoisoningSign, ...]]:
    """What of each of some listed tools is suspicious, and whether it is known that `read` would read it. What words
    they have together is looked at first: most patterns need some that none of them has."""
    split = [(tool, _words_of(bytes(tool)) if is_read else None) for tool, is_read in tools]
    every = set[bytes]().union(*(words for _, words in split if words))
    together = b" ".join(every).decode()
    if not together.isprintable():
        return [of(tool) for tool, _ in split]
    left = {what: each for what, each in _words_anywhere.items() if _may_be_in(together, _NEEDED_ALONE[what])}
    if max(map(len, every), default=0) < LONG:
        del left["a long encoded text"]
    return [
        () if words is not None and not (left and _found(b" ".join(words).decode(), left)) else of(tool)
        for tool, words in split
    ]


def of(tool: Raw) -> tuple[PoisoningSign, ...]:
    """What of a listed tool is suspicious."""
    try:
        texts = list(_texts(read(tool)))
    except (ValueError, RecursionError):
        return (PoisoningSign("unreadable content", "listing", ""),)
    found: list[PoisoningSign] = []
    is_cut = sum(len(text) for _, text in texts) > MOST_TEXT
    texts = _cut(texts) if is_cut else texts
    together = _BETWEEN.join(_spelled(text) for _, text in texts)
    if is_cut or len(together) > LONGEST_SPELLED:
        found.append(PoisoningSign("more text than can be scanned", "listing", ""))
        together = together[:LONGEST_SPELLED]
    words = _found(together, _words)
    left = Counter(dict.fromkeys((*_hidden, *words), MOST_ALIKE))
    for where, text in texts if words or not all(_is_plain(text) for _, text in texts) else ():
        found += _in_text(where, text, words, left)
    return tuple(found)


def _words_of(tool: bytes) -> list[bytes] | None:
    """The words of a tool, to see without taking it apart that nothing would be found, as in most tools: each text
    stands in it as it is, between quotation marks, which are spaces here. None where that is not to be seen so."""
    if len(tool) > MOST_TEXT:
        return None
    if b"\\" in tool:
        for space in (rb"\n", rb"\"", rb"\t", rb"\r"):
            tool = tool.replace(space, b" ")
        if b"\\" in tool:  # some other character, or one of these is none
            return None
    if not tool.isascii():
        text = tool.decode(errors="replace")
        if _may_hide.search(text) or "\ufffd" in text:
            return None
        tool = _one_spelling(text).casefold().encode()
        if len(tool) > MOST_TEXT:
            return None
    return tool.translate(_SMALL).split()


def _found(text: str, patterns: Mapping[str, re.Pattern[str]]) -> dict[str, re.Pattern[str]]:
    """Those of these that are somewhere in a text in one kind of spelling."""
    return {
        what: pattern for what, pattern in patterns.items() if _may_be_in(text, NEEDED[what]) and pattern.search(text)
    }


def _may_be_in(text: str, needed: Iterable[Iterable[str]]) -> bool:
    for group in needed:  # each tool passes this seven times: generators would take twice as long
        for word in group:
            if word in text:
                break
        else:
            return False
    return True


def _cut(texts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    left = MOST_TEXT
    kept: list[tuple[str, str]] = []
    for where, text in texts:
        kept.append((where, text[:left]))
        left -= len(text)
        if left <= 0:
            break
    return kept


def visible(text: str) -> str:
    """A stranger's text for people: what they would not see, or what would move their cursor, is written out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each.isprintable() and not _blank.match(each) else f"\\u{{{ord(each):x}}}" for each in text)


def _texts(tool: Any) -> Iterator[tuple[str, str]]:
    """All texts of a tool with their places, names of members too."""
    shown = (
        [(key[:LONGEST_PLACE], key, each) for key, each in tool if key not in UNSEEN] if isinstance(tool, Pairs) else []
    )
    left: list[Any] = [shown]  # the next one last: members, and values with their places
    while left:
        each = left.pop()
        if isinstance(each, list):
            members = cast("list[tuple[str, str, Any]]", each)
            for where, key, _ in members:
                if len(key) > 20 or not key.isascii():
                    yield visible(where[:EXCERPT])[:EXCERPT], key
            left += [(where, value) for where, _, value in reversed(members)]
            continue
        where, value = cast("tuple[str, Any]", each)
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, Pairs):
            left.append([(f"{where}.{key}"[:LONGEST_PLACE], key, of) for key, of in value])
        elif isinstance(value, list):
            left += [(where, one) for one in reversed(cast("list[Any]", value))]


def _in_text(
    where: str, text: str, words: Mapping[str, re.Pattern[str]], left: Counter[str]
) -> Iterator[PoisoningSign]:
    """`left`: of each kind, how many may still be named."""
    place = visible(where[:LONGEST_PLACE])[:LONGEST_PLACE]
    if not _is_plain(text):
        yield from _matched(place, text, _hidden, left)
    if any(left[what] for what in words):
        yield from _matched(place, _spelled(text)[:LONGEST_SPELLED], words, left)


def _matched(
    place: str, text: str, patterns: Mapping[str, re.Pattern[str]], left: Counter[str]
) -> Iterator[PoisoningSign]:
    for what, pattern in patterns.items():
        if left[what] and (match := pattern.search(text)):
            left[what] -= 1
            yield PoisoningSign(what, place, _excerpt(text, match))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.translate(_SPACES).isprintable()


def _spelled(text: str) -> str:
    """In one kind of spelling, without what nobody sees."""
    plain = text if text.isascii() else _one_spelling(_invisible.sub("", text))
    return _spaces.sub(" ", plain).casefold()


def _one_spelling(text: str) -> str:
    return normalized(text).replace("’", "'")


def _excerpt(text: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - 10)
    return visible(text[start : max(match.end(), start) + 10][: 2 * EXCERPT])
