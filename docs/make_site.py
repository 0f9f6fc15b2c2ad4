"""Builds the site from the same pages that are read here: `make docs` writes it to `build/site`.

    python docs/make_site.py FOLDER

The navigation is the index of the pages, by kind, and the decisions. CHANGELOG.md and CONTRIBUTING.md are pages too. A
broken link or anchor fails the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ABOUT = {"CONTRIBUTING.md": "Contributing", "CHANGELOG.md": "Changelog"}  # pages that stand beside `docs`

# Nothing is loaded from another host: no fonts, no scripts. So no plugin `offline`, which has a script from elsewhere.
SETTINGS: dict[str, Any] = {
    "site_name": "toolgate",
    "site_description": "One MCP endpoint in front of every MCP server",
    "docs_dir": "pages",
    "use_directory_urls": False,
    "theme": {
        "font": False,
        "features": ["navigation.sections", "navigation.indexes", "navigation.top", "content.code.copy"],
        "palette": [
            {"media": f"(prefers-color-scheme: {scheme})", "scheme": name}
            for scheme, name in (("light", "default"), ("dark", "slate"))
        ],
    },
    "plugins": {"search": {}},
    "markdown_extensions": {
        "tables": {},
        "toc": {"permalink": True},
        "pymdownx": {"highlight": {}, "superfences": {}},
    },
}


def build(site: Path, docs: Path = DOCS) -> subprocess.CompletedProcess[str]:
    """Write the site to `site`; what the generator says is in the result, and so is whether it found a fault."""
    with tempfile.TemporaryDirectory() as folder:
        stage(docs, Path(folder))
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode == 0:
            shutil.rmtree(site, ignore_errors=True)
            shutil.copytree(Path(folder, "site"), site)
        return done


def stage(docs: Path, folder: Path) -> None:
    """Put the pages and the settings of the generator into `folder`."""
    pages = folder / "pages"
    shutil.copytree(docs, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in ABOUT:
        (pages / name).write_text(flattened((ROOT / name).read_text()))
    for page in pages.rglob("*.md"):
        page.write_text(for_the_site(page.read_text()))
    project = {**SETTINGS, "nav": navigation(docs)}
    (folder / "zensical.toml").write_text(tomlkit.dumps({"project": project}))


def navigation(docs: Path) -> list[dict[str, Any]]:
    """The pages by kind, with the titles that the index gives them, and then what is about the project."""
    kinds: list[dict[str, Any]] = [{"Home": "index.md"}]
    for kind, text in re.findall(r"^## (.*)$\n((?:(?!^## ).*\n)*)", (docs / "index.md").read_text(), re.M):
        links = re.findall(r"^- \[(.*?)\]\(([\w-]+\.md)\)", text, re.M)
        kinds.append({kind: [{title: page} for title, page in links]})
    decisions = sorted((docs / "decisions").glob("*.md"))
    kinds[-1]["Explanation"].append({"Decisions": [{title_of(page): f"decisions/{page.name}"} for page in decisions]})
    return [*kinds, {"About": [{title: name} for name, title in ABOUT.items()]}]


def title_of(page: Path) -> str:
    return page.read_text().partition("\n")[0].lstrip("# ")


def flattened(text: str) -> str:
    """Links of a page that stood beside `docs`, and stands among its pages now."""
    return re.sub(r"\]\(docs/", "](", text)


def for_the_site(text: str) -> str:
    """Links to what stands beside `docs`, or is a folder; the file that a block of code is for becomes its title."""
    text = re.sub(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, ABOUT))})", r"](\1", text)
    text = re.sub(r"\]\(decisions\)", "](decisions/0001-record-decisions.md)", text)
    return re.sub(r"^```(\w+) (\S+)$", r'``` { .\1 title="\2" }', text, flags=re.M)


if __name__ == "__main__":
    done = build(Path(sys.argv[1]).resolve())
    print(done.stdout + done.stderr, end="")
    sys.exit(done.returncode)
