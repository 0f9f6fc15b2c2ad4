"""Places of a box that a server could have led elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolgate.upstreams.process.grants import LedAstray, own_rule, writable


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("given/inner/deep", "other", "secret"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_places_apart_have_rules_of_their_own(place: Path) -> None:
    wanted = [str(place / "given"), str(place / "other"), str(place / "not-there")]
    assert writable(wanted) == wanted
    assert own_rule([str(place / "other")], [str(place / "given")]) == [str(place / "other")]


def test_what_lies_in_a_folder_that_may_be_written_is_covered_by_it(place: Path) -> None:
    assert writable([str(place / "given"), str(place / "given/inner")]) == [str(place / "given")]
    assert own_rule([str(place / "given/inner/deep"), str(place / "given/none")], [str(place / "given")]) == []


def test_a_link_that_leads_out_of_it_is_refused(place: Path) -> None:
    (place / "given/link").symlink_to(place / "secret")
    with pytest.raises(LedAstray):
        writable([str(place / "given"), str(place / "given/link")])
    with pytest.raises(LedAstray):
        own_rule([str(place / "given/link")], [str(place / "given")])
    assert own_rule([str(place / "given/link")], [str(place / "given")], covered=[str(place / "secret")]) == []


def test_a_way_through_such_a_folder_is_refused_too(place: Path) -> None:
    (place / "given/link").symlink_to("../secret")
    (place / "first").symlink_to("given/link")
    (place / "second").symlink_to(place / "given" / ".." / "secret")
    with pytest.raises(LedAstray):
        own_rule([str(place / "first")], [str(place / "given")])
    assert own_rule([str(place / "second")], [str(place / "given")]) == [str(place / "second")]


def test_links_of_others_are_followed_and_circles_end(place: Path) -> None:
    (place / "mine").symlink_to(place / "secret")
    assert own_rule([str(place / "mine")], [str(place / "given")]) == [str(place / "mine")]
    (place / "circle").symlink_to("circle")
    assert own_rule([str(place / "circle")], [str(place / "given")]) == [str(place / "circle")]
