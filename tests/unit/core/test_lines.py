"""In which line of a configuration's text a key stands."""

from __future__ import annotations

import pytest

from toolgate.config.formats import Format, line_of

JSON = """{
  // what a person wrote: {"time": 1}
  "notes": {"time": {"command": "no"}},
  "mcpServers": {
\t"time": {
      "command": "uvx", "args": [
        "mcp-server-time",
        7
      ]
    },
  }
}"""
YAML = """notes: {time: 1}
mcpServers:
  time:
    command: uvx
    args:
      - mcp-server-time
      - 7
"""
TOML = """notes.time = 1
[http]
port = 8765
[mcpServers.time]
command = "uvx"
args = [
  "mcp-server-time",
  7,
]
[mcpServers."my server"]
command = "x"
[[clients]]
id = "a"
[[clients]]
id = "b"
"""


@pytest.mark.parametrize(
    ("format", "text", "path", "line"),
    [
        ("json", JSON, ("mcpServers", "time", "command"), 6),
        ("json", JSON, ("mcpServers", "time", "args", 1), 8),
        ("json", JSON, ("mcpServers", "time", "missing"), 5),
        ("json", JSON, (), 0),
        ("json", JSON, ("elsewhere",), 0),
        ("json", "{", ("a",), 0),
        ("yaml", YAML, ("mcpServers", "time", "command"), 4),
        ("yaml", YAML, ("mcpServers", "time", "args", 1), 7),
        ("yaml", "a: *b", ("a",), 0),
        ("toml", TOML, ("mcpServers", "time", "command"), 5),
        ("toml", TOML, ("mcpServers", "time", "args", 1), 6),
        ("toml", TOML, ("mcpServers", "my server", "command"), 11),
        ("toml", TOML, ("clients", 1, "id"), 15),
        ("toml", TOML, ("http",), 2),
        ("toml", TOML, ("notes", "time"), 1),
        ("toml", TOML, ("mcpServers",), 0),
    ],
)
def test_a_key_stands_in_this_line(format: Format, text: str, path: tuple[str | int, ...], line: int) -> None:
    assert line_of(text, format, path) == line
