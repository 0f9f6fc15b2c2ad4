"""The section `providers`: what it may say, what it must not, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolgate import config as configs
from toolgate.cli import app, trusting
from toolgate.config import Config, ConfigError, fields

KEY = "sk-ant-Zb7Qd0Lx9Wc4Rk2Tz8Vn1Mh6J"
WHOLE = """
[providers.claude]
type = "anthropic"
model = "big"
key = "${ANTHROPIC}"
headers = { "anthropic-beta" = "files-2025" }

[providers.local]
type = "openai"
url = "http://127.0.0.1:11434/v1/"
model = "small"
uses = ["summaries"]
"""


def read(text: str, **environ: str) -> Config:
    return configs.read(text, file="toolgate.toml", environ=environ, format="toml")


def one(*lines: str) -> str:
    return "\n".join(["[providers.it]", 'type = "openai"', 'model = "m"', *lines])


def test_a_provider_is_read_with_its_defaults_and_its_key() -> None:
    found = read(WHOLE, ANTHROPIC=KEY).providers
    claude, local = found["claude"], found["local"]
    assert (claude.base, claude.host, claude.key) == ("https://api.anthropic.com", "api.anthropic.com", KEY)
    assert claude.uses == ("datasets", "context") and claude.samples == "masked"
    assert local.base == "http://127.0.0.1:11434/v1" and not local.key


def test_the_key_is_a_secret_wherever_it_is_shown() -> None:
    config = read(WHOLE, ANTHROPIC=KEY)
    assert KEY in configs.secrets_of(config)
    assert KEY not in repr(config)
    assert repr(config.providers["claude"]) != repr(read(WHOLE, ANTHROPIC=f"{KEY}2").providers["claude"])
    shown = fields.written(config, masked=True)["providers"]["claude"]
    assert shown == {"type": "anthropic", "model": "big", "key": "***", "headers": {"anthropic-beta": "***"}}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['url = "http://models.example/v1"'], "is plain http to another machine"),
        (['url = "http://10.0.0.7/v1"'], "is plain http to another machine"),
        (['url = "ftp://models.example"'], "must be a URL"),
        (['url = "https://me:secret@models.example"'], "must be a URL"),
        (['uses = ["execution"]'], "needs an API that runs code"),
        (['uses = ["everything"]'], "must be"),
        (['headers = { "Content-Length" = "5" }'], "is set by toolgate itself"),
        (['key = "a\\nb"'], "must be printable ASCII"),
        (["max_tokens = 1"], "must be"),
        (["surprise = 1"], "unknown key"),
        (["[providers.other]", 'type = "openai"', 'model = "n"'], '"datasets" has two providers'),
        (["[providers.Other]", 'type = "openai"', 'model = "n"', "uses = []"], "is not a valid name"),
    ],
)
def test_what_cannot_be_meant_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(one(*lines))
    assert said in str(caught.value) and "secret" not in str(caught.value)


def test_plain_http_to_another_machine_has_to_be_allowed() -> None:
    assert read(one('url = "http://10.0.0.7/v1"', "allow_http = true")).providers["it"].base == "http://10.0.0.7/v1"
    for here in ("http://localhost:1/v1", "http://127.0.0.2/v1", "http://[::1]:8/v1"):
        assert read(one(f'url = "{here}"')).providers["it"].base == here


def test_a_key_that_is_missing_is_the_fault_of_its_provider_alone() -> None:
    found = read(WHOLE).providers
    assert "ANTHROPIC" in found["claude"].problem and not found["claude"].key
    assert not found["local"].problem


def test_who_trusts_a_file_is_shown_who_is_asked_and_what_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(one('url = "http://models.example/v1"', "allow_http = true", 'samples = "plain"'))
    lines = trusting.described(path)[1]
    assert "ask m of it at http://models.example/v1 for datasets, context" in lines
    assert "  and send it plain values of three rows of a dataset" in lines
    assert "  unencrypted, if that is its URL" in lines


def test_doctor_shows_providers_without_asking_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    path = tmp_path / "toolgate.toml"
    path.write_text(WHOLE + "\n[mcpServers.off]\ncommand = 'true'\nenabled = false\n")
    ended = CliRunner().invoke(app, ["doctor", "--config", str(path)])
    assert "✓ provider local: small at 127.0.0.1:11434, without a key, for summaries\n" in ended.stdout
    assert "✗ provider claude: " in ended.stdout and "ANTHROPIC" in ended.stdout
    asked = CliRunner().invoke(app, ["doctor", "--config", str(path), "--providers"])
    assert "✗ provider local: " in asked.stdout and asked.exit_code == 1
