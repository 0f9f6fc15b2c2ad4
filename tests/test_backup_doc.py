"""docs/backup.md says of all that lies in the state folder whether it belongs in a backup."""

from __future__ import annotations

import re
from pathlib import Path

from toolgate.config import secrets, trust
from toolgate.state import edited_files, sqlite
from toolgate.upstreams.process import boxes, kept
from toolgate.workspace import hooks

PAGE = (Path(__file__).parents[1] / "docs" / "backup.md").read_text()
ROWS = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))


def test_the_page_names_whatever_the_code_puts_there() -> None:
    folders = (boxes.BOXES, boxes.STARTS, boxes.PACKAGES, f"{boxes.PACKAGES}/{kept.FOLDER}", hooks.SPOOL)
    folders += (edited_files.FOLDER, "run")
    files = (sqlite.FILE, secrets.FILE, trust.FILE, "audit.jsonl")
    assert [name for name in (*files, *(f"{each}/" for each in folders)) if f"`{name}`" not in ROWS] == []


def test_its_commands_make_the_folder_that_they_write_to() -> None:
    made, written = re.search(r"mkdir -p (\S+)\ntoolgate state backup (\S+)\n", PAGE).groups()  # type: ignore[union-attr]
    assert Path(written).parent == Path(made)
