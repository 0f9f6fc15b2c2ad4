"""Whatever was kept can be read whole, in ranges of any kind and width."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtualtime import FakeClock, play

from toolgate.core.fault import Fault
from toolgate.core.model import Client, Principal
from toolgate.policy.overflow import LEAST, OverflowStore

ANN = Client(Principal("ann"))
texts = st.lists(
    st.sampled_from(["a", "ä", "€", "😀", "\n", "\r\n", "x" * 70 + "\n"]) | st.text(max_size=5), max_size=40
)


@given(texts.map("".join), st.sampled_from(["lines", "bytes", "chars"]), st.integers(1, 90))
def test_ranges_that_are_read_in_turn_give_a_text_back(whole: str, unit: str, width: int) -> None:
    async def conversation() -> None:
        kept = OverflowStore(FakeClock(), LEAST)
        uri = kept.keep(ANN, whole, "text/plain")
        read, place = "", unit == "lines"
        while True:
            try:
                found = kept.read(ANN, f"{uri}?{unit}={int(place)}-{place + width - 1}")
            except Fault as fault:
                proposed = re.search(r"\?(bytes=(\d+)-\d+)", fault.message)
                assert "too long" in fault.message and proposed and int(proposed[2]) == len(read.encode())
                line = whole.encode()[int(proposed[2]) :].partition(b"\n")[0] + b"\n"
                read, place = read + line.decode(), place + 1
                continue
            (content,) = found["contents"]
            told = found["_meta"]["toolgate/range"]
            assert len(content["text"].encode()) <= LEAST + 3
            read, place = read + content["text"], told["to"] + 1
            if "next" not in told:
                break
            assert f"?{unit}={place}-" in told["next"]
        assert read.removesuffix("\n") == whole.removesuffix("\n")
        if len(whole.encode()) <= LEAST:
            assert kept.read(ANN, uri)["contents"][0]["text"] == whole
        kept.close()

    play(conversation())


@given(st.binary(max_size=300), st.integers(1, 90))
def test_ranges_that_are_read_in_turn_give_bytes_back(whole: bytes, width: int) -> None:
    async def conversation() -> None:
        kept = OverflowStore(FakeClock(), LEAST)
        uri = kept.keep(ANN, whole, "image/png")
        asked, read = f"{uri}?bytes=0-{width - 1}", b""
        while asked:
            found = kept.read(ANN, asked)
            read += base64.b64decode(found["contents"][0]["blob"])
            asked = found["_meta"]["toolgate/range"].get("next", "")
        assert read == whole
        kept.close()

    play(conversation())


@given(st.text())
def test_nothing_that_is_asked_breaks_it(asked: str) -> None:
    async def conversation() -> None:
        kept = OverflowStore(FakeClock())
        uri = kept.keep(ANN, "a\nb\n", "text/plain")
        for address in (asked, uri + asked, f"{uri}?{asked}", f"mcp://results/{asked}"):
            try:
                kept.read(ANN, address)
            except Fault as fault:
                assert fault.code in ("INVALID_ARGS", "RESOURCE_NOT_FOUND")
        kept.close()

    play(conversation())


def test_there_is_a_least_that_can_be_read_at_once() -> None:
    assert OverflowStore(FakeClock(), 1).at_once == LEAST
    with pytest.raises(Fault):
        OverflowStore(FakeClock(), 1).read(ANN, "mcp://results/x")
