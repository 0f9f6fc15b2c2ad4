"""What was too large to be shown: kept within bounds, for its own principal, and read in ranges."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from virtualtime import FakeClock

from toolgate.core.fault import Fault
from toolgate.core.model import Client, Principal
from toolgate.policy.overflow import Bounds, OverflowStore

ANN, BOB = Client(Principal("ann")), Client(Principal("bob"))
FIVE = "one\ntwö\nthree\nfour\nfive\n"


def overflow(at_once: int = 64 * 1024, **bounds: Any) -> OverflowStore:
    return OverflowStore(FakeClock(), at_once, Bounds(**bounds))


def text(kept: OverflowStore, uri: str, client: Client = ANN) -> str:
    (content,) = kept.read(client, uri)["contents"]
    assert content["uri"] == uri
    return content["text"]


def told(kept: OverflowStore, uri: str) -> Any:
    return kept.read(ANN, uri)["_meta"]["toolgate/range"]


def fault(kept: OverflowStore, uri: str, client: Client = ANN) -> Fault:
    with pytest.raises(Fault) as raised:
        kept.read(client, uri)
    return raised.value


async def test_what_fits_is_read_whole() -> None:
    kept = overflow()
    uri = kept.keep(ANN, FIVE, "text/x-log")
    assert uri.startswith("mcp://results/")
    assert kept.read(ANN, uri) == {"contents": [{"uri": uri, "mimeType": "text/x-log", "text": FIVE}]}
    assert kept.knows(ANN, uri) and kept.knows(ANN, f"{uri}?lines=1-2")
    kept.close()


@pytest.mark.parametrize(
    ("asked", "shown", "start", "end"),
    [
        ("lines=1-2", "one\ntwö\n", 1, 2),
        ("lines=2", "twö\n", 2, 2),
        ("lines=4-", "four\nfive\n", 4, 5),
        ("lines=4-99", "four\nfive\n", 4, 5),
        ("lines=0-1", "one\n", 1, 1),
        ("lines=7-9", "", 6, 5),
        ("bytes=0-3", "one\n", 0, 3),
        ("bytes=0-6", "one\ntwö", 0, 6),
        ("bytes=7-8", "\n", 7, 8),
        ("bytes=20-99", "five\n", 20, 24),
        ("bytes=99-", "", 25, 24),
        ("chars=4-6", "twö", 4, 6),
        ("chars=19-", "five\n", 19, 23),
    ],
)
async def test_ranges_are_clipped_to_what_there_is(asked: str, shown: str, start: int, end: int) -> None:
    kept = overflow()
    uri = f"{kept.keep(ANN, FIVE, 'text/plain')}?{asked}"
    assert text(kept, uri) == shown
    assert (told(kept, uri)["from"], told(kept, uri)["to"]) == (start, end)
    kept.close()


async def test_bytes_are_read_by_bytes_only() -> None:
    kept = overflow()
    uri = kept.keep(ANN, bytes(range(256)), "image/png")
    assert kept.read(ANN, f"{uri}?bytes=250-")["contents"] == [
        {"uri": f"{uri}?bytes=250-", "mimeType": "image/png", "blob": base64.b64encode(bytes(range(250, 256))).decode()}
    ]
    assert f"{uri}?bytes=0-255" in fault(kept, f"{uri}?lines=1-2").message
    kept.close()


async def test_what_is_too_large_at_once_says_which_ranges_to_ask_for() -> None:
    kept = overflow(at_once=100)
    uri = kept.keep(ANN, "line\n" * 1000, "text/plain")
    found = fault(kept, uri)
    assert found.code == "INVALID_ARGS"
    assert "5,000 bytes, 1,000 lines" in found.message
    assert f"{uri}?lines=1-200 or {uri}?bytes=0-99" in found.message
    kept.close()


async def test_a_range_that_is_too_large_gives_what_fits_and_says_what_is_next() -> None:
    kept = overflow(at_once=100)
    uri = kept.keep(ANN, "line\n" * 1000, "text/plain")
    assert text(kept, f"{uri}?lines=1-200") == "line\n" * 20
    assert told(kept, f"{uri}?lines=1-200") == {
        "unit": "lines",
        "from": 1,
        "to": 20,
        "total": 1000,
        "next": f"{uri}?lines=21-40",
    }
    assert "next" not in told(kept, f"{uri}?lines=990-2000")
    kept.close()


async def test_a_line_that_is_too_long_is_to_be_read_by_its_bytes() -> None:
    kept = overflow(at_once=100)
    uri = kept.keep(ANN, "short\n" + "x" * 500, "text/plain")
    assert text(kept, f"{uri}?lines=1-2") == "short\n"
    found = fault(kept, f"{uri}?lines=2-2")
    assert f"line 2 is too long: read it as bytes, such as {uri}?bytes=6-105" in found.message
    assert text(kept, f"{uri}?bytes=6-105") == "x" * 100
    kept.close()


@pytest.mark.parametrize(
    "wrong", ["lines=a-b", "lines=3-1", "rows=1-2", "lines=1-2&bytes=1-2", "lines=-3", "x", "bytes="]
)
async def test_a_range_out_of_shape_is_refused_with_an_example(wrong: str) -> None:
    kept = overflow()
    found = fault(kept, f"{kept.keep(ANN, FIVE, 'text/plain')}?{wrong}")
    assert found.code == "INVALID_ARGS"
    assert "range" in found.message
    kept.close()


async def test_what_is_anothers_does_not_exist() -> None:
    kept = overflow()
    uri = kept.keep(ANN, FIVE, "text/plain")
    theirs, nobodys = fault(kept, uri, BOB), fault(kept, "mcp://results/nothing", BOB)
    assert (theirs.code, theirs.hint) == (nobodys.code, nobodys.hint) == ("RESOURCE_NOT_FOUND", nobodys.hint)
    assert not kept.knows(BOB, uri)
    assert not kept.knows(Client(ANN.principal, path="/mcp/servers/there"), uri)
    assert fault(kept, f"{uri}?nonsense", BOB).code == "RESOURCE_NOT_FOUND"
    kept.close()


async def test_addresses_do_not_repeat_and_are_long() -> None:
    kept = overflow()
    found = {kept.keep(ANN, "same", "text/plain") for _ in range(100)}
    assert len(found) == 100
    assert all(len(uri.removeprefix("mcp://results/")) >= 22 for uri in found)
    kept.close()


async def test_what_is_least_recently_read_goes_first() -> None:
    kept = overflow(count_of_one=3)
    first, second, third = [kept.keep(ANN, str(each), "text/plain") for each in range(3)]
    kept.read(ANN, first)
    kept.keep(ANN, "fourth", "text/plain")
    assert [kept.knows(ANN, uri) for uri in (first, second, third)] == [True, False, True]
    kept.close()


async def test_what_one_principal_keeps_takes_nothing_from_another() -> None:
    kept = overflow(bytes_of_one=10, bytes=100)
    bobs = kept.keep(BOB, "12345", "text/plain")
    anns = [kept.keep(ANN, "12345", "text/plain") for _ in range(9)]
    assert [kept.knows(ANN, uri) for uri in anns] == [False] * 7 + [True] * 2
    assert kept.knows(BOB, bobs)
    kept.close()


async def test_all_together_is_bounded_too() -> None:
    kept = overflow(bytes=20, bytes_of_one=20, count=3)
    uris = [kept.keep(Client(Principal(str(who))), "12345", "text/plain") for who in range(9)]
    assert len(kept) == 3
    assert kept.knows(Client(Principal("8")), uris[8])
    kept.keep(ANN, "x" * 19, "text/plain")
    assert len(kept) == 1
    kept.close()


async def test_beyond_the_room_of_all_whoever_has_most_loses_what_it_read_least_recently() -> None:
    kept = overflow(bytes=100, bytes_of_one=80)
    mallorys = [kept.keep(Client(Principal("mallory")), "x" * 20, "text/plain") for _ in range(4)]
    bobs = [kept.keep(BOB, "y" * 10, "text/plain") for _ in range(4)]
    assert [kept.knows(BOB, uri) for uri in bobs] == [True] * 4
    assert [kept.knows(Client(Principal("mallory")), uri) for uri in mallorys] == [False, True, True, True]
    kept.close()


async def test_addresses_of_an_open_gateway_have_a_share_each() -> None:
    kept = overflow(count_of_one=2)
    here, there = Client(Principal("local", "192.0.2.1")), Client(Principal("local", "192.0.2.2"))
    first = kept.keep(here, "12345", "text/plain")
    for _ in range(5):
        kept.keep(there, "12345", "text/plain")
    assert kept.knows(here, first) and len(kept) == 3
    kept.close()


async def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept = overflow(bytes_of_one=10)
    small = kept.keep(ANN, "12345", "text/plain")
    assert kept.keep(ANN, "x" * 11, "text/plain") == ""
    assert kept.knows(ANN, small)
    kept.close()


async def test_its_time_ends_and_then_it_is_gone_from_memory() -> None:
    kept = overflow(ttl=100.0)
    clock = FakeClock()
    first = kept.keep(ANN, FIVE, "text/plain")
    await clock.advance(60)
    second = kept.keep(ANN, FIVE, "text/plain")
    await clock.advance(50)
    assert fault(kept, first).code == "RESOURCE_NOT_FOUND"
    assert kept.knows(ANN, second)
    assert len(kept) == 1
    await clock.advance(60)
    assert len(kept) == 0
