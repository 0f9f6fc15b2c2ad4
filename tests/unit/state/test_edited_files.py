"""Files of users that are edited for them, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolgate.core.not_edited import NotEdited
from toolgate.state import edited_files


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    file = tmp_path / "theirs.json"
    file.write_text("before")
    return file


def test_what_cannot_be_noted_is_not_edited(file: Path) -> None:
    (edited_files.folder() / edited_files.INDEX).mkdir(parents=True)  # where the note is to stand
    with pytest.raises(NotEdited):
        edited_files.write(file, "before", "after", command="import")
    assert file.read_text() == "before"


def test_what_was_not_edited_is_not_noted(file: Path) -> None:
    with pytest.raises(NotEdited):
        edited_files.write(file, "what somebody else has changed", "after", command="import")
    assert file.read_text() == "before" and edited_files.last("import") == []
    assert [each.name for each in edited_files.folder().iterdir() if not each.name.startswith(edited_files.INDEX)] == []
    edited_files.write(file, "before", "after", command="import")
    (edit,) = edited_files.last("import")
    assert file.read_text() == "after" and "restored" in edited_files.undo(edit) and file.read_text() == "before"
