"""`toolgate completion` and `man`: made from the commands, and understood by the programs that read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolgate.cli import COMMANDS, app, completion, man, tree

TREE = tree.commands()


def script(shell: str) -> str:
    return "\n".join(completion.SHELLS[shell](TREE))


def bash(*words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f'"{word}"' for word in ("toolgate", *words))
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _toolgate; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script('bash')}\n{ask}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_every_command() -> None:
    assert bash("") == [*COMMANDS, "--help", "--version"]
    assert bash("ser") == ["serve", "servers"]


def test_bash_completes_what_stands_below_a_command_and_its_options() -> None:
    assert bash("keys", "") == ["create", "list", "revoke", "rotate", "hash", "--help"]
    assert bash("keys", "create", "--e") == ["--expires"]
    assert bash("call", "notes", "list_notes", "--j") == ["--json"]


def test_the_value_of_an_option_is_no_command() -> None:
    assert bash("call", "-c", "x.toml", "--j") == ["--json"]
    assert bash("keys", "--config", "x.toml", "cr") == ["create"]


def test_what_is_known_of_a_value_is_offered() -> None:
    assert bash("completion", "") == ["bash", "zsh", "fish", "--help"]
    assert bash("install", "cod") == ["codex"]
    assert "meta" in bash("serve", "--surface", "")
    assert bash("serve", "--workers", "") == []
    assert bash("audit", "verify", "") == []  # the shell offers files
    assert "--head" in bash("audit", "verify", "--")


@pytest.mark.parametrize("shell", list(completion.SHELLS))
def test_each_shell_understands_its_script(shell: str, tmp_path: Path) -> None:
    if not (program := shutil.which(shell)):
        pytest.skip(f"{shell} is not here")
    file = tmp_path / "script"
    file.write_text(script(shell))
    subprocess.run([program, "-n", str(file)], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_are_offered_every_command_and_option(shell: str) -> None:
    made = script(shell)
    for command in tree.runnable(TREE):
        assert command.name.split()[-1] in made
        for option in command.options:
            assert all(name.lstrip("-") in made for name in option.names)


def test_an_unknown_shell_is_told_which_there_are() -> None:
    done = CliRunner().invoke(app, ["completion", "tcsh"])
    assert done.exit_code == 2 and "bash, zsh, fish" in done.output


def test_the_manual_has_every_command_and_groff_finds_nothing_wrong() -> None:
    made = "\n".join(man.page(TREE))
    for command in tree.runnable(TREE):
        assert f".SS {man._words(command.usage)}" in made  # pyright: ignore[reportPrivateUsage]
    if groff := shutil.which("groff"):
        check = [groff, "-man", "-Tutf8", "-ww", "-z"]
        done = subprocess.run(check, input=made, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_no_line_of_a_help_is_taken_for_a_request() -> None:
    assert man._text(".TH evil\n'so /etc/passwd") == "\\&.TH evil\n\\&'so /etc/passwd"  # pyright: ignore[reportPrivateUsage]
