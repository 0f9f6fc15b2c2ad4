"""What others say last is cut, or one line of it chosen: wherever a secret lies then, no part of it is told, since its
half would not be known as one."""

from __future__ import annotations

import json
import logging
import random
import string

import pytest
from msgspec import Raw
from processes.ground import Client, Failed, child, gateway, real, settings, until

from toolgate.core import redaction
from toolgate.core.fault import Fault
from toolgate.core.redaction import GONE, LONGEST_QUOTED, InTheClear, Redactor
from toolgate.core.token_shapes import quoted
from toolgate.eras.legacy import read_initialized
from toolgate.upstreams.component import metadata
from toolgate.upstreams.diagnosis import LONGEST_TOLD, last_words
from toolgate.upstreams.links.whole import MOST_OF_A_REFUSAL
from toolgate.upstreams.process.supervisor import STDERR_KEPT, Tail

RANDOM = random.Random(11)
PASSWORD = "correct horse battery staple"  # that nobody's logs would be searched for
LENGTHS = (30, 100, 950, 1200, 2000, 9000)
# Of several lines, no word of which is in another.
KEY = "\n".join(["-----BEGIN SECRET-----", *("".join(RANDOM.choices(string.ascii_letters, k=64)) for _ in range(40))])


def token(length: int) -> str:
    return "".join(RANDOM.choices(string.ascii_letters + string.digits, k=length))


def tells_a_part(shown: str, secret: str, least: int = 8) -> bool:
    return any(secret[at : at + least] in shown for at in range(len(secret) - least + 1))


def tail_of(said: str, piece: int = 4096) -> Tail:
    """Of what came so, a piece at a time."""
    tail, written = Tail(), said.encode()
    for at in range(0, len(written), piece):
        tail.add(written[at : at + piece])
    return tail


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("before", [0, 20, 190, 990])
@pytest.mark.parametrize("times", [1, 40])
def test_a_long_secret_in_the_last_line_is_not_told_up_to_where_that_is_cut(
    length: int, before: int, times: int
) -> None:
    secret = token(length)
    redactor = Redactor([secret])
    said = f"starting\n{'. ' * (before // 2)}Authorization: Bearer {' '.join([secret] * times)}\n"
    told = last_words(tail_of(said).text("wild"))
    assert len(told) <= LONGEST_TOLD and not tells_a_part(told, secret)
    is_whole = len(said) < STDERR_KEPT + 16 * 1024
    assert (GONE in told) is (is_whole and before < 190) and redactor.knows_any


@pytest.mark.parametrize("shift", range(160, 210, 7))
def test_nor_is_a_password_of_words_that_stands_in_the_env_of_that_server_alone(shift: int) -> None:
    redactor = Redactor()
    redactor.learn_configured({"wild": InTheClear(guessed=(PASSWORD,))})
    said = f"{'. ' * (shift // 2)} as {PASSWORD} to the database"
    assert not tells_a_part(last_words(tail_of(said).text("wild")), PASSWORD)
    assert not tells_a_part(metadata.shown(said.encode(), "wild"), PASSWORD)
    version = json.dumps({"protocolVersion": said, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}})
    with pytest.raises(Fault) as refused:
        read_initialized(Raw(version.encode()), "wild")
    assert not tells_a_part(refused.value.message, PASSWORD)


def test_of_a_secret_of_several_lines_the_last_one_is_not_told() -> None:
    redactor = Redactor([KEY])
    assert last_words(tail_of(f"cannot read the key {KEY}").text("wild")) == f"cannot read the key {GONE}"
    assert redactor.knows_any


@pytest.mark.parametrize("secret", [*map(token, LENGTHS), KEY], ids=[*map(str, LENGTHS), "lines"])
@pytest.mark.parametrize("end", [" ", "\n"])
@pytest.mark.parametrize("piece", [1000, 4096, 256 * 1024])
def test_nothing_is_told_of_a_secret_that_lies_where_the_rest_was_forgotten(secret: str, end: str, piece: int) -> None:
    redactor = Redactor([secret])
    for kept in range(0, len(secret) + 200, max(1, len(secret) // 7)):
        for looked_at in (STDERR_KEPT, STDERR_KEPT + 16 * 1024):
            behind = f"{'.' * 29}{end}" * (looked_at // 30 + 1)
            said = f"{'. ' * 40_000}{secret}{end}{behind[-looked_at + kept :]}"
            shown = tail_of(said, piece).text("wild")
            assert not tells_a_part(shown, secret) and not tells_a_part(last_words(shown), secret)
            assert 16 * 1024 < len(shown) <= STDERR_KEPT  # a part of a long one, in escapes, is six times as long
    assert redactor.knows_any


def test_what_a_process_wrote_is_looked_through_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    last_lines = redaction.last_lines

    def looks(said: bytes, most: int, server: str, is_cut: bool) -> str:
        looked.append(said)
        return last_lines(said, most, server, is_cut)

    monkeypatch.setattr(redaction, "last_lines", looks)
    redactor, tail = Redactor(["canary-7f3a9c"]), tail_of("one\ncanary-7f3a9d\n")
    assert {tail.text("wild") for _ in range(50)} == {"one\ncanary-7f3a9d\n"} and len(looked) == 1
    tail.add(b"two\n")
    assert tail.text("wild").endswith("two\n") and len(looked) == 2
    redactor.learn(["canary-7f3a9d"])
    assert {tail.text("wild") for _ in range(50)} == {f"one\n{GONE}\ntwo\n"} and len(looked) == 3
    assert max(map(len, looked)) < 1000


@pytest.mark.parametrize("length", [900, 2000, 4000])
def test_nor_of_one_where_the_refusal_of_a_component_was_cut_off(length: int) -> None:
    secret = token(length)
    redactor = Redactor([secret])
    for shift in range(0, length, length // 9):
        page = ("." * shift + " " + f"{secret} " * 200).encode()[:MOST_OF_A_REFUSAL]
        assert not tells_a_part(metadata.shown(page, "own", 2000), secret)
    assert redactor.knows_any


@pytest.mark.parametrize("length", [900, 2000, 4000])
def test_nor_of_what_an_api_or_a_hook_says_at_length(length: int) -> None:
    secret, shaped = token(length), f"ghp_{token(200)}"
    redactor = Redactor([secret])
    for shift in range(0, length, length // 9):
        assert not tells_a_part(quoted("." * shift + " " + f"{secret} " * 200, 1500), secret)
        said = (f"{secret} " * 80)[: LONGEST_QUOTED - 100 - shift] + " " + f"{shaped} " * 40
        assert not tells_a_part(quoted(said, 1500), shaped)
    assert redactor.knows_any


async def crashed(client: Client, words: str) -> str:
    try:
        return await client.call("one__leave", text=words)
    except Failed as failed:
        return str(failed.args) + str(vars(failed))


@real
@pytest.mark.parametrize("length", [100, 1200, 2000])
async def test_neither_the_client_nor_the_log_is_told_a_part_of_a_token_that_a_server_dies_with(length: int) -> None:
    secret = token(length)
    heard: list[str] = []
    listens = logging.Handler()
    listens.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("toolgate").addHandler(listens)
    try:
        one = child("wordy_of_others", env={"API_TOKEN": "${T}"})
        async with gateway(settings({"T": secret}, one=one)) as served:
            told = await crashed(served.client(), f"{'. ' * 60}{secret}")
            await until(lambda: served.status("one").state == "failed")
            told += str(served.status("one"))
    finally:
        logging.getLogger("toolgate").removeHandler(listens)
    assert "KeyError" in told and not tells_a_part(told, secret)
    assert not tells_a_part("\n".join(heard), secret)
