"""The site of the pages builds, has each page, and loads nothing from another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import make_site
import pytest
from make_site import DOCS

LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What a page loads, and the texts of its paragraphs outside of code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.classes: set[str] = set()
        self.paragraphs: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._open.append(tag)
        self.classes |= set((given.get("class") or "").split())
        if url := given.get(LOADS.get(tag, "")):
            self.loads.append(url)
        if tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "p" in self._open and "code" not in self._open:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = make_site.build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages(site: Path) -> dict[str, Page]:
    return {str(path.relative_to(site)): Page(path.read_text()) for path in site.rglob("*.html")}


def test_the_site_has_every_page_and_none_loads_anything_from_another_host(site: Path) -> None:
    built = pages(site)
    written = {str(page.relative_to(DOCS).with_suffix(".html")) for page in DOCS.rglob("*.md")}
    assert written | {"CHANGELOG.html", "CONTRIBUTING.html"} == set(built) - {"404.html"}
    for name, page in built.items():
        assert not [url for url in page.loads if re.match(r"(\w+:)?//", url)], name
        assert "mermaid" not in page.classes, f"{name}: its drawings need a script of another host"
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text()), style


def test_lists_tables_and_blocks_of_code_are_shown_as_such(site: Path) -> None:
    """This reader of Markdown wants an empty line before a list; others do not."""
    for name, page in pages(site).items():
        for text in page.paragraphs:
            assert not re.search(r"^(- |\d+\. |\| ?|```)", text, re.M), f"{name}: {text[:80]}"


def test_the_navigation_has_every_page_once_under_the_kinds_of_the_index() -> None:
    home, *kinds, about = make_site.navigation(DOCS)
    assert home == {"Home": "index.md"}
    assert [kind for each in kinds for kind in each] == ["Tutorial", "How-to", "Reference", "Explanation"]
    listed = [page for each in kinds for under in each.values() for entry in under for page in entry.values()]
    (decisions,) = [each for each in listed if isinstance(each, list)]
    assert len(decisions) == len(list((DOCS / "decisions").glob("*.md")))
    assert sorted(each for each in listed if isinstance(each, str)) == sorted(
        page.name for page in DOCS.glob("*.md") if page.name != "index.md"
    )
    assert about == {"About": [{"Contributing": "CONTRIBUTING.md"}, {"Changelog": "CHANGELOG.md"}]}


@pytest.mark.parametrize("target", ["nothing.md", "other.md#nothing"])
def test_a_broken_link_or_anchor_fails_the_build(tmp_path: Path, target: str) -> None:
    docs = tmp_path / "docs"
    (docs / "decisions").mkdir(parents=True)
    (docs / "decisions" / "0001-record-decisions.md").write_text("# 1. One\n")
    (docs / "other.md").write_text("# Other\n")
    (docs / "index.md").write_text(f"# Pages\n\n## Explanation\n\n- [Other](other.md): a page\n\n[Broken]({target})\n")
    done = make_site.build(tmp_path / "site", docs)
    assert done.returncode == 1
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert "index.md:7:" in said, said
    assert not (tmp_path / "site").exists()
