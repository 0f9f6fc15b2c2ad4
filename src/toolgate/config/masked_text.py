"""The text of a configuration file with what is secret in it masked, and the same text again once it was edited.

The rules this file keeps: what is masked stands in the masked text in no spelling; a mask that comes back as it was
stands for the very characters that stood there, and is known to nobody who has not been shown it, so that no text of
others that is pasted holds one; and a text of which that is not sure is not shown at all.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from toolgate.config import masking, spans
from toolgate.config.formats import Format, Malformed
from toolgate.core import surrogates

MOST = 2000  # masks
_MARK = "***"
_TAG = "[0-9a-f]{8}"  # of all masks of a text, as this process shows it
_KEY = secrets.token_bytes(32)

_reference = re.compile(r"\$\{(?:secret:)?[^${}:]{1,250}\}")
_scheme = re.compile(r"(?:Bearer|Basic|Token)? *", re.IGNORECASE)
_word = re.compile(r"[^\s\"'`=:,;<>()]{8,250}")
_HARMLESS = frozenset({"auth"})  # by its name it could be a secret, and it says how to sign in


class Masked(msgspec.Struct, frozen=True):
    """`pieces` are what stood in the place of each mask; `mark` is how each mask begins and ends."""

    text: str
    mark: str
    pieces: Mapping[str, str]


class _Literal(NamedTuple):
    """A string in a text, where it stands and what it says; of a comment None."""

    start: int
    end: int
    value: str | None


def masked(text: str, format: Format, known: Collection[str] = ()) -> Masked:
    """`known` are values that are secrets wherever they stand. Raises `Malformed` where not all can be masked."""
    tree = spans.tree(text, format)
    secret = set(_secrets(tree, known))
    mark = _MARK
    while re.search(rf"{re.escape(mark)}{_TAG}-\d", text):
        mark += "*"
    tag = hashlib.blake2b(surrogates.utf8(text), digest_size=4, key=_KEY).hexdigest()
    pieces: dict[str, str] = {}
    shown: list[str] = []
    at = 0
    for start, end, quote in _places(text, format, secret, known):
        if len(pieces) >= MOST:
            raise Malformed("holds more secrets than can be masked: edit it by hand")
        mask = f"{quote}{mark}{tag}-{len(pieces) + 1}{mark}{quote}"
        pieces[mask] = text[start:end]
        shown += (text[at:start], mask)
        at = end
    found = Masked("".join((*shown, text[at:])), mark, pieces)
    if not _hides_all(found, text, format, tree, (*secret, *known)):
        raise Malformed("holds a secret in a way that cannot be masked: edit it by hand")
    return found


def unmasked(text: str, before: Masked) -> str:
    """What was edited, with what stood in the place of each mask. Raises `Malformed` for a mask that was changed, or is
    another process's or another text's."""
    if not before.pieces:
        return text
    mark = re.escape(before.mark)

    def piece(found: re.Match[str]) -> str:
        if found[0] not in before.pieces:
            raise Malformed(
                f"has {found[0]} in it, which stands for nothing: leave masks as they are, with their quotes;"
                " if you did, toolgate has restarted: open the file again"
            )
        return before.pieces[found[0]]

    return re.sub(rf'"{mark}{_TAG}-\d+{mark}"|{mark}{_TAG}-\d+{mark}', piece, text)


def _hides_all(found: Masked, text: str, format: Format, tree: Any, secret: Collection[str]) -> bool:
    """Whether it says the same but for what is masked, and no secret stands there any more."""
    whole = {json.loads(mask) for mask in found.pieces if mask.startswith('"')}
    left = [each for each in _strings(spans.tree(found.text, format), ()) if each[1] not in whole]
    is_hidden = not any(
        each in value for _, value in left for each in secret if value and (each == value or len(each) > 7)
    )
    in_text = [each for each in secret if len(each) > 7 and each in found.text]
    return (
        is_hidden
        and not in_text
        and unmasked(found.text, found) == text
        and _keys(tree) == _keys(spans.tree(found.text, format))
    )


def _keys(tree: Any) -> Any:
    """A tree without its strings."""
    if isinstance(tree, dict):
        return {key: _keys(each) for key, each in cast("dict[str, Any]", tree).items()}
    if isinstance(tree, list):
        return [_keys(each) for each in cast("list[Any]", tree)]
    return "" if isinstance(tree, str) else tree


# What is secret.


def _strings(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _strings(each, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(cast("list[Any]", value)):
            yield from _strings(each, (*path, place))


def _secrets(tree: Any, known: Collection[str]) -> Iterator[str]:
    for path, value in _strings(tree, ()):
        if value and not _refers(value) and (_is_secret(path, value) or any(each in value for each in known)):
            yield value
    yield from _arguments(tree)


def _is_secret(path: tuple[Any, ...], value: str) -> bool:
    """By where it stands, or by what it looks like."""
    name = next((each for each in reversed(path) if isinstance(each, str)), "")
    if any(each in ("env", "headers") for each in path[:-1]):
        return True
    if "://" in value:
        return masking.url(value) != value or name == "notify"
    if value.startswith("sha256:"):
        return False
    return masking.looks_secret(value) or (masking.is_secret_name(name) and name not in _HARMLESS)


def _refers(value: str) -> bool:
    """It says nothing but which secret or variable is meant."""
    return "${" in value and bool(_scheme.fullmatch(_reference.sub("", value)))


def _arguments(tree: Any) -> Iterator[str]:
    """Of each list of texts those that look like secrets where they stand."""
    if isinstance(tree, list):
        listed = cast("list[Any]", tree)
        texts = [each for each in listed if isinstance(each, str)]
        if len(texts) == len(listed):
            told = masking.arguments(texts)
            yield from (each for each, shown in zip(texts, told, strict=True) if each != shown and not _refers(each))
    if isinstance(tree, dict | list):
        inner = cast("dict[str, Any]", tree).values() if isinstance(tree, dict) else cast("list[Any]", tree)
        for each in inner:
            yield from _arguments(each)


# Where it stands.


def _places(
    text: str, format: Format, secret: Collection[str], known: Collection[str]
) -> Iterator[tuple[int, int, str]]:
    """Start, end and quote of each mask, in order."""
    for each in _LITERALS[format](text):
        if each.value is not None:
            if each.value in secret:
                yield each.start, each.end, '"'
            continue
        for word in _word.finditer(text, each.start, each.end):
            if masking.looks_secret(word[0]) or any(one in word[0] for one in (*known, *secret) if len(one) > 7):
                yield word.start(), word.end(), ""


_json_piece = re.compile(r'(?P<string>"(?:[^"\\\n]|\\.)*+")(?P<key>\s*:)?|//[^\n]*|/\*.*?\*/', re.DOTALL)


def _of_json(text: str) -> Iterator[_Literal]:
    for found in _json_piece.finditer(text):
        if found["string"] is None:
            yield _Literal(found.start(), found.end(), None)
        elif found["key"] is None:
            yield _Literal(found.start("string"), found.end("string"), json.loads(found["string"], strict=False))


_toml_piece = re.compile(
    r'#[^\n]*|^[ \t]*\[{1,2}(?:[^"\'\[\]\n#]|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\')++\]{1,2}[ \t]*(?=#|\r?$)'
    r'|(?P<string>"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}|\'\'\'(?:[^\']|\'{1,2}(?!\'))*+\'{3,5}'
    r'|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\')(?P<key>[ \t]*[=.])?',
    re.DOTALL | re.MULTILINE,
)


def _of_toml(text: str) -> Iterator[_Literal]:
    for found in _toml_piece.finditer(text):
        if found["string"] is not None:
            if found["key"] is None:
                yield _Literal(found.start("string"), found.end("string"), _toml_value(found["string"]))
        elif found[0].startswith("#"):
            yield _Literal(found.start(), found.end(), None)


def _toml_value(written: str) -> str:
    try:
        return tomllib.loads(f"x = {written}")["x"]
    except tomllib.TOMLDecodeError:
        return ""


_yaml_comment = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)


def _of_yaml(text: str) -> Iterator[_Literal]:
    import yaml

    found = sorted(set(_scalars(cast("Any", yaml).compose(text, yaml.SafeLoader))))
    ends = [0, *(each.end for each in found)]
    starts = [*(each.start for each in found), len(text)]
    comments = [
        _Literal(comment.start(), comment.end(), None)
        for end, start in zip(ends, starts, strict=True)
        for comment in _yaml_comment.finditer(text, end, max(end, start))
    ]
    return iter(sorted([*found, *comments], key=lambda each: each.start))


def _scalars(node: Any) -> Iterator[_Literal]:
    """The strings that are values. What an alias stands for twice is found once."""
    kind = type(node).__name__
    if kind == "ScalarNode":
        if node.tag.endswith(":str"):
            end: int = node.end_mark.index
            is_block = node.style in ("|", ">")
            yield _Literal(
                node.start_mark.index, len(node.end_mark.buffer[:end].rstrip()) if is_block else end, node.value
            )
    elif kind == "MappingNode":
        for _, value in node.value:
            yield from _scalars(value)
    elif kind == "SequenceNode":
        for value in node.value:
            yield from _scalars(value)


_LITERALS = {"json": _of_json, "toml": _of_toml, "yaml": _of_yaml}
