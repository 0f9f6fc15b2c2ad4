"""A request → a reply: the operation by SQL, by steps, or in English, on the whole data.

    {"data": …, "operation": "top 5 by price", "parameters": {…}?, "seconds": 30?, "samples": "masked"?}

A reply is that of seed 004, without its `execution_time`, which the caller measures. It never raises. With
`samples`, the refusal of an operation in English has an `outline` of the data, by which a model may write code for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolgate.sandbox.dataset import grammar, outline, sql, steps
from toolgate.sandbox.dataset.tables import Refused, Table, is_object, listed, quoted, sizes, table_of

SECONDS = 30.0
PARAMETERS = frozenset({"sql", "steps", "path", "header"})


def process(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `process_large_dataset` answers. A refusal says in `error` why, and in `hints` what to write instead."""
    try:
        return _processed(request)
    except Refused as refused:
        return _refusal(str(refused), "OperationRefused", list(refused.hints)) | _outlined(request)
    except RecursionError:
        return _refusal("The data is nested too deeply", "OperationRefused", [])
    except MemoryError:
        return _refusal("The data, or what is made of it, needs more memory than the sandbox has", "MemoryError", [])


def _refusal(message: str, kind: str, hints: list[str]) -> dict[str, Any]:
    return {"success": False, "error": message, "error_type": kind, "hints": hints}


def _outlined(request: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing where it is not the grammar that refused, or nobody wants to know."""
    if "samples" not in request:
        return {}
    operation, parameters = request.get("operation"), request.get("parameters")
    is_english = isinstance(operation, str) and operation.strip()
    is_plain = parameters is None or (is_object(parameters) and parameters.keys() <= {"path", "header"})
    if not is_english or not is_plain:
        return {}
    return {"outline": outline.outline(request["data"], request["samples"])}


def _processed(request: Mapping[str, Any]) -> dict[str, Any]:
    operation, parameters = request.get("operation"), _parameters(request.get("parameters"))
    table = table_of(request.get("data"), parameters.get("path"), parameters.get("header"))
    if "sql" in parameters:
        statement = parameters["sql"]
        made = sql.run(statement, table, float(request.get("seconds", SECONDS)))
        return _reply(table, made, sql.interpretation(statement, table), "sql", ())
    if "steps" in parameters:
        made = steps.run(parameters["steps"], table)
        return _reply(table, made, steps.interpretation(parameters["steps"]), "steps", ())
    if not isinstance(operation, str):
        raise Refused("operation must be a text", *grammar.EXAMPLES)
    found = grammar.understood(operation, table)
    reply = _reply(table, found.table, steps.interpretation(found.steps), "grammar", found.notes)
    return {**reply, "steps": found.steps}


def _parameters(given: Any) -> Mapping[str, Any]:
    """The parameters that are known; an unknown one is refused, since it would change what is meant."""
    parameters: Mapping[str, Any] = {} if given is None else given
    if not isinstance(parameters, dict):
        raise Refused("parameters must be an object")
    unknown = parameters.keys() - PARAMETERS
    if unknown:
        raise Refused(
            f"Unknown parameters: {listed(map(quoted, sorted(unknown)))}. Known are {listed(sorted(PARAMETERS))}"
        )
    if {"sql", "steps"} <= parameters.keys():
        raise Refused("Give parameters.sql or parameters.steps, not both")
    if not isinstance(parameters.get("path", ""), str) or not isinstance(parameters.get("header", True), bool):
        raise Refused("parameters.path is a text, and parameters.header true or false")
    return parameters


def _reply(before: Table, after: Table, interpretation: str, method: str, notes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "success": True,
        "result": steps.result(after),
        **sizes(len(before.rows), len(after.rows)),
        "interpretation": interpretation,
        "method": method,
        **({"notes": told} if (told := list(dict.fromkeys([*after.notes, *notes]))) else {}),
    }
