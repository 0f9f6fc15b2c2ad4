"""The examples of the five texts, as data: what stands in them as JSON, as a call, as a curl command, as a table.

    python tests/behaviour/examples.py      write examples.json anew, from the texts

The texts are no part of the repository: `TOOLGATE_SEEDS` says where they are, else they lie in `shared/seeds` beside
the checkout. `examples.json` holds every example of them with its place, and `test_examples_of_the_seeds.py` runs each
as it stands.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
KEPT = HERE / "examples.json"
BESIDE = HERE.parents[2] / "shared" / "seeds"


class Example(NamedTuple):
    """`id` is the text, the section and the number of the example in it; `body` is what `kind` says it is:

    json: a value; calls: names with their arguments; posts: URL and body; toml: a value; output: lines;
    parameters: [name, type, whether it is required] each; signature: a name and its parameters, a `?` behind those that
    may be left out.
    """

    id: str
    kind: str
    body: Any


def folder() -> Path | None:
    """Where the texts are, if they are here."""
    named = os.environ.get("TOOLGATE_SEEDS")
    place = Path(named) if named else BESIDE
    return place if list(place.glob("00*.md")) else None


def kept() -> list[Example]:
    """The examples that are in the repository."""
    return [Example(id, row["kind"], row["body"]) for id, row in json.loads(KEPT.read_text()).items()]


def read(place: Path) -> list[Example]:
    """The examples of the texts in a folder."""
    return [example for path in sorted(place.glob("00*.md")) for example in _of_text(path.name[:3], path.read_text())]


def _of_text(seed: str, text: str) -> Iterator[Example]:
    numbers: Counter[str] = Counter()
    for section, kind, body in _found(_lines_of(text)):
        numbers[section] += 1
        yield Example(f"{seed} {section} {numbers[section]}", kind, body)


def _lines_of(text: str) -> list[str]:
    return [*text.splitlines(), ""]


Found = Iterator[tuple[str, str, Any]]  # section, kind, body


def _found(lines: list[str]) -> Found:
    section, at = "", 0
    while at < len(lines):
        line = lines[at]
        if heading := _HEADING.match(line):
            section = next(filter(None, heading.groups())).strip()
            if "(" in line and heading["tool"]:
                yield section, "signature", _signature(line.strip("# `"))
            at += 1
        elif fence := re.match(r"```(\w*)$", line):
            end = lines.index("```", at + 1) if "```" in lines[at + 1 :] else len(lines)
            yield from ((section, *each) for each in _fenced(fence[1], "\n".join(lines[at + 1 : end])))
            at = end + 1
        elif header := _TABLE.match(line):
            end = next(number for number in range(at, len(lines)) if not lines[number].strip())
            rows = [_row(each, header[0].startswith("|")) for each in lines[at + 1 : end] if "---" not in each]
            yield section, "parameters", rows
            at = end
        elif line[:1] in ("{", "["):
            end = at + 1
            while not _is_whole("\n".join(lines[at:end])):
                end += 1
            yield from ((section, *each) for each in _bare(lines, at, end))
            at = end
        else:
            yield from ((section, "json", loose(span)) for span in re.findall(r'`(\{"[^`]*\})`', line))
            at += 1


# A heading of the markdown texts, and of the one that has lost its marks: a tool's name, or a few words, alone.
_HEADING = re.compile(
    r"#+ `(?P<tool>\w+)\(.*$|#{2} (?P<title>[^`].*)$|### (?P<example>Example: .*)$"
    r"|(?P<bare>mcp_\w+|Response format|Error handling)$"
)
_TABLE = re.compile(r"\| (?:Parameter|Name) +\| Type +\||Parameter Type Required Description$")


def _fenced(language: str, text: str) -> Iterator[tuple[str, Any]]:
    if language == "json":
        yield "json", loose(text)
    elif language == "toml":
        yield "toml", tomllib.loads(text)
    elif language == "python":
        yield "calls", _calls(text)
    elif language == "bash":
        yield "posts", list(_posts(text))
    elif re.match(r"\w+\(", text):
        yield "signature", _signature(text)


def _bare(lines: list[str], at: int, end: int) -> Iterator[tuple[str, Any]]:
    text = "\n".join(lines[at:end])
    if text.startswith("{ ..."):  # what is printed, and no JSON
        start = at
        while lines[start - 1].strip():
            start -= 1
        yield "output", lines[start:end]
    else:
        yield "json", loose(text)


def loose(text: str) -> Any:
    """JSON in which `...` and comments stand for what is left out."""
    text = re.sub(r"/\*.*?\*/", "", text)
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    parts[::2] = [re.sub(r"([\[{])\s*\.\.\.|,\s*\.\.\.", r"\1", part).replace("...", "null") for part in parts[::2]]
    return json.loads("".join(parts))


def _is_whole(text: str) -> bool:
    marks = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    return all(marks.count(opening) == marks.count(closing) for opening, closing in ("{}", "[]"))


def _signature(text: str) -> list[Any]:
    name, _, rest = text.partition("(")
    parameters = [part.strip() for part in rest.rpartition(")")[0].split(",") if part.strip()]
    return [name, [re.sub(r"(\w+)(\??).*", r"\1\2", part) for part in parameters if part != "..."]]


def _calls(text: str) -> list[Any]:
    """Python calls: each name, what stands in its places, and what it is given by name."""
    nodes = (node.value for node in ast.parse(text).body if isinstance(node, ast.Expr))
    return [
        [
            ast.unparse(node.func),
            [ast.literal_eval(each) for each in node.args],
            {str(each.arg): ast.literal_eval(each.value) for each in node.keywords},
        ]
        for node in nodes
        if isinstance(node, ast.Call)
    ]


def _posts(text: str) -> Iterator[list[Any]]:
    commands = re.split(r"^(?=curl )", text, flags=re.M)
    for command in commands:
        words = shlex.split(command, comments=True)
        if words[:1] == ["curl"]:
            url = next(word for word in words if word.startswith("http"))
            headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
            yield [url, headers, json.loads(words[words.index("-d") + 1])]


def _row(line: str, is_marked: bool) -> list[Any]:
    cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")] if is_marked else line.split(" ", 3)
    return [cells[0], cells[1], cells[2].lower() == "yes" if len(cells) > 3 else False]


def write(examples: list[Example]) -> str:
    rows = [f"{json.dumps(id)}: {json.dumps({'kind': kind, 'body': body})}" for id, kind, body in examples]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    found = folder()
    if not found:
        raise SystemExit("the texts are not here: TOOLGATE_SEEDS says where they are")
    KEPT.write_text(write(read(found)))
