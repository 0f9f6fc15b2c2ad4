"""What a change costs is counted where it is really made: see `trial`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from architecture import maps, rules, trial


@pytest.mark.parametrize("name", trial.NAMES)
def test_a_change_does_what_it_is_for_and_breaks_no_rule(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = trial.changed_copy(name, tmp_path)
    assert trial.why_not(name, source) == ""
    monkeypatch.setattr(rules, "SOURCE", source / "toolgate")
    assert rules.broken() == []
    for package in {(tmp_path / each.path).parent for each in trial.change(name) if each.path.endswith(".py")}:
        assert sorted(maps.named(package)) == sorted(maps.inside(package))
    written = [str(tmp_path / each.path) for each in trial.change(name) if each.path.startswith("src/")]
    config = str(trial.ROOT / "pyproject.toml")
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", config, *written], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", trial.NAMES)
def test_without_the_change_the_conversation_fails(name: str) -> None:
    """It looks at what the change is for."""
    assert trial.why_not(name, trial.ROOT / "src")


def test_a_patch_is_read_as_git_writes_it() -> None:
    patch = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,2 +1,3 @@
 one
-two
+2

@@ -9 +10 @@ def f
-three
+3
diff --git a/src/b.py b/src/b.py
new file mode 100644
--- /dev/null
+++ b/src/b.py
@@ -0,0 +1 @@
+four
"""
    first, second = trial._files(patch)
    assert first == trial.FileChange("src/a.py", False, (("one\ntwo\n\n", "one\n2\n\n"), ("three\n", "3\n")), 2, 2)
    assert second == trial.FileChange("src/b.py", True, (("", "four\n"),), 1, 0)
