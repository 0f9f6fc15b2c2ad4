"""Edits touch only the span that changes."""

from __future__ import annotations

import pytest

from toolgate.config import spans
from toolgate.config.formats import Format, Malformed, parse

JSON = """// of mine
{
  "a": 1, // one
  "mcpServers": {
    "x": {"command": "y"} // the last
    /* and more */
  }, // its end
}
"""
TOML = """# of mine
model = "x"  # one

[mcp_servers.a]
command = "x"
# of a

# of b
[mcp_servers.b]
command = "y"
[mcp_servers.b.env]
A = "1"

[other]
z = 1
"""
YAML = """# of mine
GOOSE: x
extensions:
  a:
    type: builtin  # one
    # of a
  b:
    cmd: |
      two
      lines

# of z
z: 1
"""
ROOTS: dict[Format, tuple[str, str]] = {
    "json": (JSON, "mcpServers"),
    "toml": (TOML, "mcp_servers"),
    "yaml": (YAML, "extensions"),
}
FORMATS = pytest.mark.parametrize("format", ROOTS)
NEW = {"url": "http://127.0.0.1:8765/mcp", "args": ["ünïcode", "b"], "headers": {"A": "b"}, "enabled": True}


@FORMATS
def test_what_is_put_in_and_taken_out_again_leaves_every_byte_as_it_was(format: Format) -> None:
    text, root = ROOTS[format]
    put = spans.put(text, format, (root, "new"), NEW)
    assert parse(put, format)[root]["new"] == NEW  # type: ignore[index]
    left = spans.drop(put, format, (root, "new"))
    assert left.rstrip("\n") == text.rstrip("\n")


@FORMATS
def test_all_lines_that_are_not_meant_stay(format: Format) -> None:
    text, root = ROOTS[format]
    put = spans.put(text, format, (root, "new"), NEW)
    there = iter(put.splitlines())
    for line in text.splitlines():
        assert any(each in (line, line.replace('"}', '"},')) for each in there), line


@pytest.mark.parametrize(("format", "name", "kept"), [
    ("json", "x", ["// of mine", "// one", "// the last", "/* and more */"]),
    ("toml", "a", ["# of mine", "# one", "# of b", "[mcp_servers.b.env]"]),
    ("toml", "b", ["# of mine", "# of a", "[other]"]),
    ("yaml", "a", ["# of mine", "# of z", "      lines"]),
    ("yaml", "b", ["# of a", "# of z"]),
])  # fmt: skip
def test_comments_of_others_stay_where_one_is_taken_out(format: Format, name: str, kept: list[str]) -> None:
    text, root = ROOTS[format]
    left = spans.drop(text, format, (root, name))
    assert name not in parse(left, format)[root]  # type: ignore[operator,index]
    assert all(each in left for each in kept), left


@FORMATS
def test_one_that_is_there_is_changed_in_place(format: Format) -> None:
    text, root = ROOTS[format]
    name = next(iter(parse(text, format)[root]))  # type: ignore[index,call-overload]
    put = spans.put(text, format, (root, name), {"command": "z"})
    assert parse(put, format)[root][name] == {"command": "z"}  # type: ignore[index]
    assert "of mine" in put


@pytest.mark.parametrize(("format", "text"), [
    ("json", ""), ("json", "{}"), ("json", "// only\n{ }\n"), ("json", '{"a": 1}'), ("json", '{"a": {}}'),
    ("json", '{\n\t"a": 1,\n}'), ("json", '{"t": {"b": 1}}'), ("json", "{\r\n  \"a\": 1\r\n}\r\n"),
    ("toml", ""), ("toml", "a = 1"), ("toml", "t = { b = {} }"), ("toml", "t.b.x = 1"), ("toml", "[t]\nb = {}\n"),
    ("toml", "[t.b]\n[c]\nd = '''\n[t.e]\n'''"), ("toml", "a = 1\r\n"),
    ("yaml", ""), ("yaml", "# only\n"), ("yaml", "a: 1"), ("yaml", "t: {}\n"), ("yaml", "t:\n"), ("yaml", "t: {b: {}}"),
    ("yaml", "t:\n    b:\n        c: 1\na: 2\n"),
])  # fmt: skip
def test_in_whatever_stands_there(format: Format, text: str) -> None:
    put = spans.put(text, format, ("t", "s"), {"k": ["v"], "n": {"m": "1"}})
    found = parse(put, format)
    assert found["t"]["s"] == {"k": ["v"], "n": {"m": "1"}}  # type: ignore[index]
    before = parse(text, format) if text.strip() else {}
    left = parse(spans.drop(put, format, ("t", "s")), format) or {}
    assert {key: each for key, each in left.items() if each} == {  # type: ignore[attr-defined]
        key: each
        for key, each in (before or {}).items()
        if each  # type: ignore[attr-defined]
    }


@FORMATS
def test_what_is_not_there_is_not_taken_out(format: Format) -> None:
    text, root = ROOTS[format]
    assert spans.drop(text, format, (root, "nobody")) == text


@pytest.mark.parametrize(("format", "text"), [
    ("json", "[]"), ("json", '{"t": []}'), ("json", "{"), ("toml", "t = 1"), ("toml", "[[t]]\n"), ("yaml", "- a\n"),
])  # fmt: skip
def test_what_cannot_be_edited_is_refused(format: Format, text: str) -> None:
    with pytest.raises(Malformed):
        spans.put(text, format, ("t", "s"), {})


LISTED: dict[Format, str] = {
    "json": '{"clients": [ {"id": "a"}, // one\n {"id": "b", "p": {"x": "y"}} /* two */ ]}',
    "toml": '# all\n[[clients]]\nid = "a"  # one\n\n[[clients]]\nid = "b"  # two\np = { x = "y" }\n',
    "yaml": "# all\nclients:\n- id: a  # one\n- id: b  # two\n  p:\n    x: y\n",
}


@pytest.mark.parametrize("format", LISTED)
@pytest.mark.parametrize("place", [0, 1])
def test_a_table_in_a_list_is_edited_in_its_place(format: Format, place: int) -> None:
    text = LISTED[format]
    put = spans.put(text, format, ("clients", place, "p", "new name"), "off")
    assert "one" in put and "two" in put
    listed = spans.tree(put, format)["clients"]
    assert listed[place]["p"]["new name"] == "off" and "new name" not in str(listed[1 - place])
    for path in (("clients", 2, "p"), ("clients", "p", "x"), ("clients", -1, "p")):
        with pytest.raises(Malformed):
            spans.put(text, format, path, "off")
