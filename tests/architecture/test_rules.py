"""The rules of `rules.py` hold, and each of them can fail."""

from __future__ import annotations

import ast

import pytest
from architecture import rules


def test_no_line_of_the_source_breaks_a_rule() -> None:
    assert rules.broken() == []


@pytest.mark.parametrize(
    "text",
    [
        "def call():\n    from toolgate.core import model",
        "def call():\n    import toolgate",
        "later = lambda: [__import__('x')]\ndef call():\n    def inner():\n        import toolgate.app",
    ],
)
def test_a_late_import_is_found(text: str) -> None:
    assert list(rules.late_imports(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "if revision == '2026-07-28': pass",
        "client.revision >= other",
        "x in ('2025-03-26',) or date > self.revision.date",
        "y != mcp.LATEST['modern']",
        "mcp.UNSTATED == z",
    ],
)
def test_a_comparison_of_revisions_is_found(text: str) -> None:
    assert list(rules.comparisons_of_revisions(ast.parse(text)))


@pytest.mark.parametrize("text", ["client.revision is None", "x in mcp.REVISIONS", "revision.tasks == 'extension'"])
def test_whether_there_is_a_revision_and_what_it_has_may_be_asked(text: str) -> None:
    assert not list(rules.comparisons_of_revisions(ast.parse(text)))


@pytest.mark.parametrize("text", ["client.era", "call.is_modern"])
def test_a_test_of_the_era_is_found(text: str) -> None:
    assert list(rules.tests_of_the_era(ast.parse(text)))


@pytest.mark.parametrize(
    ("handler", "is_found"),
    [
        ("except Exception:\n    pass", True),
        ("except:\n    pass", True),
        ("except BaseException:\n    pass", True),
        ("except BaseException:\n    raise", False),
        ("except Exception:  # the rescue\n    pass", False),
        ("except ValueError:\n    pass", False),
    ],
)
def test_a_catch_of_everything_gives_its_reason(handler: str, is_found: bool) -> None:
    text = f"try:\n    call()\n{handler}"
    assert bool(list(rules.catches_of_everything(ast.parse(text), text.splitlines()))) is is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("msgspec.json.decode(body)", True),
        ("msgspec.json.decode(body, type=dict[str, Any])", True),
        ("msgspec.json.Decoder().decode", True),
        ("msgspec.json.Decoder(list[Any])", True),
        ("class Page:\n    more: Any = None\nmsgspec.json.decode(body, type=Page)", True),
        ("class Page:\n    name: str\nmsgspec.json.decode(body, type=Page)", False),
        ("msgspec.json.decode(body, type=list[str])", False),
        ("msgspec.json.Decoder(Any, float_hook=float)", False),
    ],
)
def test_a_reader_of_plain_values_that_leaves_the_numbers_to_msgspec_is_found(text: str, is_found: bool) -> None:
    assert bool(list(rules.readers_of_plain_values(ast.parse(text)))) is is_found
