"""A configuration file's text without its secrets, and the same again."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomlkit
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolgate.config import masked_text, spans
from toolgate.config.formats import Format, Malformed

SECRET = "ghp_abcdefghijklmnopqrstuvwx0123"
TOML = f"""# a key was {SECRET} once
surface = "meta"
[mcpServers."a b"]
command = "uvx"  # what starts it
args = ["x", "--token", "hunter22", "-p", 'it\\s']
env = {{ TOKEN = 'a\\b', REF = "${{secret:x}}", "quoted" = \"\"\"
several "lines\"\"\" }}
headers = {{ Authorization = "Bearer ${{secret:y}}", Other = "Bearer abc" }}
auth = "oauth"
url = "https://user:word@host/x?k=v"
"""
YAML = f"""# a key was {SECRET} once
mcpServers:
  a:
    command: x
    env:
      PLAIN: some words # behind
      BLOCK: |
        of several
        lines
      QUOTED: 'it''s'
    args: [--token, abc]
clients:
- id: ann
  key: averyverysecretkeyofann1234
"""
JSON = """{ // a key was THEIRS once
  "mcpServers": {"a": {"command": "x", "env": {"TOKEN": "s\\u0065cret"}, "args": ["--api-key=zzz", "x"]}},
}""".replace("THEIRS", SECRET)


def mask(found: masked_text.Masked, number: int) -> str:
    """As it stands in a text, where that has no quotes."""
    return next(each.strip('"') for each in found.pieces if f"-{number}*" in each)


@pytest.mark.parametrize(("text", "format"), [(TOML, "toml"), (YAML, "yaml"), (JSON, "json")])
def test_no_secret_stands_in_what_is_shown_and_each_comes_back_as_it_was(text: str, format: Format) -> None:
    found = masked_text.masked(text, format)
    for secret in (SECRET, "hunter22", "a\\b", "several", "Bearer abc", "user:word", "some words", "of several"):
        assert secret not in found.text
    for secret in ("averyverysecret", "zzz", "s\\u0065cret", "it''s"):
        assert secret not in found.text
    assert f"a key was {mask(found, 1)} once" in found.text
    assert masked_text.unmasked(found.text, found) == text


def test_what_only_refers_to_a_secret_is_shown() -> None:
    shown = masked_text.masked(TOML, "toml").text
    assert 'REF = "${secret:x}"' in shown and "Bearer ${secret:y}" in shown and 'auth = "oauth"' in shown
    assert 'command = "uvx"  # what starts it' in shown


def test_a_mask_may_stand_in_the_file_already() -> None:
    text = '{"mcpServers": {"a": {"command": "***0a1b2c3d-1***", "env": {"A": "secret words"}}}}'
    found = masked_text.masked(text, "json")
    assert found.mark == "****" and masked_text.unmasked(found.text, found) == text


@pytest.mark.parametrize("pasted", ["***1***", "***2***", "***-1***", "***00000000***"])
def test_what_looks_like_a_placeholder_is_no_mask(pasted: str) -> None:
    found = masked_text.masked(TOML, "toml")
    for written in (f'"{pasted}"', f"'{pasted}'", f"# {pasted}"):
        assert masked_text.unmasked(f"{found.text}x = {written}\n", found) == f"{TOML}x = {written}\n"


def test_the_masks_of_another_text_are_none_of_this_one() -> None:
    found, other = masked_text.masked(TOML, "toml"), masked_text.masked(TOML + "# more\n", "toml")
    assert found.text == masked_text.masked(TOML, "toml").text and not found.pieces.keys() & other.pieces.keys()
    with pytest.raises(Malformed, match="open the file again"):
        masked_text.unmasked(other.text, found)


def test_the_masks_of_another_process_are_refused_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    before = masked_text.masked(TOML, "toml")
    monkeypatch.setattr(masked_text, "_KEY", b"another")
    with pytest.raises(Malformed, match="open the file again"):
        masked_text.unmasked(before.text, masked_text.masked(TOML, "toml"))


@pytest.mark.parametrize(
    "change",
    [("-1***", "-7***"), ('"{2}"', "'{2}'"), ('"{2}"', "{2}"), ("-1***", "-0***"), ("{1}", "***00000000-1***")],
)
def test_a_mask_that_was_changed_stands_for_nothing(change: tuple[str, str]) -> None:
    found = masked_text.masked(TOML, "toml")
    old, new = (each.replace("{1}", mask(found, 1)).replace("{2}", mask(found, 2)) for each in change)
    assert old in found.text
    with pytest.raises(Malformed, match="stands for nothing"):
        masked_text.unmasked(found.text.replace(old, new), found)


def test_what_cannot_be_masked_is_not_shown() -> None:
    text = '[mcpServers.averyverysecretword]\ncommand = "x"\nenv = { A = "averyverysecretword" }'
    with pytest.raises(Malformed, match="edit it by hand"):
        masked_text.masked(text, "toml")


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    [SECRET, "***1***", "***00000000-1***", '"', "'", "\\", "#", "${secret:x}", "a\nb", '"""', "x: y", "- z", "env"]
)
TREES = st.fixed_dictionaries(
    {"mcpServers": st.dictionaries(WORDS.filter(bool), st.fixed_dictionaries(
        {"command": WORDS, "args": st.lists(WORDS, max_size=3), "env": st.dictionaries(WORDS, WORDS, max_size=3)}
    ), max_size=3)}
)  # fmt: skip


def written(tree: Any, format: Format) -> str:
    if format == "json":
        return json.dumps(tree, indent=1)
    return tomlkit.dumps(tree) if format == "toml" else yaml.safe_dump(tree, allow_unicode=True)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES, st.sampled_from(["json", "toml", "yaml"]))
def test_any_file_comes_back_or_is_not_shown(tree: Any, format: Format) -> None:
    text = written(tree, format)
    try:
        if spans.tree(text, format) != tree:
            return
        found = masked_text.masked(text, format)
    except Malformed:
        return
    assert masked_text.unmasked(found.text, found) == text
    shown = spans.tree(found.text, format)
    for server in shown["mcpServers"].values():
        assert all(not each or "***" in each or "${" in each for each in server["env"].values())
