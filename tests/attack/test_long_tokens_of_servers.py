"""A token may be as long as a header: a server that says it is not heard, however long it is and in whatever part."""

from __future__ import annotations

import json
import random
import string

import pytest
from inmemory import MODERN, Refusal, Scripted, Visitor, gateway, tools

from toolgate.config import Server
from toolgate.core.redaction import GONE, LONGEST_QUOTED, LONGEST_TOKEN, MOST_TOKENS, PIECE_OF_TOKEN, Redactor, excerpt

SIGNS = string.ascii_letters + string.digits + "-_"
RANDOM = random.Random(5)


def token(length: int) -> str:
    return "".join(RANDOM.choices(SIGNS, k=length))


def leaks(secret: str, shown: str) -> bool:
    """Whether any part of it stands there that says something."""
    return any(secret[start : start + 24] in shown for start in range(len(secret) - 24))


LENGTHS = [PIECE_OF_TOKEN, PIECE_OF_TOKEN + 1, 5046, 2 * PIECE_OF_TOKEN, 2 * PIECE_OF_TOKEN + 1, 12_000, LONGEST_TOKEN]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("around", ["Bearer %s", "%s", "a=%s;b", "%s %s", "x\u202e%s\u200b"])
def test_a_token_of_any_length_is_taken_out(length: int, around: str) -> None:
    redactor, secret = Redactor(), token(length)
    redactor.learn_tokens("mail", [secret])
    said = around.replace("%s", secret)
    assert GONE in redactor.of("mail").text(said) and not leaks(secret, redactor.of("mail").text(said))
    body = redactor.of("mail").body(json.dumps({"a": said}).encode())
    assert not leaks(secret, body.decode()) and GONE in json.loads(body)["a"]
    assert not leaks(secret, excerpt(said, len(said), "mail"))
    assert redactor.of("bank").text(said) == said  # who chose it changes nothing of what others say


@pytest.mark.parametrize("length", LENGTHS)
def test_so_is_one_that_is_cut_off_or_written_with_escapes(length: int) -> None:
    redactor, secret = Redactor(), token(length)
    redactor.learn_tokens("mail", [secret])
    escaped = "".join(f"\\u{ord(each):04x}" if place % 7 == 0 else each for place, each in enumerate(secret))
    assert not leaks(secret, str(json.loads(redactor.of("mail").body(b'{"a":"%b"}' % escaped.encode()))))
    assert not leaks(secret, redactor.of("mail").text(secret[: max(PIECE_OF_TOKEN, length - 10)]))
    assert not leaks(secret, excerpt("x" * (LONGEST_QUOTED - 100) + " " + secret, LONGEST_QUOTED, "mail"))


def test_what_is_looked_for_stays_as_long_and_as_much_as_it_was() -> None:
    redactor = Redactor()
    redactor.learn_tokens("mail", [token(LONGEST_TOKEN) for _ in range(MOST_TOKENS)])
    known = redactor.of("mail")
    assert known.overlap < PIECE_OF_TOKEN and known.forms <= MOST_TOKENS


def test_no_piece_is_so_short_that_it_stands_in_what_others_say() -> None:
    redactor = Redactor()
    secret = "a1" * (PIECE_OF_TOKEN // 2) + "rows_of_2025"
    redactor.learn_tokens("mail", [secret])
    assert redactor.of("mail").text("rows_of_2025") == "rows_of_2025"


# Errors.


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("length", [40, 4000, 8100, 8300, 9000, 20_000])
@pytest.mark.parametrize("more", ["", "x" * 300_000])
async def test_a_secret_in_the_clear_is_taken_out_of_an_error_before_that_is_cut(
    more: str, length: int, version: str
) -> None:
    secret = "".join(RANDOM.choices(string.ascii_letters, k=length))
    refusal = Refusal(-32000, f"bad {secret} {more}", {"v": secret})
    there = Server(id="there", name="there", type="stdio", command="there", env={"API_TOKEN": secret})
    script = Scripted(version, tools_list=tools("t"), tools_call=refusal)
    async with gateway(there, scripts={"there": script}) as app:
        visitor = Visitor(app)
        if version == MODERN:
            reply = await visitor.ask_modern("tools/call", name="there__t", arguments={})
        else:
            await visitor.initialize(version)
            reply = await visitor.ask("tools/call", name="there__t", arguments={})
    assert not leaks(secret, str(reply.last)) and GONE in reply.last["error"]["message"]


@pytest.mark.parametrize("before", [0, 1, 20, 30])
@pytest.mark.parametrize("length", [9000, 20_000, 60_000])
def test_nor_is_half_of_one_left_where_what_is_looked_at_ends(length: int, before: int) -> None:
    redactor, first, second = Redactor(), token(2000), token(length)
    redactor.learn([first, second])
    said = f"{first} " * before + "x" * (LONGEST_QUOTED - 2001 * before - 8000) + f" {second}" + "x" * 100_000
    assert not leaks(second, excerpt(said, LONGEST_QUOTED)) and not leaks(first, excerpt(said, LONGEST_QUOTED))
