"""Secrets are taken out of whatever is shown, whole, and what was JSON stays JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import redaction, token_shapes
from toolgate.core.redaction import (
    ADJOINING,
    GONE,
    MOST,
    MOST_TOKENS,
    WINDOW,
    InTheClear,
    Redactor,
    excerpt,
    quiet_logs,
)
from toolgate.core.token_shapes import shaped

SECRET = "canary-7f3a9c"


def test_a_secret_is_taken_out_wherever_it_stands() -> None:
    assert Redactor([SECRET]).text(f"a {SECRET} b!{SECRET}") == f"a {GONE} b!{GONE}"


def test_parts_of_a_secret_are_not_looked_for_since_that_would_answer_guesses() -> None:
    redactor = Redactor([f"{SECRET}-and-more"])
    guess = f"it said: {SECRET}-an (cut)"
    assert redactor.text(guess) is guess
    assert redactor.body(json.dumps(guess).encode()) == json.dumps(guess).encode()


def test_of_a_secret_at_the_end_of_an_excerpt_nothing_is_left() -> None:
    redactor = Redactor(["canary-of-an-excerpt-7f3a"])
    for said in ("x " * 95 + "canary-of-an-excerpt-7f3a", b"x " * 95 + b"canary-of-an-excerpt-7f3a and more"):
        assert "canary" not in excerpt(said) and excerpt(said).startswith("x x")
    assert redactor.knows_any


@pytest.mark.parametrize(
    ("shown", "left"),
    [
        ("a KEY=canary-7f3a9c/and+more== b", f"a {GONE} b"),
        ("https://x/?k=canary-7f3a9c&y", f"https://x/?{GONE}&y"),
        ("x" * 5000 + SECRET, "x" * (5000 - ADJOINING) + GONE),
        (SECRET + "x" * 5000, GONE + "x" * (5000 - ADJOINING)),
    ],
)
def test_what_adjoins_a_secret_goes_with_it_within_bounds(shown: str, left: str) -> None:
    assert Redactor([SECRET]).text(shown) == left
    assert json.loads(Redactor([SECRET]).body(json.dumps({"a": shown, "b": "b"}).encode())) == {"a": left, "b": "b"}


def test_a_text_without_secrets_is_the_same_object() -> None:
    text, body = "nothing " * 100, b'{"a":1}'
    assert Redactor([SECRET]).text(text) is text
    assert Redactor([SECRET]).body(body) is body


def test_a_secret_that_holds_another_is_taken_out_whole() -> None:
    redactor = Redactor([SECRET, f"before-{SECRET}-after"])
    assert redactor.text(f"<before-{SECRET}-after>") == f"<{GONE}>"


def test_of_secrets_that_overlap_nothing_is_left() -> None:
    assert Redactor(["abcdefgh1234", "1234ijklmnop"]).text("<abcdefgh1234ijklmnop>") == f"<{GONE}>"


def test_what_is_too_short_is_no_secret() -> None:
    assert Redactor(["short"]).text("short") == "short"


@pytest.mark.parametrize("length", [10, 10_000, 100_000])
@pytest.mark.parametrize("before", ["x", "ü", "lorem ipsum 7"])
def test_a_secret_is_found_in_a_body_of_any_length(length: int, before: str) -> None:
    body = json.dumps({"a": before * length + " " + SECRET + " end"}, ensure_ascii=False).encode()
    assert json.loads(Redactor(["Other-SECRET-1", SECRET]).body(body)) == {"a": before * length + f" {GONE} end"}


def test_a_value_stays_known_when_others_are_learned() -> None:
    redactor = Redactor([SECRET])
    redactor.learn(["another-one"])
    assert SECRET not in redactor.text(SECRET)


def test_what_is_known_is_taken_out_while_a_thread_learns_another() -> None:
    """Looked at on every line of the code that learns, as a thread may that is at work meanwhile."""
    redactor = Redactor()
    redactor.learn_configured({"there": InTheClear(guessed=[SECRET])})
    there = redactor.of("there")
    said = json.dumps([SECRET, "-" * redaction.LARGE]).encode()
    left = list[bool]()

    def seen(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is redaction.Secrets._look.__code__:  # pyright: ignore[reportPrivateUsage]
            left.append(SECRET.encode() in there.body(said))
            return seen
        return None

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        redactor.learn_tokens("there", ["ZYXWVUTQ-0123456789"])
    finally:
        sys.settrace(before)
    assert len(left) > 20 and not any(left)


def test_of_very_many_the_oldest_are_forgotten() -> None:
    redactor = Redactor([SECRET])
    redactor.learn([f"another-{number}" for number in range(MOST)])
    assert redactor.text(SECRET) == SECRET
    assert redactor.text("another-999") == GONE


@pytest.mark.parametrize("shown", ["p%40ss%2Fword1", "p@ss/word1", "p%40ss/word1"])
def test_a_secret_is_known_as_a_url_writes_it(shown: str) -> None:
    assert "word1" not in Redactor(["p@ss/word1"]).text(f"http://x/?k={shown}&y")


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":"x\"y\\zz ends"}',
        rb'{"a":"{\"b\":\"x\\\"y\\\\zz ends\"}"}',  # JSON in a text of JSON
    ],
)
def test_a_secret_is_known_as_json_escapes_it(body: bytes) -> None:
    shown = Redactor(['x"y\\zz ends']).body(body)
    assert GONE in shown.decode() and b"ends" not in shown
    json.loads(shown)


def test_letters_beyond_ascii_are_known_in_both_ways_of_writing_them() -> None:
    redactor = Redactor(["pässwörd-eins"])
    for ascii in (True, False):
        body = json.dumps({"a": "pässwörd-eins"}, ensure_ascii=ascii).encode()
        assert json.loads(redactor.body(body)) == {"a": GONE}


def test_a_slash_that_is_escaped_hides_nothing() -> None:
    assert json.loads(Redactor(["abc/def/ghi"]).body(rb'{"a":"abc\/def\/ghi"}')) == {"a": GONE}


ESCAPED = "ab+cd/ef&gh='1234"


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":"ab\u002Bcd/ef\u0026gh=\u00271234"}',  # .NET
        rb'{"a":"ab+cd/ef\u0026gh=\u0027123\u0034"}',  # Go
        rb'{"a":"ab+cd\/ef&gh\u003d\u00271234"}',  # gson, with PHP's slash
        rb'{"a":"{\"b\":\"ab\\u002Bcd/ef\\u0026gh=\\u00271234\"}"}',  # JSON in a text of JSON
        rb'{"a":"{\"b\":\"{\\\"c\\\":\\\"ab\\\\u002Bcd/ef&gh=\u00271234\\\"}\"}"}',  # and once more
        rb'{"ab\u002bcd\u002Fef&gh=\u00271234":1}',  # a key
        "".join(['{"a":"', *(f"\\u{ord(letter):04X}" for letter in ESCAPED), '"}']).encode(),
    ],
)
def test_a_secret_is_known_with_any_of_its_characters_escaped(body: bytes) -> None:
    shown = json.dumps(json.loads(Redactor([ESCAPED]).body(body)))
    assert GONE in shown and "ab" not in shown and "1234" not in shown
    assert "1234" not in Redactor([ESCAPED]).text(f"it said {body.decode()}")


def test_letters_beyond_ascii_are_known_however_each_is_written() -> None:
    for body in (rb'"p\u00E4ssw\u00f6rd-\uD83D\ude00"', '"p\\u00E4sswörd-😀"'.encode(), '"pässw\\u00f6rd-😀"'.encode()):
        assert Redactor(["pässwörd-😀"]).body(body) == b'"[secret]"'


def test_paths_and_other_backslashes_are_no_escapes() -> None:
    body = json.dumps({"a": r"C:\users\u12\new \ \u00", "b": "\u1234"}).encode()
    assert Redactor([ESCAPED]).body(body) is body


@pytest.mark.parametrize("before", [0, 1, 100, *range(WINDOW - 130, WINDOW + 30, 7)])
@pytest.mark.parametrize("secret", [ESCAPED, "pässwörd-😀-123456"])
def test_a_secret_with_escapes_is_found_wherever_a_long_text_is_parted(secret: str, before: int) -> None:
    units = secret.encode("utf-16-be").hex()
    written = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    for filling in (".", "é", "\\u0041"):
        many = before // len(filling)
        body = f'{{"a":"{filling * many},{written},{filling * (2 * WINDOW)}"}}'.encode()
        assert GONE.encode() in (shown := Redactor([secret]).body(body))
        assert secret not in json.loads(shown)["a"]


@pytest.mark.promise("b.attacks.redaction")
@pytest.mark.parametrize(
    "filling",
    [
        f"{ESCAPED}, ",
        "".join(f"\\u{ord(letter):04x}" for letter in ESCAPED) + ", ",
        "\\\\" * 500 + "".join(f"\\u{ord(letter):04x}" for letter in ESCAPED),
        f'","{ESCAPED}',
    ],
)
def test_of_what_holds_more_secrets_than_can_be_taken_out_its_shape_is_left(filling: str) -> None:
    many = filling * (4_000_000 // len(filling))
    redactor = Redactor([ESCAPED])
    body = f'{{"content":["{many}"],"isError":false,"s":"{ESCAPED}","o":{{"a":"b"}},"t":"complete","{ESCAPED}":1}}'
    kept = {"content": [], "isError": False, "s": GONE, "o": {}, "t": "complete"}
    assert json.loads(redactor.body(body.encode())) == kept
    assert redactor.body(f'["{many}"]'.encode()) == b"[]" and redactor.body(f'"{many}'.encode()) == b'"[secret]"'
    assert redactor.text(many) == GONE and ESCAPED not in json.dumps(redactor.value({"a": [many, "b"]}))


def test_a_secret_that_overlaps_itself_is_not_looked_for_at_every_character() -> None:
    assert Redactor(["aaaaaaaaaaaa"]).body(b'{"content":["' + b"a" * 4_000_000 + b'"]}') == b'{"content":[]}'


def test_a_secret_number_leaves_json() -> None:
    shown = Redactor(["12345678"]).body(b'{"a":1234567890,"b":[12345678],"c":"12345678","d":true}')
    assert json.loads(shown) == {"a": GONE, "b": [GONE], "c": GONE, "d": True}


@pytest.mark.parametrize("depth", [200, 400, 600, 800, 960, 5000])
@pytest.mark.parametrize("secret", ["1234567890", "tk-0123456789"])
def test_what_cannot_be_read_to_the_end_stays_json(secret: str, depth: int) -> None:
    inner = b"1234567890" if secret.isdigit() else rb'"\tk-0123456789"'
    for body in (
        b'{"y":%b%b%b,"z":1}' % (b"[" * depth, inner, b"]" * depth),
        b"[" * depth + inner + b"]" * depth,
        b'{"a":' * depth + inner + b"}" * depth,
        b'{"y":1%b%b,"z":%b}' % (b"0" * 5000, inner if secret.isdigit() else b"0", inner),
    ):
        shown = json.loads(Redactor([secret]).body(body))
        assert not any(secret in text for text in _texts(shown))


@pytest.mark.promise("b.attacks.redaction")
@pytest.mark.parametrize(
    ("secret", "written"), [("41ab9Zk3kq8vXw2", r'"\u0041ab9Zk3kq8vXw2"'), ("1234567890", "1234567890")]
)
def test_what_holds_too_many_values_is_not_read_where_a_secret_leaves_no_json(
    secret: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    monkeypatch.setattr(redaction, "_read", lambda body: read.append(len(body)) or json.loads(body))
    for many in (9_000, 11_000):
        body = f'{{"a":{written},"b":[{",".join(["1e300"] * many)}]}}'.encode()
        shown = json.loads(Redactor([secret]).body(body))
        assert secret not in json.dumps(shown) and len(shown["b"]) == (many if many < redaction.MOST_VALUES else 0)
    assert len(read) == 1


def test_what_begins_within_an_escape_is_no_secret() -> None:
    assert json.loads(Redactor(["nsecret99"]).body(rb'{"a":"\nsecret99"}')) == {"a": "\nsecret99"}


_words = st.text(st.sampled_from('ab12"\\/ü\n{}[],:'), min_size=8, max_size=12)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
)


@given(st.lists(_words, min_size=1, max_size=4), _values, st.booleans(), st.data())
def test_any_json_stays_json_and_holds_no_secret(
    secrets: list[str], value: Any, ascii: bool, data: st.DataObject
) -> None:
    held = {"value": value, "text": f"a{data.draw(st.sampled_from(secrets))}b"}
    shown = json.loads(Redactor(secrets).body(json.dumps(held, ensure_ascii=ascii).encode()))
    assert not any(secret in text for secret in secrets for text in _texts(shown))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, each in value.items() for text in (key, *_texts(each))]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1" * 41,
        "glpat-" + "a1" * 10,
        "xoxb-1234567890-abcdefghij",
        "AKIA" + "ABCDEFGH23456723",
        "AIza" + "a1" * 17 + "b",
        "sk-ant-" + "a1" * 20,
        "sk_live_" + "a1" * 12,
        "npm_" + "a1" * 18,
        "hf_" + "a1" * 17,
        "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ." + "a1" * 20,
        "hvs." + "a1" * 20,
        "tg_ci_" + "a1" * 20,
    ],
)
def test_the_shapes_of_tokens_are_known(token: str) -> None:
    body = json.dumps({"text": f"it is {token}, or {token}"}).encode()
    assert json.loads(shaped(body)) == {"text": f"it is {GONE}, or {GONE}"}


_old_password = re.compile(rb"(?<=://)[^\s\"/@:?#\\]{0,200}:[^\s\"/@?#\\]{1,500}(?=@)")
_pieces = st.sampled_from(
    [
        *'aZ0 ._-+/=:@"{}',
        "ghp_",
        "sk-",
        "eyJ",
        "xoxb-",
        "AKIA",
        "SG.",
        "tg_",
        "12345678:AA",
        "://",
        "glpat-",
        "é",
        "a1" * 20,
        "ABCDEFGH23456723",
        "abcdefghij",
        "a" * 33,
        "." * 300,
        "xapp-" + "a" * 20,
    ]
)


@given(st.lists(_pieces, max_size=40), st.integers(0, 3))
def test_tokens_and_passwords_are_found_as_if_one_looked_everywhere(pieces: list[str], most: int) -> None:
    text = "".join(pieces).encode()
    everywhere = _old_password.sub(GONE.encode(), token_shapes._shaped.sub(GONE.encode(), text))
    assert shaped(text) == everywhere
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_shapes, "MOST_WORDS", most)
        assert shaped(text) == everywhere


def test_plain_words_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_shapes, "_shaped", None)
    words = b'"' + b"plain words, and a few longer words: extraordinary; " * 1000 + b'"'
    assert shaped(words) is words


def test_a_private_key_and_a_password_in_a_url_have_shapes() -> None:
    key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n"
    shown = shaped(json.dumps({"a": key, "b": "postgres://ann:hunter22@db/x"}).encode())
    assert json.loads(shown) == {"a": f"{GONE}\n", "b": f"postgres://{GONE}@db/x"}


def as_php_writes_it(written: str) -> str:
    return written.replace("/", r"\/")


def in_json_of_php(written: str) -> str:
    return as_php_writes_it(json.dumps(as_php_writes_it(written)))


@pytest.mark.parametrize("way", [str, json.dumps, as_php_writes_it, in_json_of_php])
@pytest.mark.parametrize(
    "before",
    ["line\n", "\t", "\r\n", "TOKEN=", "https://hooks.test/?key=", "https://hooks.test/", "é", "Bearer ", "user:"],
)
def test_a_token_is_found_behind_whatever_ends_a_word(before: str, way: Callable[[str], str]) -> None:
    token = "ghp_" + "a1" * 18
    shown = shaped(way(json.dumps({"text": f"{before}{token}\nend"})).encode()).decode()
    assert token not in shown and GONE in shown and "end" in shown
    assert shown.replace(GONE, token) == way(json.dumps({"text": f"{before}{token}\nend"}))


@pytest.mark.parametrize("way", [str, json.dumps, as_php_writes_it, in_json_of_php])
@pytest.mark.parametrize("password", ["hunter22", "p&w'2", "ü-geheim"])
def test_a_password_in_a_url_is_found_however_json_writes_it(password: str, way: Callable[[str], str]) -> None:
    written = json.dumps({"text": f"a/b:c@d and postgres://ann:{password}@db/x"})
    written = way(written.replace("&", r"\u0026").replace("'", r"\u0027"))
    shown = shaped(written.encode()).decode()
    assert "ann" not in shown and shown.count(GONE) == 1
    assert json.loads(shown) and shown.endswith(written[-6:])


@pytest.mark.parametrize("text", ["task-list", "risk-" + "a1" * 20, "sk-short", "a" * 100_000, "http://x:80/a@b"])
def test_what_has_no_such_shape_stays(text: str) -> None:
    body = json.dumps({"text": text}).encode()
    assert shaped(body) == body


def test_logs_are_without_secrets_in_text_arguments_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("toolgate.somewhere")
    with quiet_logs(Redactor([SECRET])):
        log.warning("it is %s", SECRET)
        try:
            raise ValueError(SECRET)
        except ValueError as error:
            log.error("failed", exc_info=error)
        log.warning("plain %d", 1)
    assert SECRET not in caplog.text
    assert f"it is {GONE}" in caplog.text and f"ValueError: {GONE}" in caplog.text and "plain 1" in caplog.text


def test_what_strangers_say_makes_no_line_of_a_log_and_moves_no_cursor(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("toolgate.somewhere")
    with quiet_logs(Redactor()):
        log.warning("there said: %s", "no\n2026-01-01 ERROR forged\r\x1b[2J\u202e\x9b\u061c\ufff9\U000e0041")
    (record,) = caplog.records
    assert (
        record.getMessage()
        == "there said: no\n    2026-01-01 ERROR forged\\r\\x1b[2J\\u202e\\x9b\\u061c\\ufff9\\U000e0041"
    )


def test_tokens_that_come_and_go_do_not_displace_what_is_configured() -> None:
    redactor = Redactor([SECRET])
    for number in range(3 * MOST):
        redactor.learn_tokens("mail", [f"token-of-an-hour-{number}"])
    assert redactor.of("mail").text(SECRET) == redactor.text(SECRET) == GONE
    assert redactor.of("mail").text(f"token-of-an-hour-{3 * MOST - 1}") == GONE


def test_what_is_still_configured_is_not_forgotten_for_what_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "MOST", 20)
    redactor = Redactor([SECRET])
    for number in range(60):
        redactor.learn([SECRET, f"replaced-secret-{number}"])
    assert redactor.text(SECRET) == GONE


@pytest.mark.parametrize(
    "token", ["qXzRtLmPvBnKdSwGhJfYcTaE", "Q" * 24, "my-token-for-you-alone", "abc.def.ghi.jkl.mno.pqr"]
)
def test_a_long_token_needs_no_digit(token: str) -> None:
    redactor = Redactor()
    redactor.learn_tokens("mail", [token])
    assert redactor.of("mail").text(f"a {token} b") == f"a {GONE} b"


NAMES = ["unevaluatedProperties", "io.modelcontextprotocol/related-task"]


@pytest.mark.parametrize("word", [*NAMES, "structuredContent", "input_schema", '"version":1', '"type":"text0"'])
def test_a_server_cannot_take_words_out_of_what_others_say_by_calling_them_its_token(word: str) -> None:
    redactor = Redactor([SECRET])
    redactor.learn_tokens("mail", [word])
    assert redactor.of("mail").text(f"a {word} b") == f"a {word} b"


def test_tokens_of_a_server_are_taken_out_of_what_is_said_by_it_and_of_nothing_else() -> None:
    redactor = Redactor([SECRET])
    redactor.learn_tokens("mail", ["delete_table_2"])
    assert redactor.of("mail").text(f"delete_table_2 {SECRET}") == f"{GONE} {GONE}"
    for others in (redactor, redactor.of("tables"), redactor.anywhere):
        assert others.text(f"delete_table_2 {SECRET}") == f"delete_table_2 {GONE}"
    assert excerpt("delete_table_2 of tables", server="tables") == excerpt("delete_table_2 of tables")


@pytest.mark.parametrize("tokens", [[], [""], ["short"], ["nodigitsinthistoken"]])
def test_a_server_without_a_token_worth_looking_for_is_searched_for_the_others(tokens: list[str]) -> None:
    redactor = Redactor([SECRET])
    redactor.learn_tokens("mail", tokens)
    assert redactor.of("mail").knows_any and redactor.of("mail").text(SECRET) == GONE


def test_what_a_configuration_brings_later_is_taken_out_everywhere() -> None:
    redactor = Redactor()
    redactor.learn_tokens("mail", ["Abcdefghij0123456789"])
    redactor.learn([SECRET])
    assert [each.text(SECRET) for each in (redactor, redactor.of("mail"), redactor.anywhere)] == [GONE] * 3


def test_a_token_that_nobody_writes_by_chance_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    redactor = Redactor()
    redactor.learn_tokens("mail", ["Abcdefghij0123456789", "delete-table-2-of-the-customers"])
    with quiet_logs(redactor):
        logging.getLogger("toolgate.somewhere").warning("Abcdefghij0123456789 delete-table-2-of-the-customers")
    assert caplog.messages == [f"{GONE} delete-table-2-of-the-customers"]


def test_beginnings_of_private_keys_without_end_cost_little() -> None:
    """Each is looked at once: the square of that would take minutes."""
    nested = b"-----BEGIN PRIVATE KEY-----" * 100_000
    assert shaped(b'"%b"' % nested) == b'"%b"' % nested


def test_logs_are_as_they_were_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    with quiet_logs(Redactor([SECRET])):
        pass
    logging.getLogger("toolgate.somewhere").warning(SECRET)
    assert SECRET in caplog.text


def test_tokens_that_are_renewed_again_and_again_never_push_out_what_lasts() -> None:
    redactor = Redactor(["configured-secret"])
    for number in range(2 * MOST_TOKENS):
        redactor.learn_tokens("mail", [f"token-number-{number:06}"])
    mail = redactor.of("mail")
    assert mail.text("configured-secret") == mail.text(f"token-number-{2 * MOST_TOKENS - 1:06}") == GONE
    assert mail.body(b"token-number-000000") == b"token-number-000000"


def test_the_tokens_of_many_principals_do_not_push_out_each_other_and_what_they_replace_is_known_as_long() -> None:
    redactor = Redactor()
    for round in range(3):
        for number in range(100):
            tokens = [f"{kind}-{round}-of-{number:04}" for kind in ("token", "refresh")]
            redactor.learn_tokens("mail", [*tokens, "secret-of-all-0"], f"user:{number}")
    known = redactor.of("mail")
    for number in range(100):
        assert known.text(f"token-2-of-{number:04} token-1-of-{number:04} secret-of-all-0") == f"{GONE} {GONE} {GONE}"
        assert known.text(f"token-0-of-{number:04}") == f"token-0-of-{number:04}"


def test_of_the_tokens_of_more_principals_than_can_be_looked_for_the_latest_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction, "MOST", 10)
    redactor = Redactor()
    for number in [*range(20), 12]:
        redactor.learn_tokens("mail", [f"token-{number}-of-somebody", f"refresh-{number}-of-somebody"], f"{number}")
    redactor.learn_tokens("mail", ["token-another-0"], "17")
    known = redactor.of("mail")
    assert known.text("token-17-of-somebody token-another-0") == f"{GONE} {GONE}"
    assert known.text("token-19-of-somebody token-12-of-somebody") == f"{GONE} {GONE}"
    assert known.forms <= 10 and known.text("token-3-of-somebody") == "token-3-of-somebody"


def test_what_several_are_shown_is_known_until_the_last_of_them_has_another() -> None:
    redactor = Redactor()
    shared = "Shared-by-all-0123456789"
    for whose in ("ann", "bob"):
        redactor.learn_tokens("mail", [shared], whose)
    for round in range(3):
        redactor.learn_tokens("mail", [f"Token-of-{round}-of-ann-alone"], "ann")
        assert redactor.of("mail").text(shared) == redactor.anywhere.text(shared) == GONE
        assert redactor.of("mail").text(f"Token-of-{round}-of-ann-alone") == GONE
    for round in range(3):
        redactor.learn_tokens("mail", [f"Token-of-{round}-of-bob-alone"], "bob")
    assert redactor.of("mail").text(shared) == redactor.anywhere.text(shared) == shared


SEEN = ("_texts", "_bodies", "_cores", "_certain_cores", "_ways", "_loosely", "_spared", "_letters", "_escape")


def test_what_is_looked_for_is_the_same_token_by_token_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "MOST", 40)
    random = Random(7)
    tokens = [f"To/ken+{each}-{'ü' * (each % 5 == 0)}{'x' * (each % 9)}Y" for each in range(30)]
    redactor = Redactor([SECRET])
    redactor.learn_configured({"mail": InTheClear(guessed=[tokens[0], "guessed-value-1"], no_names=[tokens[1]])})
    for step in range(400):
        given = random.sample(tokens, random.randrange(4))
        redactor.learn_tokens(random.choice(["mail", "tables"]), given, random.choice("abcdefg"))
        if step % 20:
            continue
        known = (redactor.of("mail"), redactor.listed("mail"), redactor.of("tables"), redactor.anywhere)
        found = [[sorted(getattr(each, name)) for name in SEEN] + [each.longest, each.overlap] for each in known]
        assert all(letters <= each._alphabet for each in known for letters in each._letters.values())
        redactor._look_everywhere()
        assert found == [
            [sorted(getattr(each, name)) for name in SEEN] + [each.longest, each.overlap] for each in known
        ]


def test_a_token_that_is_renewed_costs_the_same_however_many_others_are_known() -> None:
    def calls(many: int) -> int:
        redactor, count = Redactor(), 0
        for number in range(many):
            redactor.learn_tokens("mail", [f"Token-of-one-{number:04}"], f"user:{number}")

        def called(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(called)
        try:
            redactor.learn_tokens("mail", ["Another-token-0000"], "user:0")
        finally:
            sys.setprofile(None)
        return count

    assert calls(300) <= calls(30)


KEY = "-----BEGIN KEY-----\nMIIEvQ/ABCD+efgh\n\nijklmnop==\n-----END KEY-----"


@pytest.mark.parametrize("known", [KEY, KEY + "\n", KEY.replace("\n", "\r\n")])
@pytest.mark.parametrize("between", ["\n", "\r\n", "\n  ", "\n    ", "\n      ", "\n        ", "\n\t"])
def test_a_secret_of_several_lines_is_found_however_they_are_indented(known: str, between: str) -> None:
    said = "key: |" + re.sub(r"\n(?!\n)", lambda _: between, "\n" + KEY)
    if between == "\r\n":
        said = "key: |\r\n" + KEY.replace("\n", "\r\n")
    redactor = Redactor([known])
    for shown in (
        redactor.text(said),
        redactor.body(json.dumps({"a": said}).encode()).decode(),
        redactor.body(json.dumps({"a": json.dumps({"b": said})}).encode()).decode(),
    ):
        assert GONE in shown and "MIIEvQ" not in shown and "ijklmnop" not in shown


@pytest.mark.parametrize("secret", ["pa55w0rd+with/slash=and&more", "Grüße an alle Leute"])
def test_a_secret_in_a_url_is_found_with_small_hex_digits(secret: str) -> None:
    for written in (quote(secret, safe=""), quote(secret)):
        small = re.sub("%..", lambda found: found[0].lower(), written)
        assert Redactor([secret]).text(f"see <{small}> there") == f"see <{GONE}> there"


def test_the_forms_of_a_secret_of_several_lines_are_few_and_no_server_chooses_them() -> None:
    few, many = Redactor(["-----BEGIN KEY----- MIIEvQ/ABCD+efgh"]), Redactor([KEY])
    assert many.forms <= few.forms + 30
    many.learn_tokens("mail", [f"tokens-of-{number}\nlines-of-it/" for number in range(MOST_TOKENS)])
    assert many.of("mail").forms == many.forms
