"""A configuration of a megabyte or less holds up whoever reads it, by patterns that try everything, by keys, or by what
its aliases stand for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolgate.config.formats import MOST_NODES, Malformed, line_of, parse

CPU = 60  # seconds; each of these texts takes some hundredths of one, or hours
N = 60_000
LINES = {
    "letters": "A" * N,
    "a string that does not end": '"' + "\\a" * (N // 2),
    "spaces": "a" + " " * N + "b",
    "dots": "a." * (N // 2),
    "dots and spaces": "a . " * (N // 4),
    "quotes": "''" * (N // 2),
    "strings": '"a"' * (N // 3),
    "brackets": "[" * N,
    "commas": ", " * (N // 2),
    "variables": "${A:-" * (N // 5),
    "options": "--a=" * (N // 4),
    "words": "Aa " * (N // 3),
    "pieces": "a1-" * (N // 3),
    "hosts": "a.b:" * (N // 4),
    "schemes": "a+" * (N // 2) + " ://",
    "comments": "A=x" + " #" * (N // 2),
}
READ = """
import pathlib, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2])))
from toolgate.cli import trusting
from toolgate.config import env_file, formats, masking, private, telling, variables
line = pathlib.Path(sys.argv[1]).read_text()
inside = "x = \\"\\"\\"\\n" + line.replace("\\\\", "").replace('"', "") + "\\n\\"\\"\\"\\ntypo = 1\\n"
assert formats.line_of(inside, "toml", ("typo",)) == 4
for text in (line, "A=" + line, "http://" + line, "[" + line):
    formats.line_of(text, "toml", ("typo",))
    for format in ("toml", "json"):
        try:
            formats.parse(text, format)
        except formats.Malformed:
            pass
    pathlib.Path(sys.argv[1]).write_text(text)
    env_file.read(pathlib.Path(sys.argv[1]))
    masking.arguments([text, "--a", text])
    list(masking.secrets_of([text]))
    masking.url(text)
    found = private.Private()
    for name in ("A", "A_PATH", "A_TOKEN"):
        found.named(name, text)
    found.arguments([text, "--a=" + text])
    list(telling.assigned({"A": text}))
    list(trusting._reads({"a": [text, {text: text}]}))
    for style in (variables.SHELL, variables.EDITOR, variables.BARE, variables.BRACES, variables.BUNDLE):
        for pattern in (style.pattern, style.leftover):
            pattern.sub("", text)
print("done")
"""


@pytest.mark.parametrize("line", LINES)
def test_a_long_line_is_read_in_steps_of_its_length(line: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(LINES[line])
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file), str(CPU)], capture_output=True, text=True, timeout=10 * CPU
    )
    assert done.stdout == "done\n", done.stderr


def test_a_line_is_found_behind_a_text_of_letters_alone() -> None:
    text = f'[a]\nkey = """\n{"A" * 64}\n"""\n"b c" . d-e = 1\n'
    assert line_of(text, "toml", ("a", "b c", "d-e")) == 5


def unfolded(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + unfolded(each) for each in value.values())
    return 1 + sum(map(unfolded, value)) if isinstance(value, list) else 1


def doubling(depth: int) -> str:
    lists = "".join(f"- &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, depth))
    return "- &a0 [1, 1]\n" + lists


def test_aliases_unfold_to_what_a_configuration_can_hold() -> None:
    assert unfolded(parse(doubling(10), "yaml")) > 2**10
    sound = 0
    for depth in range(1, 40):
        try:
            assert unfolded(parse(doubling(depth), "yaml")) <= MOST_NODES
            sound = depth
        except Malformed as error:
            assert "aliases expanded" in error.message and error.line
    assert 10 < sound < 17


@pytest.mark.parametrize(
    "text",
    [
        "".join(
            f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(9)) if n else 'x: 1'}}}\n" for n in range(9)
        ),
        "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 12)}]}}\n" for n in range(1, 9)),
        "- &a0 [1]\n" + "- *a0\n" * MOST_NODES,
    ],
    ids=["tables", "merged", "many"],
)
def test_whatever_unfolds_is_counted(text: str) -> None:
    with pytest.raises(Malformed, match="aliases expanded"):
        parse(text, "yaml")


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: &x\n  b: *x", "&x a: &y {b: [*y]}", "a: &x {<<: *x}"])
def test_an_alias_inside_what_it_stands_for_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="inside its own anchor"):
        parse(text, "yaml")


@pytest.mark.parametrize("text", ["a." * 500 + "a = 1", "[" + "a." * 500 + "a]", "x = {" + '"a".' * 500 + "a = 1}"])
def test_a_key_of_toml_has_a_few_parts(text: str) -> None:
    with pytest.raises(Malformed, match="too many parts"):
        parse(text, "toml")
    assert parse('hosts = ["' + '", "'.join(["10.0.0.0/8"] * 300) + '"]', "toml")
