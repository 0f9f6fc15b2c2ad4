"""English operations on real data: each has the result that plain Python computes, or is refused. None is wrong."""

import math

import pytest
from unit.sandbox.dataset.operations import CASES, DATA, Case

from toolgate.sandbox.dataset.runner import process


@pytest.mark.parametrize("case", CASES, ids=[f"{case.data}: {case.text}" for case in CASES])
def test_an_operation_has_its_result_or_is_refused(case: Case):
    reply = process({"data": DATA[case.data], "operation": case.text})
    if case.expected is None:
        assert not reply["success"], f"done: {reply.get('interpretation')}"
        assert (case.refusal or "") in " ".join([reply["error"], *reply["hints"]])
    else:
        assert reply["success"], reply
        assert same(reply["result"], case.expected(DATA[case.data])), reply
        assert reply["interpretation"] and reply["method"] == "grammar"


def same(one: object, other: object) -> bool:
    """Equal, and numbers to a relative error of 1e-9."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and one == other
