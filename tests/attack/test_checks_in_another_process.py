"""Compiling a schema, or holding arguments against it, may take long in ways that nobody has thought of. What is not
plain is left to a process that the kernel ends when it takes too long."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from processes.ground import offspring, until_gone

from toolgate.policy import checker as checkers
from toolgate.policy import schemas
from toolgate.policy.checker import TOO_SLOW, Checker
from toolgate.policy.schemas import FINE, ArgumentsVerdict

UNDECIDED = ArgumentsVerdict(is_whole=False)
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
META = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
PARSED = {"definitions": {"a": {"allOf": [{"contentMediaType": "application/json"}] * 60}}}

PARSED_IN_FULL = DRAFT_7 | PARSED | {"properties": {"a": {"allOf": [{"$ref": "#/definitions/a"}] * 60}}}


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checker]:
    monkeypatch.setattr(schemas, "_kept", schemas.Kept())
    made = Checker()
    yield made
    made.close()


@pytest.fixture
def compiles_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(text: bytes) -> schemas.Schema:
        raise AssertionError(f"compiled here: {text[:80]!r}")

    monkeypatch.setattr(schemas, "_compiled", compiles)


def check(
    checker: Checker, schema: Any, arguments: Any, whose: str = "ann", server: str = "there"
) -> tuple[str, ArgumentsVerdict]:
    given = json.dumps(schema).encode(), json.dumps(arguments).encode()
    found, verdict = asyncio.run(checker.check(whose, server, *given, UNDECIDED))
    return found.problem, verdict


def held(checker: Checker, whose: str = "bob", server: str = "another") -> int:
    """A check that takes no time; the process that made it."""
    problem, verdict = check(checker, {"properties": {"n": {"not": {"type": "string"}}}}, {"n": "x"}, whose, server)
    assert not problem and [each.pointer for each in verdict.wrong] == ["/n"]
    return process_of(checker)


def process_of(checker: Checker, lane: str = "_quick") -> int:
    process = vars(vars(checker)[lane])["_process"]
    assert isinstance(process, subprocess.Popen)
    return process.pid


@pytest.mark.usefixtures("compiles_nothing_here")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": r"\cA" * 20_000}}},
        {"properties": {"a": {"pattern": r"[\cB]" * 15_000}}},
        {"patternProperties": {r"\cA" * 20_000: {}}},
        {"propertyNames": {"pattern": r"\cA" * 20_000}},
    ],
    ids=["pattern", "class", "name", "names"],
)
def test_a_pattern_that_takes_long_to_compile_is_given_up_and_its_schema_not_used(
    checker: Checker, schema: Any
) -> None:
    """14 s, in which nobody else went on, whatever thread it was in."""
    assert check(checker, schema, {"a": "x"}) == (TOO_SLOW, UNDECIDED)
    assert check(checker, schema, {"a": "x"}) == (TOO_SLOW, UNDECIDED), "it is not tried again"
    held(checker)


@pytest.mark.usefixtures("compiles_nothing_here")
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (PARSED_IN_FULL, {"a": json.dumps([[]] * 150_000)}),
        ({"items": {"contains": {"pattern": r"(?=z)(\w+\s?)+$"}}}, [["a " * 60] * 1000] * 20),
    ],
    ids=["text that is parsed", "steps back"],
)
def test_arguments_that_take_long_to_check_are_left_to_the_server(
    checker: Checker, schema: Any, arguments: Any
) -> None:
    assert check(checker, schema, arguments) == ("", UNDECIDED)
    held(checker)


def test_errors_that_repeat_what_is_wrong_take_the_memory_of_another_process(checker: Checker) -> None:
    """Each place of a schema's own schema that refuses a text repeats it: 531 MB."""
    schema = {"properties": {"a": {"allOf": [META | {"title": str(n)} for n in range(400)]}}}
    problem, verdict = check(checker, schema, {"a": "x" * 120_000})
    assert not problem and (verdict is UNDECIDED or [each.pointer for each in verdict.wrong] == ["/a"] * 20)
    held(checker)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1, "b": 1}),
        ({"dependentRequired": {"a": ["b", "c"]}}, {"a": 1}),
        ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}]}, {"a": 1, "b": 2}),
        ({"properties": {"a": {"pattern": "^(?!x)"}}}, {"a": "xy"}),
        ({"properties": {"a": {"type": "string"}}}, {"a": ["x" * 1000] * 200}),
        ({"type": 7}, {}),
        ({"properties": {"a": {"type": "string"}}}, {"a": "\ud800"}),
    ],
)
def test_what_is_found_elsewhere_is_what_would_be_found_here(checker: Checker, schema: Any, arguments: Any) -> None:
    text, given = json.dumps(schema).encode(), json.dumps(arguments).encode()
    here = schemas.compiled(text, "another")
    assert check(checker, schema, arguments) == (here.problem, UNDECIDED if here.problem else here.judge(given))


