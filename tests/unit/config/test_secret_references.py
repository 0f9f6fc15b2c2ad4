"""What looks like a secret gives way to a reference; all else stays."""

from __future__ import annotations

from typing import Any

import pytest

from toolgate.config.secret_references import Extraction

KEY = "sk-abcdefghijklmnopqrstuvwxyz012345"


def extracted(server: dict[str, Any], **known: str) -> tuple[dict[str, Any], dict[str, str]]:
    extraction = Extraction(known)
    return extraction.of("My Server", server), extraction.found


@pytest.mark.parametrize(("server", "expected", "found"), [
    ({"env": {"API_KEY": "abc"}}, {"env": {"API_KEY": "${secret:my-server-api-key}"}}, {"my-server-api-key": "abc"}),
    ({"env": {"X": KEY}}, {"env": {"X": "${secret:my-server-x}"}}, {"my-server-x": KEY}),
    (
        {"env": {"DATABASE_URL": "postgres://u:p@h/d"}}, {"env": {"DATABASE_URL": "${secret:my-server-database-url}"}},
        {"my-server-database-url": "postgres://u:p@h/d"},
    ),
    (
        {"headers": {"Authorization": "Bearer abc"}},
        {"headers": {"Authorization": "Bearer ${secret:my-server-token}"}},
        {"my-server-token": "abc"},
    ),
    ({"args": ["--api-key", "abc", "x"]}, {"args": ["--api-key", "${secret:my-server-api-key}", "x"]},
     {"my-server-api-key": "abc"}),
    ({"args": ["--token=abc"]}, {"args": ["--token=${secret:my-server-token}"]}, {"my-server-token": "abc"}),
    (
        {"url": "https://h/mcp?key=abc&region=eu"}, {"url": "https://h/mcp?key=${secret:my-server-key}&region=eu"},
        {"my-server-key": "abc"},
    ),
    ({"url": "https://me:pw@h/mcp"}, {"url": "https://${secret:my-server-user}@h/mcp"}, {"my-server-user": "me:pw"}),
    ({"auth": {"client_secret": "abc"}}, {"auth": {"client_secret": "${secret:my-server-client-secret}"}},
     {"my-server-client-secret": "abc"}),
])  # fmt: skip
def test_secrets_are_taken_out(server: dict[str, Any], expected: dict[str, Any], found: dict[str, str]) -> None:
    assert extracted(server) == (expected, found)


@pytest.mark.parametrize("server", [
    {"command": "npx", "args": ["-y", "@scope/server-name@1.2.3", "--verbose", "/home/me/a-folder"]},
    {"env": {"HOME": "/home/me", "TOKEN_FILE": "/run/token", "AUTH": "true", "LEVEL": "debug", "KEYS": "3"}},
    {"env": {"TOKEN": "${TOKEN}"}, "headers": {"Authorization": "Bearer ${secret:mine}"}, "args": ["--key", "${KEY}"]},
    {"url": "https://h.example/mcp?region=eu", "headers": {"X-Region": "eu"}},
])  # fmt: skip
def test_what_is_none_stays(server: dict[str, Any]) -> None:
    assert extracted(server) == (server, {})


def test_a_name_stands_for_one_value() -> None:
    extraction = Extraction({"a-token": "other"})
    assert extraction.of("a", {"env": {"TOKEN": "one"}}) == {"env": {"TOKEN": "${secret:a-token-2}"}}
    assert extraction.of("a", {"env": {"TOKEN": "one"}}) == {"env": {"TOKEN": "${secret:a-token-2}"}}
    assert extraction.of("a", {"env": {"TOKEN": "two"}}) == {"env": {"TOKEN": "${secret:a-token-3}"}}
    assert extraction.of("a", {"env": {"TOKEN": "other"}}) == {"env": {"TOKEN": "${secret:a-token}"}}


def test_a_variable_that_stands_for_a_secret_is_that_secret_again() -> None:
    server = {"env": {"A": "${TOOLGATE_SECRET_MY_KEY}"}, "args": ["x=${TOOLGATE_SECRET_A:-}"]}
    assert extracted(server) == ({"env": {"A": "${secret:my-key}"}, "args": ["x=${secret:a}"]}, {})


def test_very_many_secrets_are_each_looked_at_once() -> None:
    tried: list[str] = []

    def is_taken(name: str) -> bool:
        tried.append(name)
        return False

    args = [f"sk-aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU{number:05}" for number in range(3000)]
    extraction = Extraction({}, is_taken)
    table = extraction.of("a", {"args": [*args, *args]})
    assert len(tried) == len(set(tried)) == len(extraction.found) == 999
    assert table["args"][:2] == ["${secret:a-argument}", "${secret:a-argument-2}"] == table["args"][3000:3002]


def test_among_very_many_each_is_still_a_secret() -> None:
    args = [f"--token-{number}=word{number}" for number in range(300)]
    table, found = extracted({"args": args})
    assert len(found) == 300 and not [each for each in table["args"] if "word" in each]
