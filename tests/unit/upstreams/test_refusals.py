"""What is said of a server's HTTP errors."""

from __future__ import annotations

import pytest

from toolgate.upstreams.links.refusals import moved_hint


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("/new/mcp", "it has moved: set its url to http://docs.example/new/mcp"),
        ("https://docs.example/mcp", "it has moved: set its url to https://docs.example/mcp"),
        ("https://evil.example/mcp", "it says that it has moved to 'https://evil.example/mcp'"),
        ("file:///etc/passwd", "it says that it has moved to 'file:///etc/passwd'"),
        ("http://[", "it says that it has moved to 'http://['"),
        ("", ""),
    ],
)
def test_only_a_place_on_the_same_host_is_advised(location: str, hint: str) -> None:
    assert moved_hint(307, "http://docs.example/mcp", location, "there") == hint