def test_a_plain_schema_and_little_to_check_take_no_other_process(
    checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkers, "_started", lambda owner: pytest.fail("another process was started"))
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}}
    assert check(checker, schema, {"a": "x"}) == ("", FINE)
    assert [each.keyword for each in check(checker, schema, {"a": "7"})[1].wrong] == ["pattern"]


@pytest.mark.parametrize("of", [{"uniqueItems": True}, {"items": {"type": "number", "minimum": 1}}, {"type": "array"}])
def test_many_long_numbers_are_checked_elsewhere(of: Any) -> None:
    """250 of 4,000 digits: 11 to 23 s."""
    schema = schemas.here(json.dumps({"properties": {"a": of}}).encode(), "there")
    assert schema.judge_here(b'{"a":[%b]}' % b",".join([b"9" * 400] * 30)) is None
    beside = schemas.here(b'{"properties":{"a":{"type":"array"}}}', "there")
    assert beside.judge_here(b'{"a":[%b]}' % b",".join([b"9" * 18] * 500)) is FINE


def test_one_process_makes_all_checks_until_it_is_ended_and_then_another_does(checker: Checker) -> None:
    first = held(checker)
    assert held(checker) == first
    os.killpg(first, signal.SIGKILL)
    schema = {"properties": {"a": {"not": {"type": "null"}}}}
    assert check(checker, schema, {"a": None}) == ("", UNDECIDED), "an end from outside says nothing of a schema"
    assert [each.pointer for each in check(checker, schema, {"a": None})[1].wrong] == ["/a"]
    assert held(checker) != first


def test_a_check_that_takes_too_long_ends_a_fork_and_not_the_process(checker: Checker) -> None:
    first = held(checker)
    for number in range(3):
        assert check(checker, {"properties": {"a": {"pattern": r"\cA" * (20_000 + number)}}}, {"a": "x"})[0] == TOO_SLOW
        assert held(checker) == first


def test_what_dies_while_nobody_waits_gives_no_answer_to_the_next(checker: Checker) -> None:
    first = held(checker)
    (fork,) = offspring(first)
    os.kill(fork, signal.SIGKILL)
    assert not until_gone({fork}) and held(checker) == first and held(checker) == first


SLOW_TO_COMPILE = [{"properties": {"a": {"pattern": r"\cA" * (20_000 + number)}}} for number in range(checkers.OFTEN)]


@pytest.mark.parametrize("rival", ["of the server", "of the client"])
def test_who_has_much_that_takes_long_waits_for_itself(checker: Checker, rival: str) -> None:
    """One client with two connections: thirty checks of another's took 13 s."""
    if rival == "of the server":
        for schema in SLOW_TO_COMPILE:
            check(checker, schema, {"a": "x"}, "ann", "evil")
    else:
        for number in range(checkers.OFTEN):
            check(checker, PARSED_IN_FULL, {"a": json.dumps([[]] * (150_000 + number))}, "mallory", "there")
    slow = process_of(checker, "_slow")
    os.killpg(slow, signal.SIGSTOP)
    given = [b'{"not":{"required":["x"]}}', b'{"x":1}', UNDECIDED]
    theirs = ("ann", "evil") if rival == "of the server" else ("mallory", "there")

    async def run() -> None:
        waits = asyncio.ensure_future(checker.check(*theirs, *given))  # type: ignore[arg-type]
        for whose, server in (("bob", "there"), ("ann", "there"), ("bob", "another")):
            _, verdict = await asyncio.wait_for(checker.check(whose, server, *given), 20)  # type: ignore[arg-type]
            assert verdict.wrong and not waits.done()
        checker.close()
        await waits

    asyncio.run(run())


def test_the_process_ends_with_its_checker_also_in_the_middle_of_a_check() -> None:
    made = Checker()
    all_of_them = {pid := held(made), *offspring(pid)}
    os.killpg(pid, signal.SIGSTOP)  # it will not answer
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(check(made, {"not": {"required": ["x"]}}, {"x": 1})))
    waiting.start()
    made.close()
    waiting.join(20)
    assert found == [("", UNDECIDED)] and not until_gone(all_of_them)
    assert check(made, {"not": {"required": ["y"]}}, {"y": 1}) == ("", UNDECIDED), "no other is started"


def test_the_process_ends_with_a_gateway_that_is_killed() -> None:
    program = (
        "import asyncio, time; from toolgate.policy.checker import Checker; made = Checker();"
        "asyncio.run(made.check('ann', 'there', b'{\"not\":{\"type\":\"string\"}}', b'{}'));"
        "print(vars(vars(made)['_quick'])['_process'].pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        pid = int(owner.stdout.readline())
        all_of_them = {pid, *offspring(pid)}
        owner.kill()
    assert len(all_of_them) == 2 and not until_gone(all_of_them)
