"""A file that somebody has sent is looked at: what it calls its servers costs nobody time or memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inmemory import of_file

from toolgate import config as configs
from toolgate.auth.access import THE_OPERATOR
from toolgate.config import ConfigError
from toolgate.config.reading import LONGEST_NAME

LONG = "a b-_" * 160_000
FILES: dict[str, tuple[str, Any]] = {
    "one": ("x.json", {"mcpServers": {LONG: {"command": "sh"}}}),
    "eight": ("x.json", {"mcpServers": {f"{LONG[:100_000]}{number}": {"command": "sh"} for number in range(8)}}),
    "letters": ("x.json", {"mcpServers": {"a" * 900_000: {"command": "sh", "no": 1, "such": 2, "keys": 3}}}),
    "just too long": ("x.json", {"servers": {"a" * (LONGEST_NAME + 1): {"command": "sh"}}}),
    "children": ("x.json", {"children": [{"name": LONG, "command": "sh"}]}),
    "a package": (
        "server.json",
        {
            "name": "io.x/" + "a" * 300_000,
            "description": "d",
            "version": "1",
            "packages": [
                {"registryType": "npm", "identifier": "x", "version": "1.0.0", "transport": {"type": "stdio"}}
            ],
        },
    ),
    "a bundle": (
        "manifest.json",
        {
            "manifest_version": "0.3",
            "name": LONG,
            "version": "1",
            "server": {"type": "node", "entry_point": "i.js", "mcp_config": {"command": "node", "args": []}},
        },
    ),
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_with_a_server_of_an_endless_name_is_refused_in_a_few_words(file: str) -> None:
    called, tree = FILES[file]
    with pytest.raises(ConfigError) as refused:
        configs.foreign(json.dumps(tree), file=called, format="json", dialect="")
    assert "characters" in str(refused.value) and len(str(refused.value)) < 4000


async def test_so_it_is_when_it_is_pasted_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "toolgate.json"
    path.write_text('{"mcpServers": {}}')
    async with of_file(path, {}) as app:
        body = msgspec.json.encode({"text": json.dumps(FILES["one"][1]), "name": "x.json"})
        status, said = await app.http.web.admin.ask("POST", "/admin/import", body, THE_OPERATOR)
        assert status == 400 and len(said) < 4000


def test_a_name_of_two_hundred_characters_is_one() -> None:
    text = json.dumps({"mcpServers": {"a" * LONGEST_NAME: {"command": "sh"}}})
    (server,) = configs.foreign(text, file="x.json", format="json", dialect="").servers
    assert server.name == "a" * LONGEST_NAME
