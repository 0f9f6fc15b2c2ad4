"""What items of lists say, however they are written."""

from __future__ import annotations

import pytest
from msgspec import Raw

from toolgate.core.items import Item, read


def test_an_item_says_what_it_says_and_its_schemas_are_its_own_bytes() -> None:
    raw = Raw(b'{"name":"a","title":"A","description":"does","inputSchema":{ "type" : "object" },"more":[1]}')
    assert read(raw) == Item("a", "", "A", "does", Raw(b'{ "type" : "object" }'))


@pytest.mark.parametrize("wrong", [b"null", b"5", b'["x"]', b"{}", b"true"])
def test_a_member_that_is_no_text_says_nothing_and_spoils_nothing(wrong: bytes) -> None:
    raw = Raw(b'{"name":"a","description":%b,"title":%b,"uri":"a:b","inputSchema":{"x":1}}' % (wrong, wrong))
    assert read(raw) == Item("a", "a:b", inputSchema=Raw(b'{"x":1}'))


@pytest.mark.parametrize("raw", [b"[]", b"5", b"{", b'"a"'])
def test_what_is_no_object_says_nothing(raw: bytes) -> None:
    assert read(Raw(raw)) == Item()
