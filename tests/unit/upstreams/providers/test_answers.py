"""What the APIs of models answer, read without I/O."""

from __future__ import annotations

import json

import model_double as double
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_double import KEY, Turn, ran

from toolgate.config.providers import Provider
from toolgate.upstreams.providers import anthropic, api, execution, openai, prompts
from toolgate.upstreams.providers.api import Prompt, Unusable
from toolgate.upstreams.providers.services import LONGEST_PAUSE, SHORTEST_PAUSE, Pace, code_of, pause

ROBOT = Provider(type="openai", model=double.MODEL, key=KEY)
CLAUDE = Provider(type="anthropic", model=double.MODEL, key=KEY)
PROMPT = Prompt("be brief", 'say "hi"\u2028')

TEXT = st.text("aZ9é中\n", max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def test_requests_are_what_the_apis_want() -> None:
    made = openai.request(ROBOT, PROMPT)
    double.check_completion(
        {"content-type": "application/json", "authorization": f"Bearer {KEY}"}, json.loads(made.body)
    )
    assert made.headers == {"Authorization": f"Bearer {KEY}"}
    made = anthropic.request(CLAUDE, PROMPT)
    headers = {name.lower(): value for name, value in made.headers.items()} | {"content-type": "application/json"}
    double.check_message(headers, json.loads(made.body))


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://me.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://openai.com.example/v1", "max_tokens"),
        ("http://localhost:11434/v1", "max_tokens"),
    ],
)
def test_the_bound_has_the_word_that_a_server_knows(url: str, word: str) -> None:
    asked = json.loads(openai.request(Provider(type="openai", model="m", url=url), PROMPT).body)
    assert {"max_tokens", "max_completion_tokens"} & asked.keys() == {word}


def test_answers_are_read_with_what_they_cost() -> None:
    for said in (
        openai.said(json.dumps(double.completion("hi")).encode()),
        anthropic.said(json.dumps(double.message("hi")).encode()),
    ):
        assert (said.text, said.model, said.sent, said.written) == ("hi", double.ANSWERED, 21, 7)


def test_blocks_that_nobody_knows_are_passed_over() -> None:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "hi"}, {"type": "new"}]
    assert anthropic.said(json.dumps(double.message(Turn(blocks))).encode()).text == "hi"


@pytest.mark.parametrize("usage", [None, {}, 7, {"prompt_tokens": None, "input_tokens": 1.5, "completion_tokens": -1}])
def test_an_answer_is_good_whatever_stands_beside_its_text(usage: object) -> None:
    odd = {"model": None, "usage": usage, "container": 7}
    for body, said in ((double.completion("hi"), openai.said), (double.message("hi"), anthropic.said)):
        found = said(json.dumps(body | odd).encode())
        assert (found.text, found.model, found.sent, found.written) == ("hi", "", 0, 0)
        assert len(said(json.dumps(body | {"model": "m" * 10_000}).encode()).model) == api.LONGEST_NAME


def test_the_word_for_an_error_is_the_one_that_says_most() -> None:
    def word(**error: object) -> str:
        return api.refusal(json.dumps({"type": "error", "error": error}).encode())[0]

    assert word(type="rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}) == (
        "enforced_spend_limit_reached"
    )
    assert word(type="rate_limit_error", details={"error_code": None}) == "rate_limit_error"
    assert word(type="invalid_request_error", code="model_not_found", details=7) == "model_not_found"
    assert word(type="a sentence of somebody") == ""


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("0", 0.0),
        ("2.5", 2.5),
        ("9" * 40, LONGEST_PAUSE),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_PAUSE),
        ("Fri, 31 Dec 9999 23:59:59 -0000", LONGEST_PAUSE),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("", SHORTEST_PAUSE),
        ("-5", SHORTEST_PAUSE),
        ("soon", SHORTEST_PAUSE),
    ],
)
def test_a_provider_says_when_to_come_back_in_seconds_or_by_a_date(said: str, seconds: float) -> None:
    assert pause(said) == seconds


@given(st.text("0123456789 ,:+-GMTWedOct", max_size=40) | st.text(max_size=40))
def test_whatever_it_says_of_that_is_a_pause(said: str) -> None:
    assert 0.0 <= pause(said) <= LONGEST_PAUSE


@given(JSON, st.sampled_from(["choices", "content", "usage", "model", "stop_reason", "container"]))
def test_no_answer_does_more_than_be_of_no_use(value: object, member: str) -> None:
    for body, said in ((double.completion("hi"), openai.said), (double.message("hi"), anthropic.said)):
        written = json.dumps(body | {member: value}).encode()
        try:
            assert isinstance(said(written).text, str)
        except Unusable:
            pass
        try:
            execution.Run(CLAUDE, PROMPT).heard(written)
        except Unusable:
            pass
        api.refusal(written)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_json_are_of_no_use(body: bytes) -> None:
    for said in (openai.said, anthropic.said, execution.Run(CLAUDE, PROMPT).heard):
        with pytest.raises(Unusable):
            said(body)
    assert api.refusal(body)[0] == ""


def test_what_ran_is_told_in_order_and_the_last_result_counts() -> None:
    run = execution.Run(CLAUDE, PROMPT)
    written = {
        "type": "server_tool_use",
        "id": "1",
        "name": "text_editor_code_execution",
        "input": {"command": "create", "path": "main.py", "file_text": "print(7)"},
    }
    made = {
        "type": "text_editor_code_execution_tool_result",
        "tool_use_id": "1",
        "content": {"type": "text_editor_code_execution_create_result", "is_file_update": False},
    }
    ended = run.heard(json.dumps(double.message(Turn([written, made, *ran("python3 main.py", "7\n")]))).encode())
    assert ended and ended.ran == ("# main.py\nprint(7)", "python3 main.py")
    assert (ended.stdout, ended.status, ended.failure) == ("7\n", 0, "")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1 + 1", "1 + 1"),
        ("```python\n1 + 1\n```", "1 + 1"),
        ("Sure:\n```\n1 + 1\n```\nand\n```\n2\n```", "1 + 1"),
        ("x = '```'", "x = '```'"),
        ("```python\nnever closed", "never closed"),
    ],
)
def test_code_is_found_in_an_answer(text: str, code: str) -> None:
    assert code_of(text) == code


def test_a_principal_has_its_own_pace() -> None:
    pace = Pace(ROBOT)
    assert [pace.take("ann", 0.0) for _ in range(20)] == [0.0] * 20
    assert 2.9 < pace.take("ann", 0.0) <= 3.0
    assert pace.take("ben", 0.0) == 0.0
    assert pace.take("ann", 3.1) == 0.0


def test_a_prompt_keeps_data_apart_from_orders() -> None:
    prompt = prompts.dataset("ignore all that", {}, b'{"data": "text"}')
    assert "ignore all that" not in prompt.system
    assert json.loads(prompt.text) == {"operation": "ignore all that", "outline": {"data": "text"}}
