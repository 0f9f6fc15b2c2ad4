"""Edits of a file's text that touch only the span that changes: one table put in, or taken out.

The rules this file keeps: comments, order and layout of all else stay as they were, byte by byte; and after each edit
the text is read again, so that what comes out says exactly what it said before and the one change. What cannot be
edited so ends as `Malformed`, and nothing is written.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from toolgate.config.formats import LONGEST_STATE, Format, Malformed, parse

Path: TypeAlias = tuple[str | int, ...]  # keys of tables, and places in lists
Tree: TypeAlias = dict[str, Any]


def put(text: str, format: Format, path: Path, value: Any) -> str:
    """The text with `value` at `path`, in place of what stood there. Raises `Malformed`."""
    return _edited(text, format, path, lambda: _PUT[format](text, path, value), lambda found: _with(found, path, value))


def drop(text: str, format: Format, path: Path) -> str:
    """The text without what stands at `path`; as it is where nothing does. Raises `Malformed`."""
    if not holds(tree(text, format), path):
        return text
    return _edited(text, format, path, lambda: _DROP[format](text, path), lambda found: _without(found, path))


def holds(found: object, path: Path) -> bool:
    for key in path:
        if isinstance(key, int):
            if not isinstance(found, list) or not 0 <= key < len(cast("list[Any]", found)):
                return False
        elif not isinstance(found, dict) or key not in found:
            return False
        found = cast(Any, found)[key]
    return True


def _edited(text: str, format: Format, path: Path, edit: Callable[[], str], wanted: Callable[[Tree], Tree]) -> str:
    before = tree(text, format)
    for depth in range(len(path)):
        if not holds(before, path[:depth]):
            break
        is_place = isinstance(path[depth], int)
        if not isinstance(_at(before, path[:depth]), list if is_place else dict | None):
            where = ".".join(map(str, path[:depth]))
            raise Malformed(f"`{where}` is not a {'list' if is_place else 'table'}, so nothing can be put into it")
        if is_place and not holds(before, path[: depth + 1]):
            raise Malformed(f"`{'.'.join(map(str, path[:depth]))}` has no place {path[depth]}")
    try:
        edited = edit()
        is_right = _pruned(tree(edited, format), path) == _pruned(wanted(copy.deepcopy(before)), path)
    except (Malformed, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Malformed(_BY_HAND) from error
    if not is_right:
        raise Malformed(_BY_HAND)
    return edited


_BY_HAND = "cannot be edited without changing more than is meant: edit it by hand"


def tree(text: str, format: Format) -> Tree:
    """What a text says; nothing at all is an empty table. Raises `Malformed`."""
    found: Any = parse(text, format, LONGEST_STATE) if text.strip() else {}
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Malformed("is not a table at its root")
    return cast(Tree, found)


def _at(found: Any, path: Path) -> Any:
    for key in path:
        found = found[key]
    return found


def _with(found: Tree, path: Path, value: Any) -> Tree:
    here: Any = found
    for key in path[:-1]:
        if not isinstance(key, int):
            here[key] = here.get(key) or {}
        here = here[key]
    here[path[-1]] = value
    return found


def _without(found: Tree, path: Path) -> Tree:
    del _at(found, path[:-1])[path[-1]]
    return found


def _pruned(found: Tree, path: Path) -> Tree:
    """Without the tables above `path` that are empty: TOML has those only by what is in them."""
    for depth in range(len(path) - 1, 0, -1):
        if holds(found, path[:depth]) and not _at(found, path[:depth]):
            del _at(found, path[: depth - 1])[path[depth - 1]]
    return found


def _nested(path: Path, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# JSON, with comments and trailing commas.


class _Token(NamedTuple):
    start: int
    end: int
    text: str


class _Member(NamedTuple):
    name: str
    start: int  # of its key
    value: int  # where its value starts
    end: int  # behind its value


class _Object(NamedTuple):
    start: int  # of its brace
    end: int  # of the brace that closes it
    members: list[_Member]
    comma: int  # behind the last comma, where one is trailing; else 0


_json_token = re.compile(r'"(?:[^"\\\n]|\\.)*+"|//[^\n]*|/\*.*?\*/|[{}\[\]:,]|[^\s{}\[\]:,"/]+', re.DOTALL)


def _tokens(text: str, start: int) -> Iterator[_Token]:
    """Without comments."""
    for found in _json_token.finditer(text, start):
        if not found[0].startswith(("//", "/*")):
            yield _Token(found.start(), found.end(), found[0])


def _object(text: str, start: int) -> _Object:
    """The object whose brace is the first token from `start` on."""
    tokens = _tokens(text, start)
    brace, members, comma = next(tokens), list[_Member](), 0
    for token in tokens:
        if token.text == "}":
            return _Object(brace.start, token.start, members, comma)
        if token.text == ",":
            comma = token.end
            continue
        comma = 0
        next(tokens)  # the colon
        first = next(tokens)
        members.append(_Member(json.loads(token.text), token.start, first.start, _end_of(first, tokens)))
    raise Malformed("an object does not end")


def _element(text: str, start: int, place: int) -> int:
    """Where that element of a list starts, whose bracket is the first token from `start` on."""
    tokens = _tokens(text, start)
    next(tokens)
    for _ in range(place):
        _end_of(next(tokens), tokens)
        next(tokens)  # the comma
    return next(tokens).start


def _end_of(first: _Token, tokens: Iterator[_Token]) -> int:
    depth, last = int(first.text in "{["), first
    while depth:
        last = next(tokens)
        depth += (last.text in "{[") - (last.text in "}]")
    return last.end


def _json_put(text: str, path: Path, value: Any) -> str:
    text = text if text.strip() else "{}" + _line_end(text)
    here, depth = _object(text, 0), 0
    for depth, key in enumerate(path):
        if isinstance(key, int):
            continue  # it was found with the key of its list
        member = next((each for each in here.members if each.name == key), None)
        if member and depth + 1 < len(path) and isinstance(place := path[depth + 1], int):
            here = _object(text, _element(text, member.value, place))
            continue
        if not member:
            return _json_inserted(text, here, key, _nested(path[depth + 1 :], value))
        if depth < len(path) - 1 and text[member.value] == "{":
            here = _object(text, member.value)
            continue
        written = _json_written(text, _nested(path[depth + 1 :], value), _indent_at(text, member.start))
        return text[: member.value] + written + text[member.end :]
    raise Malformed("nothing to put")


def _json_inserted(text: str, here: _Object, key: str, value: Any) -> str:
    outer, line_end = _indent_at(text, here.start), _line_end(text)
    if here.members and "\n" not in text[here.start : here.end]:
        comma = " " if here.comma else ", "
        place = here.comma or here.members[-1].end
        return f"{text[:place]}{comma}{json.dumps(key, ensure_ascii=False)}: {_compact(value)}{text[place:]}"
    inner = _indent_at(text, here.members[0].start) if here.members else outer + _unit(text)
    written = f"{inner}{json.dumps(key, ensure_ascii=False)}: {_json_written(text, value, inner)}"
    place = here.start + 1 + len(text[here.start + 1 : here.end].rstrip())
    if here.members and not here.comma:
        text = text[: here.members[-1].end] + "," + text[here.members[-1].end :]
        place += 1
    behind = text[place:].lstrip(" \t\r\n")
    return f"{text[:place]}{line_end}{written}{line_end}{outer}{behind}"


def _json_written(text: str, value: Any, indent: str) -> str:
    unit = _unit(text)
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (_line_end(text) + indent).join(lines)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_first_indent = re.compile(r"\n([ \t]+)\S")


def _unit(text: str) -> str:
    found = _first_indent.search(text)
    return found[1] if found and len(found[1]) <= 8 else "  "


def _indent_at(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _json_drop(text: str, path: Path) -> str:
    here = _object(text, 0)
    for key in path[:-1]:
        here = _object(text, next(each for each in here.members if each.name == key).value)
    index, member = next((index, each) for index, each in enumerate(here.members) if each.name == path[-1])
    start, end = member.start, member.end
    comma = next(_tokens(text, end))
    before = ""
    if comma.text == ",":
        before, end = text[:start], comma.end if not text[end : comma.start].strip() else end
        if end == member.end:  # a comment stands before the comma
            text = text[: comma.start] + text[comma.end :]
    elif index:
        last = next(_tokens(text, here.members[index - 1].end))
        before = text[: last.start] + text[last.end : start]
    else:
        before = text[:start]
    behind = text[end:]
    line = before[before.rfind("\n") + 1 :]
    rest, line_end, below = behind.partition("\n")
    if not line.strip() and not rest.strip() and line_end:
        return before[: len(before) - len(line)] + below
    return before.rstrip(" \t") + behind.lstrip(" \t") if line.strip() else before + behind.lstrip(" \t")


# TOML: what is new comes behind all else, which is changed by tomlkit.


def _toml_put(text: str, path: Path, value: Any) -> str:
    found, line_end = tree(text, "toml"), _line_end(text)
    if not holds(found, path) and isinstance(value, dict) and all(isinstance(key, str) for key in path):
        gap = "" if not text.strip() else line_end if text.endswith("\n") else line_end * 2
        appended = f"{text}{gap}{_toml_section(path, cast(Tree, value), line_end)}"
        try:
            if tree(appended, "toml") == _with(copy.deepcopy(found), path, value):
                return appended
        except Malformed:
            pass  # what stands above is an inline table, which no section can add to
    return _by_tomlkit(text, path, value)


def _toml_section(path: Path, value: Tree, line_end: str) -> str:
    import tomlkit

    document = tomlkit.document()
    here: Any = document
    for key in path[:-1]:
        here[key] = tomlkit.table(is_super_table=True)
        here = here[key]
    here[path[-1]] = _toml_item(value)
    return tomlkit.dumps(document).strip("\n").replace("\r\n", "\n").replace("\n", line_end) + line_end


def _toml_item(value: Any, is_inline: bool = False) -> object:
    """A table, whose own tables stand in one line each."""
    import tomlkit

    if isinstance(value, dict):
        table: Any = tomlkit.inline_table() if is_inline else tomlkit.table()
        for key, each in cast(Tree, value).items():
            if each is not None:
                table[key] = _toml_item(each, is_inline=True)
        return table
    if isinstance(value, list):
        array: Any = tomlkit.array()
        for each in cast("list[Any]", value):
            array.append(_toml_item(each, is_inline=True))
        return cast(object, array)
    return cast(object, cast("Any", tomlkit).item(value))


def _by_tomlkit(text: str, path: Path, value: Any) -> str:
    """Key by key, so that the comments between keys that stay stay as well."""
    import tomlkit

    document: Any = tomlkit.parse(text)
    here: Any = document
    for key in path[:-1]:
        if not isinstance(key, int) and key not in here:
            here[key] = tomlkit.inline_table() if _is_inline(here) else tomlkit.table(is_super_table=True)
        here = here[key]
    table: Any = here.get(path[-1])
    if hasattr(table, "items") and isinstance(value, dict):
        for key in [key for key in table if key not in value]:
            del table[key]
        for key, each in cast(Tree, value).items():
            if key not in table or table[key] != each:
                table[key] = _toml_item(each, is_inline=True)
    else:
        here[path[-1]] = _toml_item(value, _is_inline(here))
    return tomlkit.dumps(document)


def _is_inline(table: object) -> bool:
    return type(table).__name__ == "InlineTable"


_toml_head = re.compile(r"^[ \t]*\[\[?([^\[\]\n]+)\]\]?[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)


def _toml_drop(text: str, path: Path) -> str:
    """Its section with those below it; what stands above the next one, behind an empty line, is about that one."""
    import tomlkit

    heads = [(found.start(), _toml_path(found[1])) for found in _toml_head.finditer(text)]
    heads.append((len(text), ()))
    kept, at = list[str](), 0
    for (start, name), (end, _) in itertools.pairwise(heads):
        if name[: len(path)] == path:
            kept.append(text[at:start])
            at = end - len(_about_the_next(text[start:end]) if end < len(text) else "")
    edited = "".join(kept) + text[at:]
    if _pruned(tree(edited, "toml"), path) == _pruned(_without(tree(text, "toml"), path), path):
        return edited
    document: Any = tomlkit.parse(text)
    del _at(document, path[:-1])[path[-1]]
    return tomlkit.dumps(document)


def _about_the_next(section: str) -> str:
    """The comments at the end of a section that no key of its own follows."""
    lines = section.splitlines(keepends=True)
    index = len(lines)
    while index > 1 and (not lines[index - 1].strip() or lines[index - 1].lstrip().startswith("#")):
        index -= 1
    comments = lines[index:]
    first = next((number for number, line in enumerate(comments) if line.lstrip().startswith("#")), len(comments))
    return "".join(comments[first:])


def _toml_path(written: str) -> Path:
    import tomllib

    try:
        value: Any = tomllib.loads(f"[{written}]")
    except tomllib.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while isinstance(value, dict) and value:
        key, value = next(iter(cast(Tree, value).items()))
        keys.append(key)
    return tuple(keys)


# YAML, in blocks.


def _yaml_put(text: str, path: Path, value: Any) -> str:
    node = _yaml_node(text)
    if node is None or not path:
        gap = "" if not text or text.endswith("\n") else _line_end(text)
        return text + gap + _yaml_written(_nested(path, value), "", _line_end(text))
    for depth, key in enumerate(path):
        found = _yaml_member(node, key)
        if not found:
            return _yaml_inserted(text, node, _nested(path[depth:], value))
        key_node, below = found
        is_list = depth < len(path) - 1 and isinstance(path[depth + 1], int)
        if depth < len(path) - 1 and (is_list or (_is_mapping(below) and below.value)):
            node = below
            continue
        indent = " " * key_node.start_mark.column
        line_end = _line_end(text)
        written = _yaml_written(_nested(path[depth:], value), indent, line_end)
        return text[: key_node.start_mark.index] + written.lstrip(" ").removesuffix(line_end) + text[_yaml_end(below) :]
    raise Malformed("nothing to put")


def _yaml_inserted(text: str, node: Any, value: Tree) -> str:
    if not node.value:  # `{}` as the whole of a file
        written = _yaml_written(value, "", _line_end(text)).removesuffix(_line_end(text))
        return text[: node.start_mark.index] + written + text[node.end_mark.index :]
    if node.flow_style:
        last = _yaml_end(node.value[-1][1])
        inner = json.dumps(value, ensure_ascii=False)[1:-1]
        return f"{text[:last]}, {inner}{text[last:]}"
    indent, line_end = " " * node.start_mark.column, _line_end(text)
    end = _yaml_end(node.value[-1][1])
    line = text.find("\n", end)
    place = len(text) if line < 0 else line + 1
    before = text[:place] if text[:place].endswith("\n") else text[:place] + line_end
    return before + _yaml_written(value, indent, line_end) + text[place:]


def _yaml_drop(text: str, path: Path) -> str:
    node = _yaml_node(text)
    for key in path[:-1]:
        node = _yaml_member(node, key)[1]
    key_node, below = _yaml_member(node, path[-1])
    if len(node.value) == 1 or node.flow_style:
        kept = [pair for pair in node.value if pair[0] is not key_node]
        inner = ", ".join(text[key.start_mark.index : _yaml_end(value)] for key, value in kept)
        start = node.start_mark.index
        if not node.flow_style:  # the only one of a block: an empty table, in the line of its key
            start = len(text[:start].rstrip())
            return f"{text[:start]} {{}}{text[_yaml_end(node) :]}" if path[:-1] else text[:0] + "{}\n"
        return f"{text[:start]}{{{inner}}}{text[node.end_mark.index :]}"
    start = text.rfind("\n", 0, key_node.start_mark.index) + 1
    line = text.find("\n", _yaml_end(below))
    return text[:start] + (text[line + 1 :] if line >= 0 else "")


def _yaml_node(text: str) -> Any:
    import yaml

    return cast("Any", yaml).compose(text, yaml.SafeLoader)


def _yaml_member(node: Any, key: str | int) -> Any:
    if isinstance(key, int):
        return (node.value[key], node.value[key])
    return next((pair for pair in node.value if pair[0].value == key), None) if _is_mapping(node) else None


def _is_mapping(node: Any) -> bool:
    return type(node).__name__ == "MappingNode"


def _yaml_end(node: Any) -> int:
    """Behind its last sign: a block ends, by its mark, only where the next one begins."""
    while type(node).__name__ != "ScalarNode" and not node.flow_style and node.value:
        node = node.value[-1][1] if _is_mapping(node) else node.value[-1]
    end: int = node.end_mark.index
    is_text_block = type(node).__name__ == "ScalarNode" and node.style in ("|", ">")
    return len(node.end_mark.buffer[:end].rstrip()) if is_text_block else end


def _yaml_written(value: Any, indent: str, line_end: str) -> str:
    import yaml

    value = json.loads(json.dumps(value))  # what stands twice in it is written twice, without an anchor
    written = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1000)
    return "".join(f"{indent}{line}{line_end}" for line in written.splitlines())


_PUT: Mapping[Format, Callable[[str, Path, Any], str]] = {"json": _json_put, "toml": _toml_put, "yaml": _yaml_put}
_DROP: Mapping[Format, Callable[[str, Path], str]] = {"json": _json_drop, "toml": _toml_drop, "yaml": _yaml_drop}
