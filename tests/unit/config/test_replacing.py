"""A file of the user is replaced as a whole, through nobody else's links, and not over what others write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from toolgate.config import replacing
from toolgate.config.ownership import NotOurs


def test_a_new_file_is_for_its_user_alone_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "below" / "new.json"
    replacing.replace(file, None, b"{}")
    assert file.read_bytes() == b"{}" and stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    replacing.replace(file, b"{}", b"[]")
    assert file.read_bytes() == b"[]" and stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [each.name for each in file.parent.iterdir()] == ["new.json"]
    replacing.replace(file, b"[]", None)
    assert not file.exists() and replacing.read(file) is None


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    kept = tmp_path / "dotfiles" / "settings.json"
    kept.write_text("{}")
    (tmp_path / "home").symlink_to("dotfiles")
    link = tmp_path / "settings.json"
    link.symlink_to("home/../dotfiles/settings.json")
    replacing.replace(link, b"{}", b"[]")
    assert link.is_symlink() and kept.read_text() == "[]"


def test_a_link_of_another_user_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, link = tmp_path / "kept.json", tmp_path / "link.json"
    kept.write_text("{}")
    link.symlink_to(kept)
    real = os.lstat(link)
    theirs = os.stat_result((*real[:4], os.geteuid() + 1, *real[5:]))
    lstat = os.lstat

    def as_another_user(path: object, **more: object) -> os.stat_result:
        return theirs if str(path) == str(link) else lstat(path)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", as_another_user)
    with pytest.raises(NotOurs):
        replacing.replace(link, b"{}", b"[]")
    with pytest.raises(NotOurs):
        replacing.read(link)
    assert kept.read_text() == "{}"


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="circle"):
        replacing.read(tmp_path / "a")


def test_what_another_program_has_written_meanwhile_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text("theirs")
    for after in (b"ours", None):
        with pytest.raises(replacing.Meanwhile):
            replacing.replace(file, b"before", after)
    assert [each.name for each in tmp_path.iterdir()] == ["file.json"] and file.read_text() == "theirs"


def test_what_is_no_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="regular"):
        replacing.read(pipe)
