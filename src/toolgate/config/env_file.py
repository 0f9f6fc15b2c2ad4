"""A `.env` file, which some tools' servers name: NAME=value in lines.

The rule this file keeps: what cannot be read as such a line is passed over, since shells and tools differ in what
they take; nothing of it is run.
"""

from __future__ import annotations

import re
from pathlib import Path

from toolgate.config import ownership

LONGEST = 256 * 1024  # bytes

_line = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"""
    r"""(?:"([^"\n]*)"|'([^'\n]*)'|((?:[^ \t\n#]|[ \t]++(?![#\n]|\Z)|(?<![ \t"'])#)*+))"""
    r"""[ \t]*+(?:(?<=[ \t"'])#[^\n]*)?$""",
    re.MULTILINE,
)


def read(path: Path) -> dict[str, str]:
    """Raises `OSError` for what is no file that can be read."""
    try:
        with ownership.open_anyones(path) as file:
            text = file.read(LONGEST).decode(errors="replace").replace("\r\n", "\n").replace("\0", "")
    except ValueError:  # a NUL in the path
        raise FileNotFoundError from None
    return {found[1]: next((each for each in found.groups()[1:] if each), "") for found in _line.finditer(text)}
