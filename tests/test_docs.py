"""The README says nothing that is not so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolgate import config
from toolgate.cli import COMMANDS
from toolgate.core import mcp

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


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


def headings(page: Path) -> set[str]:
    """As links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", each.lower()).replace(" ", "-") for each in found}


def test_every_page_is_found_from_the_readme() -> None:
    linked = set(re.findall(r"\(docs/(\w[\w-]*\.md)", README))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_readme_names_every_revision() -> None:
    assert all(revision in README for revision in (*mcp.HANDSHAKE_REVISIONS, mcp.MODERN))


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
