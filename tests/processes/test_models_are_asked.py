"""Models behind APIs: what is sent to them, what becomes of what they answer, and of all the ways in which they fail.

Each conversation goes through the whole gateway, with real code and a double of the API on loopback.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import model_double as double
import pytest
from inmemory import gateway
from model_double import KEY, MODEL, Answer, Broken, Double, Turn, failed, model, ran
from processes.ground import real, until

from toolgate import config as configs
from toolgate.config import Config
from toolgate.config.providers import Provider
from toolgate.config.shapes import Rate
from toolgate.core.clock import SystemClock
from toolgate.sandbox.services import ENGINES

sys.path.insert(0, str(Path(__file__).parents[1] / "behaviour"))

from stage import Asker, playing

Json = dict[str, Any]
TYPES = ("openai", "anthropic")
DATA = [{"customer": f"Customer {number}", "total": number * 1.5, "paid": number % 2 == 0} for number in range(90)]
ODD = "which customers look suspicious"
CODE = "```python\n[row['customer'] for row in data if row['total'] > 130]\n```"
FOUND = ["Customer 87", "Customer 88", "Customer 89"]


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=TYPES)
def type(request: pytest.FixtureRequest) -> str:
    return request.param


def provider(api: Double, type: str, **more: Any) -> Provider:
    url = api.url if type == "openai" else api.root
    return Provider(**{"type": type, "model": MODEL, "url": url, "key": KEY, "timeout": 30.0, **more})


@asynccontextmanager
async def asked(api: Double, type: str, era: str = "modern", **more: Any) -> AsyncIterator[Asker]:
    config = Config(providers={"robot": provider(api, type, **more)})
    async with playing("sqlite", config=config, clock=SystemClock(), engines=ENGINES) as app:
        yield Asker(app, era)


def dataset(**more: Any) -> Json:
    return {"data": DATA, "operation": ODD, **more}


# What a model writes.


@real
async def test_an_operation_that_the_grammar_refuses_is_done_by_code_of_a_model_on_all_of_the_data(
    type: str, era: str
) -> None:
    async with model(CODE) as api, asked(api, type, era) as asker:
        told = await asker.told("process_large_dataset", **dataset())
        assert (told["result"], told["method"]) == (FOUND, "model")
        assert (told["original_size"], told["processed_size"]) == (90, 3)
        assert told["code"] == "[row['customer'] for row in data if row['total'] > 130]"
        assert told["model"] == {"provider": "robot", "model": double.ANSWERED}
        assert "A model wrote" in told["interpretation"] and "not understood without a model" in told["note"]
        assert not api.problems and len(api.heard) == 1


@real
async def test_what_the_grammar_understands_is_asked_of_no_model() -> None:
    async with model(CODE) as api, asked(api, "openai") as asker:
        told = await asker.told("process_large_dataset", data=DATA, operation="top 2 by total")
        assert told["method"] == "grammar"
        refused = await asker.failed("process_large_dataset", **dataset(parameters={"sql": "DROP TABLE data"}))
        assert refused["error_type"] == "ValueError"
        empty = await asker.failed("process_large_dataset", data=DATA, operation=" ")
        assert empty["error_type"] == "ValueError"
        assert not api.heard


@real
@pytest.mark.parametrize("samples", ["masked", "plain", "none"])
async def test_a_model_sees_the_shape_of_data_and_three_rows_as_configured_and_no_more(samples: str) -> None:
    async with model(CODE) as api, asked(api, "anthropic", samples=samples) as asker:
        await asker.told("process_large_dataset", **dataset())
        sent = json.loads(api.heard[0].text)
        assert sent["operation"] == ODD
        shape = sent["outline"]["data"]
        assert shape == {"list of": {"customer": "text", "total": "number", "paid": "true or false"}, "items": 90}
        rows = sent["outline"].get("samples", [])
        assert len(rows) == (0 if samples == "none" else 3)
        if samples == "masked":
            assert rows[-1] == {"customer": "Xxxxxxxx 99", "total": "999.9", "paid": False}
        names = {f"Customer {number}" for number in range(90)}
        seen = {name for name in names if json.dumps(name) in json.dumps(api.heard[0].body).replace("\\", "")}
        assert len(seen) == (3 if samples == "plain" else 0)


@real
async def test_code_of_a_model_for_data_calls_no_tool_and_reaches_nothing() -> None:
    tries = [
        "servers.sqlite.query(sql='x')",
        "__import__('os').environ['HOME']",
        "open('/etc/passwd').read()",
        "__import__('socket').create_connection(('127.0.0.1', 9))",
    ]
    async with model(*tries) as api, asked(api, "openai") as asker:
        for code in tries:
            told = await asker.failed("process_large_dataset", **dataset())
            assert told["error"].startswith("Sandbox error: ") and told["code"] == code


@real
async def test_context_has_the_code_rewritten_and_the_answer_shows_what_ran(type: str, era: str) -> None:
    async with model("Here it is:\n```python\n6 * 7\n```\nIt multiplies.") as api, asked(api, type, era) as asker:
        told = await asker.told("execute_code", code="6 + 7", context="multiply instead")
        assert (told["result"], told["code"]) == ("42", "6 * 7")
        assert "rewrote" in told["note"] and told["model"]["model"] == double.ANSWERED
        assert json.loads(api.heard[0].text) == {"code": "6 + 7", "instructions": "multiply instead"}
        plain = await asker.told("execute_code", code="6 + 7")
        assert plain["result"] == "13" and "code" not in plain and len(api.heard) == 1


@real
async def test_code_that_a_model_rewrote_has_the_rights_of_the_caller_and_no_more() -> None:
    written = ("servers.sqlite.query(sql='SELECT 1')", "servers.nowhere.query()")
    async with model(*written) as api, asked(api, "openai") as asker:
        told = await asker.told("execute_code", code="1", context="ask the database")
        assert "ada@example.org" in told["result"]
        failed = await asker.failed("execute_code", code="1", context="ask another one")
        assert failed["error"].startswith("Sandbox error: ")


# Without one.


@real
async def test_without_a_provider_nothing_pretends_to_be_one_and_the_answer_says_how_to_configure_it(era: str) -> None:
    async with playing("sqlite", clock=SystemClock(), engines=ENGINES) as app:
        asker = Asker(app, era)
        told = await asker.told("execute_code", code="6 * 7", context="be quick")
        assert told["result"] == "42" and "context was not used" in told["note"] and "`providers`" in told["note"]
        refused = await asker.failed("process_large_dataset", **dataset())
        assert '`providers` with `uses = ["datasets"]`' in refused["hint"]


@real
async def test_a_provider_without_its_key_says_so_and_is_not_asked() -> None:
    async with model() as api:
        text = f'[providers.robot]\ntype = "openai"\nmodel = "m"\nurl = "{api.url}"\nkey = "${{secret:nowhere}}"'
        config = configs.read(text, file="it.toml", environ={}, format="toml")
        async with playing("sqlite", config=config, clock=SystemClock(), engines=ENGINES) as app:
            told = await Asker(app, "modern").failed("process_large_dataset", **dataset())
            assert "something in its configuration is missing" in told["error"] and "doctor" in told["hint"]
            assert not api.heard and not api.problems


# What goes wrong.


WRONG_ANSWERS: dict[str, list[Any]] = {
    "a body that is cut off": [Broken(double.BREAK)],
    "chunks that stop": [Broken(double.STREAM)],
    "a huge body": [Broken(double.HUGE)],
    "no JSON": [Answer(200, b"<html>")],
    "JSON nested without end": [Answer(200, b"[" * 100_000)],
    "nothing in it": [Answer(200, {}), Answer(200, {"choices": []}), Answer(200, {"content": []})],
    "other types": [Answer(200, {"choices": {"message": 3}}), Answer(200, {"content": "text"})],
    "an empty text": [Answer(200, double.completion(" ")), Answer(200, double.message(" "))],
    "an answer that is cut": [
        Answer(200, double.completion("x", "length")),
        Answer(200, double.message(Turn([{"type": "text", "text": "x"}], "max_tokens"))),
    ],
    "a refusal": [
        Answer(200, double.completion("", refusal="I cannot")),
        Answer(200, double.message(Turn([{"type": "text", "text": "No"}], "refusal"))),
    ],
    "a redirect": [Answer(302, {}, {"Location": "http://127.0.0.1:9/"})],
    "an error without a body": [Answer(500, b"")],
}


@real
@pytest.mark.parametrize("wrong", WRONG_ANSWERS)
async def test_an_answer_of_no_use_fails_the_call_and_the_next_one_is_fine(wrong: str, type: str) -> None:
    bad = WRONG_ANSWERS[wrong]
    at = 0 if len(bad) < 2 else len(bad) - 2 + TYPES.index(type)
    async with model(bad[at], CODE) as api, asked(api, type) as asker:
        told = await asker.failed("process_large_dataset", **dataset())
        assert "robot" in told["error"] and told["error_type"] == "RuntimeError", told
        assert KEY not in json.dumps(told)
        assert (await asker.told("process_large_dataset", **dataset()))["result"] == FOUND
        assert len(api.heard) == 2, "nothing is sent again"


@real
async def test_a_key_that_is_refused_is_named_by_where_it_stands_and_never_shown(
    type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "sk-wrong-Qd0Lx9Wc4Rk2Tz8Vn1Mh6J"
    async with model() as api, asked(api, type, key=wrong) as asker:
        told = await asker.failed("process_large_dataset", **dataset())
        assert "HTTP 401" in told["error"] and "providers.robot.key" in told["hint"]
        assert wrong not in caplog.text + json.dumps(told) and api.problems


@real
async def test_what_an_api_says_of_a_key_reaches_no_client_and_no_log(
    type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = {"type": "error", "error": {"type": "authentication_error", "message": f"bad key {KEY} of account a-17"}}
    async with model(Answer(403, error)) as api, asked(api, type) as asker:
        told = await asker.failed("process_large_dataset", **dataset())
        assert "(authentication_error)" in told["error"]
        assert "a-17" not in json.dumps(told)
        assert KEY not in caplog.text + json.dumps(told) and "account a-17" in caplog.text


@real
async def test_a_key_that_an_api_takes_for_a_word_reaches_no_client_and_no_log(
    type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = "Zb7Qd0Lx9Wc4Rk2Tz8Vn1Mh6J"  # of no known shape
    error = {"type": "error", "error": {"type": key, "code": f"x-{key}", "message": key}}
    async with model(Answer(400, error)) as api, asked(api, type, key=key) as asker:
        api.key = key
        told = await asker.failed("process_large_dataset", **dataset())
        assert "HTTP 400" in told["error"]
        assert key not in caplog.text + json.dumps(told)


@real
async def test_an_answer_that_repeats_the_key_shows_it_to_no_client(
    type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for code in (f"```python\n['{KEY}', len(data)]\n```", f"```python\nnothing_such('{KEY}')\n```", KEY):
        async with model(code) as api, asked(api, type) as asker:
            told = await asker.call("process_large_dataset", dataset())
            assert api.heard and KEY not in json.dumps(told) + caplog.text


@real
async def test_a_model_that_is_not_there_is_a_mistake_of_the_configuration(type: str) -> None:
    async with model() as api, asked(api, type, model="another") as asker:
        told = await asker.failed("process_large_dataset", **dataset())
        assert "HTTP 404" in told["error"] and "`model`" in told["hint"]
        assert "model_not_found" in told["error"] or "not_found_error" in told["error"]


@real
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_provider_that_says_when_to_come_back_is_left_alone_until_then(status: int, type: str) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with model(Answer(status, busy, {"Retry-After": "120"}), CODE) as api, asked(api, type) as asker:
        told = await asker.failed("process_large_dataset", **dataset())
        assert told["retryAfter"] == 120 and f"HTTP {status} (overloaded_error)" in told["error"]
        again = await asker.failed("process_large_dataset", **dataset())
        assert 0 < again["retryAfter"] <= 120 and "cannot be asked yet" in again["error"]
        assert len(api.heard) == 1


@real
async def test_a_model_that_takes_too_long_ends_the_call(type: str) -> None:
    async with model(Broken(double.SILENCE)) as api, asked(api, type, timeout=0.2) as asker:
        told = await asker.failed("process_large_dataset", **dataset())
        assert told["error_type"] == "TimeoutError" and "within 0.2 s" in told["error"]
        await until(lambda: api.gone)


@real
async def test_a_call_that_is_cancelled_ends_the_request(type: str, era: str) -> None:
    async with model(Broken(double.SILENCE)) as api, asked(api, type, era) as asker:
        call = asyncio.ensure_future(asker.call("process_large_dataset", dataset()))
        await api.arrived.wait()
        for work in asker.visitor.app.http.under_way() if era == "modern" else asker.visitor.app.sessions.under_way():
            work.cancel()
        await until(lambda: api.gone)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@real
async def test_a_provider_that_cannot_be_reached_is_said_without_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async with model() as api:
        nowhere = api.url
    config = Config(providers={"robot": Provider(type="openai", model=MODEL, url=nowhere, key=KEY)})
    async with playing("sqlite", config=config, clock=SystemClock(), engines=ENGINES) as app:
        told = await Asker(app, "modern").failed("process_large_dataset", **dataset())
        assert "cannot be reached" in told["error"] and "127.0.0.1" not in json.dumps(told)
        assert "127.0.0.1" in caplog.text


# Bounds.


@real
async def test_requests_at_once_have_a_bound_and_so_has_what_waits() -> None:
    async with model(*[CODE] * 6) as api, asked(api, "openai", concurrency=1) as asker:
        told = await asyncio.gather(*(asker.told("process_large_dataset", **dataset()) for _ in range(6)))
        assert [each["result"] for each in told] == [FOUND] * 6
        assert api.most_connections == 1


@real
async def test_a_principal_asks_so_often_and_no_more() -> None:
    async with model(CODE, CODE, CODE) as api, asked(api, "anthropic", rate=Rate(2, 3600.0)) as asker:
        for _ in range(2):
            await asker.told("process_large_dataset", **dataset())
        told = await asker.failed("process_large_dataset", **dataset())
        assert told["retryAfter"] > 0 and "cannot be asked yet" in told["error"]
        assert len(api.heard) == 2


@real
async def test_secrets_of_the_gateway_are_not_in_what_a_model_is_sent() -> None:
    async with model("1") as api, asked(api, "openai", samples="plain") as asker:
        hidden = "ghp_" + "aB3" * 12
        rows = [{"note": f"{KEY} and {hidden}"}]
        await asker.told("process_large_dataset", data=rows, operation=f"{ODD} {KEY}")
        sent = json.dumps(api.heard[0].body)
        assert KEY not in sent and hidden not in sent


# Code that runs elsewhere.

HOSTED = {"uses": ("execution",)}


@real
async def test_code_runs_in_a_container_of_anthropic_where_that_is_configured(era: str) -> None:
    turn = Turn([*ran("python3 main.py", "333283335000\n"), {"type": "text", "text": "done"}])
    async with model(turn) as api, asked(api, "anthropic", era, **HOSTED) as asker:
        told = await asker.told("execute_code", code="sum(n * n for n in range(10000))", context="be exact")
        assert (told["result"], told["stdout"]) == ("333283335000", "333283335000\n")
        assert told["code"] == "python3 main.py" and "left this machine" in told["note"]
        assert told["engine"] == "Anthropic code_execution_20250825"
        body = api.heard[0].body
        assert body["tools"] == [{"type": "code_execution_20250825", "name": "code_execution"}]
        assert "container" not in body, "no container serves two runs"
        assert json.loads(api.heard[0].text)["instructions"] == "be exact"
        assert not api.problems


@real
async def test_a_paused_turn_is_taken_up_in_the_same_container() -> None:
    paused, rest = Turn(ran("mkdir -p w", ""), "pause_turn"), Turn(ran("python3 main.py", "7\n"))
    async with model(paused, rest) as api, asked(api, "anthropic", **HOSTED) as asker:
        told = await asker.told("execute_code", code="3 + 4")
        assert told["result"] == "7" and told["code"] == "mkdir -p w\n\npython3 main.py"
        second = api.heard[1].body
        assert second["container"] == double.CONTAINER
        assert second["messages"][1] == {"role": "assistant", "content": paused.blocks}
        assert not api.problems


ELSEWHERE: dict[str, tuple[list[Any], str]] = {
    "it fails": ([Turn(ran("python3 main.py", "a\n", "Traceback\nZeroDivisionError: no", 1))], "ZeroDivisionError: no"),
    "it takes too long": ([Turn(failed("execution_time_exceeded"))], "execution_time_exceeded"),
    "the tool is away": ([Turn(failed("unavailable"))], "unavailable"),
    "the model runs nothing": (["I think that it is 7."], "ran nothing"),
    "it is paused without end": ([Turn(ran("x"), "pause_turn")] * 5, "paused more than"),
    "the model refuses": ([Turn([{"type": "text", "text": "No"}], "refusal")], "refused"),
}


@real
@pytest.mark.parametrize("what", ELSEWHERE)
async def test_code_that_does_not_run_elsewhere_is_no_result(what: str) -> None:
    script, said = ELSEWHERE[what]
    async with model(*script) as api, asked(api, "anthropic", **HOSTED) as asker:
        told = await asker.failed("execute_code", code="3 + 4")
        assert said in told["error"], told
        assert len(api.heard) <= 4


@real
async def test_javascript_and_data_stay_here_where_python_runs_elsewhere() -> None:
    async with model() as api, asked(api, "anthropic", **HOSTED) as asker:
        assert (await asker.told("execute_code", code="return 6 * 7", language="javascript"))["result"] == "42"
        told = await asker.told("process_large_dataset", data=DATA, operation="top 1 by total")
        assert told["method"] == "grammar" and not api.heard


# Summaries of sessions.

SUMMARIES = {"uses": ("summaries",)}


async def ended(asker: Asker) -> Json:
    said: Json = {}
    for hook, params in (
        ("SessionStart", {}),
        ("PromptSubmit", {"prompt": f"Mend the parser; the key is {KEY}"}),
        ("Stop", {"last_assistant_message": "It is mended."}),
        ("SessionEnd", {}),
    ):
        said = await asker.told("call_hook", hook_type=hook, params={"session_id": "one", "cwd": "/there", **params})
    return said


async def handed_over(asker: Asker) -> str:
    params = {"session_id": "two", "cwd": "/there"}
    told = await asker.told("call_hook", hook_type="SessionStart", params=params)
    return told["restored"]["summary"]


async def retold(asker: Asker) -> None:
    await until(lambda: not list(asker.visitor.app.workspace.hooks._retelling))


@real
async def test_a_session_is_summed_up_by_a_model_where_that_is_configured(type: str, era: str) -> None:
    async with model("The parser is mended.\u001b[31m") as api, asked(api, type, era, **SUMMARIES) as asker:
        said = await ended(asker)
        assert "It is mended." in said["summary"], "nobody waits for the model"
        await retold(asker)
        summary = await handed_over(asker)
        assert f"## Summary, written by {double.ANSWERED} of robot\nThe parser is mended." in summary
        assert "\u001b" not in summary and summary.startswith("# Handoff: Mend the parser")
        assert KEY not in json.dumps(api.heard[0].body) and "It is mended." in api.heard[0].text


@real
async def test_where_the_model_fails_or_none_is_configured_the_summary_is_the_usual_one() -> None:
    async with model(Answer(500, b"")) as api, asked(api, "openai", **SUMMARIES) as asker:
        said = await ended(asker)
        await retold(asker)
        assert await handed_over(asker) == said["summary"] and api.heard
    async with model() as api, asked(api, "openai") as asker:
        await ended(asker)
        await retold(asker)
        assert not api.heard


@real
async def test_a_model_that_is_too_late_changes_nothing_that_was_handed_over() -> None:
    async with model(Broken(double.SILENCE)) as api, asked(api, "openai", **SUMMARIES) as asker:
        said = await ended(asker)
        await api.arrived.wait()
        assert await handed_over(asker) == said["summary"]


# Another configuration.


@real
async def test_another_configuration_asks_another_model_from_the_next_call_on() -> None:
    async with model(CODE) as first, model(CODE) as second:
        config = Config(providers={"robot": provider(first, "openai")})
        async with gateway(config=config, clock=SystemClock(), engines=ENGINES) as app:
            asker = Asker(app, "modern")
            await asker.told("process_large_dataset", **dataset())
            await asyncio.sleep(0)
            app.providers.prepared(Config(providers={"other": provider(second, "anthropic")}))()
            told = await asker.told("process_large_dataset", **dataset())
            assert told["model"]["provider"] == "other" and len(second.heard) == 1
