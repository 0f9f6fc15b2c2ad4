"""Search: what is found, by whom, and how surely."""

from __future__ import annotations

import subprocess
import sys

import pytest
import search_fixture
from hypothesis import given
from hypothesis import strategies as st
from search_fixture import CRAWL, GITHUB_ISSUES, SCREENSHOT

from toolgate.search import Document, Index, Unsearchable, spellings, words
from toolgate.search import index as indexes
from toolgate.search.briefs import brief
from toolgate.search.tokens import estimate


def names(hits):
    return [hit.document.name for hit in hits]


def test_a_screenshot_is_found_as_in_the_seed():
    first = search_fixture.local().search(SCREENSHOT)[0]
    assert (first.document.server, first.document.name, first.score) == ("playwright", "browser_screenshot", 12)
    assert first.confidence == pytest.approx(0.95, abs=0.05)
    assert first.verdict == "match"


def test_to_crawl_a_website_is_to_navigate_though_no_word_is_the_same():
    first = search_fixture.local().search(CRAWL)[0]
    assert first.document.name == "browser_navigate"
    assert first.confidence == pytest.approx(0.87, abs=0.05)
    assert first.verdict == "match"


def test_github_issues_match_no_browser_by_a_stop_word_and_the_registry_has_them():
    assert all(hit.verdict == "none" for hit in search_fixture.local().search(GITHUB_ISSUES))
    first, second = search_fixture.registry().search(GITHUB_ISSUES)[:2]
    assert first.document.name == "@modelcontextprotocol/server-github"
    assert first.confidence == pytest.approx(0.92, abs=0.05)
    assert second.verdict == "none"


def test_where_github_is_a_server_of_ones_own_it_is_found_there():
    index = search_fixture.local()
    index.put("github", search_fixture.tools("github", search_fixture.GITHUB))
    assert {hit.document.server for hit in index.search(GITHUB_ISSUES, 2)} == {"github"}


@pytest.mark.parametrize("query", ["", "I need to use the", "?!", "\0", "🙂", "to be or not to be"])
def test_a_query_that_says_nothing_finds_nothing(query):
    assert search_fixture.local().search(query) == []


@pytest.mark.promise("b.002.still-starting")
def test_confidence_never_rises_down_the_list():
    for query in ("click the page", "browser", SCREENSHOT, CRAWL, "navigate to the url of a page", "type text"):
        confidences = [hit.confidence for hit in search_fixture.local().search(query, 50)]
        assert confidences
        assert confidences == sorted(confidences, reverse=True), query


def test_the_limit_is_kept():
    assert len(search_fixture.local().search("page", 3)) == 3


def test_of_a_very_long_query_the_beginning_counts_for_all_that_is_said_of_a_hit():
    index = search_fixture.local()
    short, long = "browser" + " é" * 2_000, "browser" + " é" * 2_000 + " screenshot" * 20_000
    assert index.search(long, 50) == index.search(short, 50) != []


def test_what_is_not_permitted_neither_appears_nor_changes_anything():
    index = search_fixture.local()
    before = index.search("navigate to the url of a page", permitted=lambda document: document.server == "playwright")
    hidden = [Document("secret", f"navigate_url_page_{n}", description="Navigate to a URL, a page") for n in range(50)]
    index.put("secret", hidden)
    after = index.search("navigate to the url of a page", permitted=lambda document: document.server == "playwright")
    assert before == after


def test_to_filter_by_server_is_as_if_there_were_no_other():
    alone = Index()
    alone.put("sqlite", search_fixture.tools("sqlite", search_fixture.TOOLS["sqlite"]))
    query = "run a query on a table"
    assert search_fixture.local().search(query, servers=["sqlite", "unknown"]) == alone.search(query)


def test_kinds_are_apart():
    index = Index()
    index.put("a", [Document("a", "greeting", "prompts"), Document("a", "greeting", "tools")])
    assert [hit.document.kind for hit in index.search("greeting", kinds=["prompts"])] == ["prompts"]


def test_a_server_that_changed_is_found_as_it_is_now():
    index = search_fixture.local()
    kept = search_fixture.tools("sqlite", search_fixture.TOOLS["sqlite"])[:1]
    index.put("sqlite", [*kept, Document("sqlite", "vacuum", description="Shrink the database")])
    assert "list_tables" not in names(index.search("tables"))
    assert names(index.search("vacuum"))[0] == "vacuum"
    index.drop("sqlite")
    index.drop("playwright")
    assert len(index) == 0 and index.search("vacuum") == []
    assert not index._postings and not index._vectors


def test_an_index_that_was_changed_is_as_one_that_was_built_so():
    changed = search_fixture.local()
    changed.put("sqlite", ())
    changed.put("sqlite", search_fixture.tools("sqlite", search_fixture.TOOLS["sqlite"]))
    query = "select rows of a table"
    assert changed.search(query) == search_fixture.local().search(query)


def test_only_what_changed_is_read_again(monkeypatch):
    index = search_fixture.local()
    read = []
    fields = words.terms
    monkeypatch.setattr(words, "terms", lambda text: read.append(text) or fields(text))
    index.put("sqlite", search_fixture.tools("sqlite", search_fixture.TOOLS["sqlite"]))
    assert read == []
    index.put("another scope of sqlite", search_fixture.tools("sqlite", search_fixture.TOOLS["sqlite"]))
    assert read == []


