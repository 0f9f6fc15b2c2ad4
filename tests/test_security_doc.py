"""The page on security names tests: each of them is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[a-z_/]+\.py)(?:::(test_\w+))?`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_the_page_names_as_shown_is_a_test(file: str, test: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"def {test or 'test_'}" in text


def test_each_threat_has_an_answer_and_a_word_on_what_shows_it() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert len(rows) > 30
    for row in rows:
        _, threat, answer, shown, _ = (part.strip() for part in row.split("|"))
        assert threat and answer, row
        assert "`tests/" in shown or shown in ("–", "no test"), row
