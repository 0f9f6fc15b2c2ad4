"""The README, the index of the pages and the maps of the rooms say nothing that is not so."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from architecture import maps

from toolgate import config
from toolgate.cli import COMMANDS
from toolgate.core import mcp

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SOURCE = ROOT / "src" / "toolgate"
ROOMS = sorted(path.parent for path in SOURCE.glob("*/__init__.py") if path.parent.name != "demo")
PACKAGES = sorted(path.parent for path in SOURCE.glob("*/**/__init__.py") if path.parent.name != "demo")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


@pytest.mark.parametrize("text", blocks("json"))
def test_every_configuration_in_the_readme_loads(text: str) -> None:
    found = config.read(text, file="toolgate.json", environ={}, format="json")
    assert found.servers
    assert not any(server.problem for server in found.servers)


def test_the_readme_begins_with_the_two_commands() -> None:
    first = blocks("")[0]
    assert re.findall(r"^make (\w+)", first, re.M) == ["demo", "test"]


def test_every_command_in_the_readme_exists() -> None:
    shown = set(re.findall(r"^toolgate (\w+)", README, re.M))
    assert shown
    assert shown <= set(COMMANDS)


def test_every_make_target_in_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+)", README)) <= targets


def test_every_link_in_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_link_in_the_docs_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, heading in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not heading or heading in headings(found), f"{target}#{heading}"


def test_contributing_names_targets_tests_and_links_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+)\b(?= +#|`)", text)) <= targets
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"`(?:[\w/]*/)?(test_[a-z_0-9]+\.py)`", text):
        assert list((ROOT / "tests").rglob(name)), name


def headings(page: Path) -> set[str]:
    """As links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", each.lower()).replace(" ", "-") for each in found}


def test_every_page_is_found_from_the_readme() -> None:
    linked = set(re.findall(r"\(docs/(\w[\w-]*\.md)", README))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_index_has_every_page_once_and_no_other() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    kinds = re.findall(r"^## (.*)$", index, re.M)
    assert kinds == ["Tutorial", "How-to", "Reference", "Explanation"]
    listed = re.findall(r"^- \[.+?\]\((\S+\.md)\): .+$", index, re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


MISSING = re.compile(
    r"(?:is|are) not (?:yet )?(?:supported|implemented|available)|not yet (?:there|possible)|not there yet"
    r"|coming soon|\bplanned\b|in the future|in a (?:later|future) (?:version|release)|to be implemented",
    re.IGNORECASE,
)


def test_what_is_missing_is_said_on_the_page_of_known_limits_and_nowhere_else() -> None:
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").glob("*.md") if page.name != "known-limits.md")]
    found = {page.name: MISSING.findall(" ".join(page.read_text().split())) for page in pages}
    found["architecture.md"] = [each for each in found["architecture.md"] if each != "not there yet"]  # its link to it
    assert not any(found.values()), found


def test_the_readme_names_every_revision() -> None:
    assert all(revision in README for revision in mcp.REVISIONS)


def test_help_imports_neither_the_server_nor_the_gateway() -> None:
    code = (
        "import sys; sys.argv = ['toolgate', '--help']\n"
        "import toolgate.cli\n"
        "try: toolgate.cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'uvicorn', 'cryptography', 'toolgate.app'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("[]")


# The rooms.


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(SOURCE)))
def test_the_map_of_a_package_names_each_of_its_files_in_one_line(package: Path) -> None:
    assert sorted(maps.named(package)) == sorted(maps.inside(package))


def layers() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [re.findall(r"\w+", row) for row in next(each["layers"] for each in contracts if each["type"] == "layers")]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_the_map_of_a_room_says_what_it_may_import(room: Path) -> None:
    """It names at least the row below."""
    rows = layers()
    (below,) = [rows[at + 1 : at + 2] for at, row in enumerate(rows) if room.name in row]
    (said,) = re.findall(r"^May import (.*?)\.", maps.map_of(room), re.M)
    assert set(re.findall(r"`(\w+)`", said)) >= set(*below)


def test_the_architecture_has_every_row_of_rooms_in_its_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Rooms")[2]
    rows = [re.findall(r"`(\w+)`", cell) for cell in re.findall(r"^\| (`[^|]*) \|", text.partition("\n## ")[0], re.M)]
    assert rows == layers()
    assert len((ROOT / "docs" / "architecture.md").read_text().splitlines()) <= 250


SUFFIXES = {"md", "py", "json", "jsonl", "toml", "txt", "db"}
MAPS = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_every_file_that_a_map_of_the_code_names_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:[\w-]+/)+[\w-]*)(?:\.\w+)?`", page.read_text()))
    assert named
    for name in named - {name for name in named if re.search("[A-Z]{3}", name)}:  # NAME is the reader's to choose
        places = (ROOT.glob(name.rstrip("/")), ROOT.glob(f"{name}.*"), SOURCE.glob(name), SOURCE.glob(f"**/{name}.py"))
        assert any(list(place) for place in places), name


def test_every_name_of_the_code_that_a_map_gives_is_in_the_code() -> None:
    """Of what stands in backticks: dotted names, classes and constants."""
    texts = [page.read_text().replace("```", "") for page in MAPS] + [maps.map_of(package) for package in PACKAGES]
    of_tests = ("behaviour/stage.py", "peers.py", "virtualtime.py", "unit/config/test_fields.py")  # that the maps name
    files = [*SOURCE.rglob("*.py"), ROOT / "docs" / "make_tools.py", *(ROOT / "tests" / name for name in of_tests)]
    code = "\n".join(path.read_text() for path in files)
    known = set(re.findall(r"^ *(?:async def|def|class) (\w+)|^ *(\w+)(?:: [^=\n]*)? = |^    (\w+): ", code, re.M))
    names = {name for each in known for name in each if name} | {path.stem for path in SOURCE.rglob("*")}
    given = {name for text in texts for name in re.findall(r"`([\w.]+)(?:\(.*?\))?`", text)}
    of_code = {name for name in given if re.fullmatch(r"[a-z_]+(\.\w+)+|_?[A-Z]\w*", name)}
    parts = {name: name.rpartition(".")[2] for name in of_code}
    assert {name for name, last in parts.items() if last not in names | SUFFIXES} == set()