@pytest.mark.parametrize("schema", [b"", b"{", b"[]", b'{"properties": 3}', b'{"properties": {"a": null}}', b"\xff"])
def test_a_schema_that_cannot_be_read_spoils_nothing(schema):
    index = Index()
    index.put("a", [Document("a", "send_mail", schema=schema)])
    assert names(index.search("mail")) == ["send_mail"]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("getHTTPResponse", "http response"),
        ("take-screen_shot", "screen"),
        ("GitHubIssues", "github"),
        ("GitHubIssues", "hub"),
        ("查询天气", "天气"),
        ("café_menu", "cafe"),
    ],
)
def test_names_are_found_by_their_parts(name, query):
    index = Index()
    index.put("a", [Document("a", name), Document("a", "something_else")])
    assert names(index.search(query)) == [name]


def test_of_tools_with_the_same_words_the_one_that_is_written_like_the_request_is_first():
    index = Index()
    index.put("a", [Document("a", "map_find", description="Find the location on a map by geography")])
    index.put("b", [Document("b", "find_map", description="Find the geographic location for coordinates on a map")])
    assert names(index.search("find a location's geographical coordination"))[0] == "find_map"


@given(st.text(max_size=400), st.text(max_size=400))
def test_likeness_is_between_none_and_the_same_and_the_same_both_ways(one, other):
    of_one, of_other = spellings.of(one), spellings.of(other)
    assert 0 <= spellings.likeness(of_one, of_other) == spellings.likeness(of_other, of_one) <= 1.000001
    assert spellings.likeness(of_one, of_one) == (pytest.approx(1) if of_one else 0)


def test_a_request_of_several_parts_finds_a_tool_for_each():
    found = names(search_fixture.local().search("Take a screenshot, then press a key and list all tables.", 3))
    assert set(found) == {"browser_screenshot", "browser_press_key", "list_tables"}


def test_a_regular_expression_finds_names_first():
    hits = search_fixture.local().search("^list_.*|tables", mode="regex")
    assert names(hits)[0] == "list_tables"
    assert all(hit.verdict == "match" for hit in hits)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "Not a regular expression"),
        ("(a+)+$", "repeat"),
        ("(a|a)*b", "repeat"),
        ("(a|b?)+", "repeat"),
        ("a?" * 30 + "a" * 30, "repetitions"),
        ("(a|ab)" * 30, "repetitions"),
        (".*a.*b.*c.*d", "repetitions"),
        (r"(a)\1", "back-references"),
        ("(?=a)b", "lookaround"),
        ("(?x)(.|..) +!", "flag x"),
        (r"(\b){4000000000}!", "more than 1,000 times"),
        (r"((\B){100}){100}!", "groups more than 100 times"),
        (r"a*(?:\B){1000}!", "groups more than 100 times"),
        (r"a*(?:\B){100}a*!", "unbounded repetitions"),
        ("a" * 201, "too long"),
    ],
)
def test_a_pattern_that_is_wrong_or_takes_long_is_refused(pattern, said):
    with pytest.raises(Unsearchable, match=said):
        search_fixture.local().search(pattern, mode="regex")


def test_what_may_stand_anywhere_is_no_repetition():
    assert names(search_fixture.local().search(".*browser.*shot.*", mode="regex")) == ["browser_screenshot"]


def test_other_modes_say_what_would_do():
    with pytest.raises(Unsearchable, match="use mode bm25"):
        search_fixture.local().search("mail", mode="semantic")
    with pytest.raises(Unsearchable, match="bm25 or regex"):
        search_fixture.local().search("mail", mode="best")


def test_search_needs_nothing_but_the_standard_library():
    code = "import sys, toolgate.search; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [name for name in ("msgspec", "numpy", "rich", "typer", "jsonschema_rs") if f"'{name}'" in loaded]


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("Run a query. Returns rows.", "Run a query."),
        ("Reads a file, e.g. a text. Then more.", "Reads a file, e.g. a text."),
        ("Uses files, mails etc. Returns all.", "Uses files, mails etc."),
        ("# Title\n\nText", "Title"),
        ("Search **all** of [the docs](https://x.y/z. q) now. More", "Search all of the docs now."),
        ("One line\nthat goes on. More", "One line that goes on."),
        ("Version 2.0 of `it`! More", "Version 2.0 of it!"),
        ("- first\n- second", "first"),
        ("", ""),
    ],
)
def test_a_brief_is_the_first_sentence(description, said):
    assert brief(description) == said


def test_a_brief_is_cut_between_words():
    said = brief("word " * 50)
    assert len(said) <= 100 and said.endswith("word…")
    assert len(brief("x" * 500)) == 100


def test_tokens_are_about_what_models_count():
    assert estimate("The quick brown fox jumps over the lazy dog.") in range(8, 14)
    assert estimate(b"") == 0


def test_of_very_many_documents_each_is_found_by_what_says_most_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """9,900 tools with 150 different words each took 880 MB."""
    monkeypatch.setattr(indexes, "MOST_TERMS", 1000)
    letters = "abcdefghij"
    found = Index()
    many = [
        Document("big", f"read_{letters[number]}x", description=" ".join(f"w{number}q{n}z" for n in range(300)))
        for number in range(10)
    ]
    read = [found.read(document, 1000 // len(many)) for document in many]
    assert all(len(vector.terms) == 100 for vector in read)
    found.put("big", many)
    assert found.search("read dx")[0].document == many[3]
    assert len(found.read(many[0]._replace(name="alone")).terms) > 300
