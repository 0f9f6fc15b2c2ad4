"""The forms of servers as a person is shown them.

The rules this file keeps: a form has what MCP's revisions know of forms and no more, since a client may show all that
it finds; each text in it is one line, in which nothing moves a cursor, turns the order of reading or hides; and what is
sent back, as the values of choices are, stays as its server wrote it. A value that is not such a line is shown by a
name that is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.core import jsonrpc

Shown: TypeAlias = dict[str, Any]
"""The members of a schema, in what `jsonrpc.encode` takes."""

_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "null"))
_DEEPEST = 3  # a field, its alternatives, what may be chosen of
_of_formats = re.compile(r"[a-z][a-z0-9-]{0,31}")
_of_numbers = re.compile(rb"-?[0-9][0-9.eE+-]{0,63}")
NO_FIELDS = Raw(b'{"type":"object","properties":{}}')


def shown(raw: Raw, server: str) -> Raw:
    """One that cannot be read has no fields."""
    try:
        form = jsonrpc.members(raw)
        fields = jsonrpc.members(form.get("properties", jsonrpc.EMPTY_OBJECT))
    except jsonrpc.UNREADABLE:
        return NO_FIELDS
    own = {name: field for name, each in fields.items() if (field := _field(name, each, server))}
    texts = {name: line for name in ("$schema", "description") if (line := _line(form.get(name)))}
    title = _line(form.get("title"))
    texts |= {"title": named(title, server)} if title else {}
    required = [name for each in _items(form.get("required")) if (name := text_of(each)) in own]
    more = {"required": required} if required else {}
    return Raw(jsonrpc.encode({**texts, "type": "object", "properties": own, **more}))


def named(title: str, server: str) -> str:
    return f"{server}: {safe_text.in_one_line(title)}"


def text_of(raw: Raw | None) -> str | None:
    """None for what is no text."""
    return jsonrpc.read(raw, type=str) if raw and bytes(raw).startswith(b'"') else None


def _field(name: str, raw: Raw, server: str) -> Shown:
    """Empty for one that has no type which a form may have: nobody could fill it in."""
    field = _schema(raw, _DEEPEST)
    if not field.keys() & {"type", *_CHOICES} or field.get("type") == "null":
        return {}
    title = field.get("title") or (name if safe_text.is_visible(name) else safe_text.quoted(name))
    return {**field, "title": named(title, server)}


def _schema(raw: Raw, levels: int, is_of_many: bool = False) -> Shown:
    """What is left of a schema, in its order; empty where it is none. `is_of_many`: some of its choices are taken."""
    try:
        found = jsonrpc.members(raw)
    except jsonrpc.UNREADABLE:
        return {}
    left: Shown = {name: fit for name, each in found.items() if name in _PLAIN and (fit := _PLAIN[name](each))}
    if levels:
        inner: Shown = {name: _alternatives(found[name], levels - 1) for name in ("oneOf", "anyOf") if name in found}
        inner["items"] = _schema(found.get("items", jsonrpc.NOTHING), levels - 1, is_of_many=True)
        left |= {name: each for name, each in inner.items() if each}
    left = {**_choices(found, "anyOf" if is_of_many else "oneOf"), **left}
    default = found.get("default", jsonrpc.NOTHING)
    return {name: left[name] for name in found if name in left} | left | _default(default, left)


def _alternatives(raw: Raw, levels: int) -> list[Shown]:
    """Choices, or schemas."""
    found = (_choice(each) or _schema(each, levels) for each in _items(raw))
    return [each for each in found if each]


def _choice(raw: Raw) -> Shown:
    """Empty for what is none."""
    try:
        found = jsonrpc.members(raw)
    except jsonrpc.UNREADABLE:
        return {}
    value = found.get("const", jsonrpc.NOTHING)
    if not _is_scalar(value):
        return {}
    described = {name: line for name in ("description",) if (line := _line(found.get(name)))}
    return {"const": value, "title": _line(found.get("title")) or _name(value), **described}


def _choices(found: Mapping[str, Raw], titled: str) -> Shown:
    """Those that have their names elsewhere, or none. Where a value is no line it has a name beside it (`titled`)."""
    names = [_line(each) for each in _items(found.get("enumNames"))]
    values = _items(found.get("enum")) or [found.get("const", jsonrpc.NOTHING)]
    both = [(value, names[at] if at < len(names) else "") for at, value in enumerate(values) if _is_scalar(value)]
    if not both:
        return {}
    named = [name or _name(value) for value, name in both]
    if not all(_is_line(value) for value, _ in both):
        return {titled: [{"const": value, "title": name} for (value, _), name in zip(both, named, strict=True)]}
    if "enum" not in found:
        return {"const": values[0]}
    return {"enum": [value for value, _ in both], **({"enumNames": named} if "enumNames" in found else {})}


def _default(raw: Raw, shown: Shown) -> Shown:
    """What a field has in it before anybody has: a text that is a line, or the value of a choice."""
    values = _items(raw) if bytes(raw).startswith(b"[") else [raw]
    offered = {text_of(each) for each in _values(shown)}
    is_fine = all(_is_scalar(each) and (_is_line(each) or text_of(each) in offered) for each in values)
    return {"default": raw} if raw and is_fine else {}


def _values(shown: Shown) -> Iterator[Raw]:
    """Of its choices."""
    yield from shown.get("enum", ())
    for name in ("oneOf", "anyOf"):
        for each in shown.get(name, ()):
            yield from ([each["const"]] if "const" in each else _values(each))
    if "items" in shown:
        yield from _values(shown["items"])


def _items(raw: Raw | None) -> list[Raw]:
    """None of what is no list."""
    try:
        return jsonrpc.items(raw) if raw else []
    except jsonrpc.UNREADABLE:
        return []


def _is_scalar(raw: Raw) -> bool:
    return bool(raw) and memoryview(raw)[0] not in b"[{"


def _is_line(value: Raw) -> bool:
    """Whether a value can be shown as it is."""
    return _name(value) == (text_of(value) if bytes(value).startswith(b'"') else bytes(value).decode())


def _name(value: Raw) -> str:
    """By which a value is shown that has no name."""
    text = text_of(value)
    return bytes(value).decode() if text is None else safe_text.visible(text)


def _line(raw: Raw | None) -> str:
    """A text in one line; empty for what is none, or shows nothing."""
    text = text_of(raw)
    return safe_text.in_one_line(text) if text is not None and safe_text.is_visible(text) else ""


def _type(raw: Raw) -> Any:
    """One, or a list of some."""
    found: Collection[Any] = [text_of(each) for each in _items(raw)] or [text_of(raw)]
    known = [each for each in found if each in _TYPES]
    return known if len(known) > 1 else "".join(known)


def _number(raw: Raw) -> Raw:
    return raw if _of_numbers.fullmatch(bytes(raw)) else jsonrpc.NOTHING


def _flag(raw: Raw) -> Raw:
    return raw if bytes(raw) in (b"true", b"false") else jsonrpc.NOTHING


def _format(raw: Raw) -> str:
    text = text_of(raw) or ""
    return text if _of_formats.fullmatch(text) else ""


def _pattern(raw: Raw) -> str:
    """One that is a line; another would be another pattern if it were written so."""
    text = text_of(raw) or ""
    return text if safe_text.visible(text) == text else ""


_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems"),
)
_CHOICES = ("enum", "const", "oneOf", "anyOf")
_PLAIN: Mapping[str, Callable[[Raw], Any]] = {
    **dict.fromkeys(("title", "description"), _line),
    **dict.fromkeys(_NUMBERS, _number),
    "type": _type,
    "format": _format,
    "pattern": _pattern,
    "uniqueItems": _flag,
}
