"""What a server says of its own failure, in an error or on stderr, holds nobody up and fills no log, however long it
is and whatever stands in it."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest
from inmemory import Refusal, Scripted, Visitor, gateway, tools
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.redaction import Redactor
from toolgate.upstreams import diagnosis
from toolgate.upstreams.mcp.upstream_session import LONGEST_LOGGED

EMPTY = vars(diagnosis)["_EMPTY"].pattern
sre: Any = cast("Any", re)._constants
parsed: Any = cast("Any", re)._parser.parse
MOST_STEPS = 1000  # that a pattern may repeat anything, repetitions within repetitions counted


def repeated(tree: Any, around: int = 1) -> int:
    """The most that a part of a pattern is repeated; -1 where that has no bound."""
    most = around
    for what, argument in tree:
        parts: list[Any] = []
        if what in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, up_to, inner = argument
            found = -1 if up_to == sre.MAXREPEAT else repeated(inner, around * max(up_to, 1))
            if found < 0:
                return -1
            most = max(most, found)
        elif what is sre.BRANCH:
            parts = argument[1]
        elif what in (sre.SUBPATTERN, sre.ASSERT, sre.ASSERT_NOT):
            parts = [argument[-1]]
        for part in parts:
            found = repeated(part, around)
            if found < 0:
                return -1
            most = max(most, found)
    return most


@pytest.mark.parametrize("pattern", [*(sign for sign, _ in diagnosis.CAUSES), EMPTY])
def test_no_pattern_for_causes_repeats_anything_without_bound(pattern: str) -> None:
    assert 0 < repeated(parsed(pattern)) <= MOST_STEPS


def test_the_check_itself_finds_what_has_no_bound() -> None:
    for pattern in ("a*", "(?:a|b+c)", "(?: the| an)*", "x.*y", r"(?=a+)b", "(?:a{0,50}){0,50}"):
        assert not 0 < repeated(parsed(pattern)) <= MOST_STEPS


class Spy:
    """A pattern that fits nothing, and what was searched with it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def search(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(
    "said",
    [
        " required" * 8000,
        "newuidmap: " * 8000,
        "required\n" * 8000,
        "\n" * 65_536,
        "A_" * 40_000,
        ("x" * 5000 + "\n") * 12,
    ],
)
def test_only_the_last_few_lines_and_the_beginning_of_each_are_searched(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy()
    monkeypatch.setattr(diagnosis, "_COMPILED", ((spy, ""),))
    diagnosis.fix_for(said, said)
    assert all(len(line) <= diagnosis.LONGEST_LINE for line in spy.lines)
    assert 0 < sum(len(line) + 1 for line in spy.lines) <= 2 * diagnosis.MOST_SEARCHED


def test_a_cause_is_found_behind_long_lines_and_much_else() -> None:
    before = "x" * 60_000 + "\n" + "harmless\n" * 300
    assert "KEY_OF_MINE" in diagnosis.fix_for("", f"{before}KeyError: 'KEY_OF_MINE'\n    at x\n")


def read(message: str, data: str = "") -> jsonrpc.RpcError:
    return jsonrpc.read_error(Raw(f'{{"code":-1,"message":{json.dumps(message)}{data}}}'.encode()))


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u20ac", "\U0001f600", "\ud83d", "\\", '"', "\n"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_message_is_cut_between_two_characters_and_says_so(letter: str, shift: int) -> None:
    message = "x" * shift + letter * 5000 * (2 if letter.isascii() else 1)
    shown = read(message).message
    beginning, _, rest = shown.partition(" [cut by toolgate: ")
    assert message.startswith(beginning) and "bytes]" in rest
    assert 8100 < len(beginning.encode(errors="surrogatepass")) <= jsonrpc.LONGEST_ERROR
    assert jsonrpc.value(jsonrpc.encode(shown)) == shown


def test_a_message_as_servers_have_it_is_as_it_was() -> None:
    for message in ("", "no", "x" * jsonrpc.LONGEST_ERROR, "\ud83d" * 2000, "\u20ac" * 2700):
        assert read(message, ',"data":[1]') == jsonrpc.RpcError(-1, message, Raw(b"[1]"))


@pytest.mark.parametrize("length", [40, 300, 2000])
def test_no_part_of_a_secret_is_left_at_the_cut(length: int) -> None:
    secret = "s3cr3t" * (length // 6)
    redactor = Redactor([secret])
    for shift in range(0, length, 7):
        shown = read("x " * (jsonrpc.LONGEST_ERROR // 2 - length) + "y" * shift + " " + f"{secret} " * 500).message
        assert secret[:20] not in shown
    assert secret[:20] not in read(f"{secret} " * (200_000 // length)).message
    assert redactor


def test_large_data_of_an_error_is_left_out_and_says_so() -> None:
    data = ',"data":[' + "{}," * 400_000 + "{}]"
    found = read("no", data)
    assert found.message == "no" and b"1200004 bytes" in bytes(found.data)
    assert read("no", ',"data":[' + "{}," * 300_000 + "{}]").data


async def test_a_server_that_refuses_at_length_is_logged_and_kept_briefly(caplog: pytest.LogCaptureFixture) -> None:
    script = Scripted(tools_list=tools("x"))
    script.answers["initialize"] = Refusal(-32602, "required " * 120_000)
    async with gateway(scripts={"there": script}) as app:
        for _ in range(4):
            response = await Visitor(app).ask("tools/call", name="there__x")
            assert "cut by toolgate" in response.error["message"]
            assert len(response.error["message"]) < 2 * jsonrpc.LONGEST_ERROR
        kept = app.gateway.snapshot.upstreams["there"].status()
        assert len(kept.error) < 2 * jsonrpc.LONGEST_ERROR
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told and max(map(len, told)) < LONGEST_LOGGED + 100


async def test_what_to_do_about_a_failure_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    look = diagnosis.fix_for

    def looks(error: str, stderr: str = "") -> str:
        looked.append(error)
        return look(error, stderr)

    monkeypatch.setattr(diagnosis, "fix_for", looks)
    script = Scripted(tools_list=tools("x"))
    script.answers["initialize"] = Refusal(-32602, "please set MY_KEY")
    async with gateway(scripts={"there": script}) as app:
        response = await Visitor(app).ask("tools/call", name="there__x")
        assert "set MY_KEY in its env" in response.error["data"]["hint"]
        for _ in range(50):
            assert "set MY_KEY in its env" in app.gateway.snapshot.upstreams["there"].status().hint
            await Visitor(app).ask("tools/list")
        starts = sum(asked["method"] == "initialize" for asked in script.requests) // 3  # it is asked in plainer words
        assert len(looked) <= 2 * starts <= 20, "with stderr and without it"
