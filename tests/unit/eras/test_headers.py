"""The request headers of revision 2026-07-28."""

from __future__ import annotations

import pytest

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.eras import headers

MESSAGE = jsonrpc.decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
GOOD = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}


def check(found: dict[str, str], target: str | None = "add") -> None:
    headers.check(found, MESSAGE, "2026-07-28", target)


def test_a_plain_value_stands_as_it_is() -> None:
    assert headers.encode_value("brave__search") == "brave__search"


@pytest.mark.promise("spec.2026.headers.encoding")
@pytest.mark.parametrize("value", ["é", " a", "a ", "a\tb", "a\r\nX-Evil: 1", "=?base64?YQ==?=", "日本"])
def test_any_other_value_is_written_in_base64_and_reads_back(value: str) -> None:
    written = headers.encode_value(value)
    assert written.startswith("=?base64?")
    assert written.isascii() and written.isprintable()
    assert headers.decode_value(written) == value


@pytest.mark.promise("spec.2026.headers.encoding")
@pytest.mark.parametrize("text", ["=?base64?YQ?=", "=?base64?YR==?=", "=?base64?*?=", "=?base64?/w==?="])
def test_base64_that_is_not_canonical_or_no_text_is_no_value(text: str) -> None:
    assert headers.decode_value(text) is None


def test_a_sentinel_in_capitals_is_a_plain_value() -> None:
    assert headers.decode_value("=?BASE64?YQ==?=") == "=?BASE64?YQ==?="


def test_headers_that_agree_with_the_body_pass() -> None:
    check(GOOD)
    check(GOOD | {"mcp-name": "=?base64?YWRk?="})
    check({name: GOOD[name] for name in ("mcp-protocol-version", "mcp-method")}, target=None)


@pytest.mark.promise("spec.2026.headers.mismatch")
@pytest.mark.parametrize("name", GOOD)
def test_a_header_that_is_missing_or_differs_is_a_mismatch(name: str) -> None:
    for found in ({key: value for key, value in GOOD.items() if key != name}, GOOD | {name: "other"}):
        with pytest.raises(Fault, match=name) as caught:
            check(found)
        assert caught.value.rpc == -32020


@pytest.mark.promise("spec.2026.headers.mismatch")
def test_a_routing_header_that_stands_there_twice_is_found() -> None:
    assert headers.read([(b"host", b"h"), (b"mcp-name", b"a"), (b"mcp-name", b"b")])[1] == "mcp-name"
    assert headers.read([(b"accept", b"a"), (b"accept", b"b"), (b"mcp-name", b"c")])[1] is None


@pytest.mark.promise("spec.2026.headers.upstream")
def test_a_request_of_ours_carries_what_we_would_accept() -> None:
    sent = {
        name.decode().lower(): value.decode()
        for name, value in headers.for_request(mcp.REVISIONS["2026-07-28"], "tools/call", "ä")
    }
    headers.check(sent, MESSAGE, "2026-07-28", "ä")
    assert len(headers.for_request(mcp.REVISIONS["2026-07-28"], "tools/list", None)) == 2


def test_lines_of_one_header_are_one_list_and_those_that_say_the_same_one_element() -> None:
    lines = [(b"baggage", b"a=1"), (b"accept", b"x"), (b"baggage", b"b=2"), (b"baggage", b"a=1"), (b"accept", b"x")]
    assert headers.read(lines) == ({"baggage": "a=1, b=2", "accept": "x"}, None)
