"""Operations in other words than those of the grammar's author: no answer is a wrong one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from foreign_operations import OPERATIONS, ROWS, InOrder

from toolgate.sandbox.dataset import runner


@pytest.mark.parametrize(("operation", "answers"), OPERATIONS, ids=[operation for operation, _ in OPERATIONS])
def test_an_answer_is_a_right_one_or_a_refusal(operation: str, answers: Sequence[Any]) -> None:
    reply = runner.process({"data": ROWS, "operation": operation})
    assert not reply["success"] or any(_is(reply["result"], answer) for answer in answers), reply


def test_half_of_what_can_be_done_is_done() -> None:
    assert len(OPERATIONS) >= 80
    possible = [operation for operation, answers in OPERATIONS if answers]
    done = [each for each in possible if runner.process({"data": ROWS, "operation": each})["success"]]
    assert len(done) >= len(possible) / 2


def _is(result: Any, answer: Any) -> bool:
    """Whether both have the same values in their rows, whatever their columns are called."""
    got, wanted = ([_values(row) for row in (each if isinstance(each, list) else [each])] for each in (result, answer))
    return got == wanted if isinstance(answer, InOrder) else sorted(got, key=str) == sorted(wanted, key=str)


def _values(row: Any) -> list[Any]:
    values: Any = row.values() if isinstance(row, dict) else row if isinstance(row, tuple) else [row]
    return sorted(map(_plain, values), key=str)


def _plain(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(float(value), 6)
    return json.dumps(value, sort_keys=True) if isinstance(value, list | dict) else value
