"""What the admin API says of itself is true: any request that its document allows, or nearly, is answered so."""

from __future__ import annotations

import asyncio
import itertools
import json
from asyncio import Runner
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import requests
import schemathesis
from doors.issuers import KEYS, client
from doors.test_pages_of_agents import record, task
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from inmemory import GREETER, THE_SOCKET, Response, Scripted, Visitor, gateway, said, tools
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from toolgate.auth.access import THE_OPERATOR
from toolgate.config import Config
from toolgate.config.access import Approvals, Permissions
from toolgate.core.model import Principal
from toolgate.frontends.web.admin import ROUTES

PATH = "/admin/openapi.json"
WITHOUT_A_FILE = ("/configuration/file", "/reload", "/links")  # what a gateway in memory cannot do
ASKS = Config(
    clients=(client("ann", key=KEYS["ada"], permissions=Permissions(everything="ask")),),
    approvals=Approvals(by=("operator",), wait=0.0),
)
BASE = "http://127.0.0.1:8765"
PATIENCE = 20.0  # seconds for one answer
BOUNDS = settings(
    max_examples=10,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


async def document(visitor: Visitor) -> Any:
    response = await visitor.begin("GET", b"", path=PATH, client=THE_SOCKET).response()
    assert response.status == 200
    return json.loads(response.body)


async def test_the_document_has_each_operation_of_the_table_and_is_for_administrators() -> None:
    async with gateway(GREETER) as app:
        told = await document(Visitor(app))
        assert told["openapi"] == "3.1.0"
        found = {
            (path, method.upper()) for path, item in told["paths"].items() for method in item if method != "parameters"
        }
        assert found == {("/admin" + path, method) for path, methods in ROUTES.items() for method in methods}
        assert all(
            item[method]["summary"] for item in told["paths"].values() for method in item if method != "parameters"
        )


async def somebody(_headers: Any, address: str, _path: str) -> Principal:
    return Principal("somebody", address)


async def test_nobody_else_reads_the_document() -> None:
    async with gateway(GREETER, identify=somebody) as app:
        assert (await Visitor(app).begin("GET", b"", path=PATH).response()).status == 403


@pytest.mark.parametrize("path", ROUTES)
def test_no_request_makes_the_gateway_fail_or_answer_what_the_document_does_not_say(path: str) -> None:
    scripted = Scripted(tools_list=tools("echo"), tools_call=said("hello"))
    opened = gateway(GREETER, scripts={"scripted": scripted})
    with Runner() as runner, ExitStack() as stack:
        visitor = Visitor(runner.run(opened.__aenter__()))
        stack.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
        told = runner.run(document(visitor))
        del told["security"]  # who comes in is tested elsewhere: here it is the operator
        schema = schemathesis.openapi.from_dict(told)

        def held(case: Case) -> None:
            sent = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
            body = sent.body.encode() if isinstance(sent.body, str) else sent.body or b""
            answered = runner.run(answer(visitor, case.method, unquote(urlsplit(sent.url).path), body))
            case.validate_response(as_schemathesis(answered, sent), checks=CHECKS)

        for method, mode in itertools.product(ROUTES[path], GenerationMode):
            with suppress(Unsatisfiable):  # where nothing can be wrong with a request
                BOUNDS(given(case=schema["/admin" + path][method].as_strategy(mode))(held))()


async def test_what_is_there_is_answered_as_the_document_says() -> None:
    """Those above ask for names that nobody has: here each thing is there, and more is answered than refusals."""
    scripted = Scripted(tools_list=tools("echo"), tools_call=said("hello"))
    async with gateway(config=ASKS, scripts={"there": scripted}) as app:
        visitor, ann = Visitor(app), Visitor(app, authorization=f"Bearer {KEYS['ada']}")
        await ann.ask_modern("tools/call", name="there__echo", arguments={})
        (waiting,) = app._frontend_deps.deciding.approvals.requests()
        await record(app, "a-session", THE_OPERATOR, title="of an agent", last_prompt="go on")
        names = {"approvals": waiting.id, "access": "ann", "tasks": await task(app, "a task"), "sessions": "a-session"}
        schema = schemathesis.openapi.from_dict(await document(visitor))
        for path, methods in ROUTES.items():
            kind = path.split("/")[1]
            for method, operation in methods.items():
                if method == "DELETE" or operation.is_stream or (operation.body and operation.needs_body):
                    continue
                answered = await answer(visitor, method, "/admin" + path.replace("{name}", names.get(kind, "there")))
                case = schema["/admin" + path][method].Case(path_parameters={"name": "any"})
                sent = requests.Request(method, BASE + "/admin" + path).prepare()
                case.validate_response(as_schemathesis(answered, sent), checks=CHECKS)
                assert answered.status < 300 or path in WITHOUT_A_FILE, (path, answered.body)


async def answer(visitor: Visitor, method: str, path: str, body: bytes = b"") -> Response:
    """Of a stream, its beginning."""
    async with asyncio.timeout(PATIENCE):
        exchange = visitor.begin(method, body, path=path, client=THE_SOCKET)
        while not exchange.work.done() and not exchange.so_far.is_stream:
            await asyncio.sleep(0)
        if not exchange.so_far.is_stream:
            return await exchange.response()
        await exchange.gone()
        return exchange.so_far


def as_schemathesis(answered: Response, sent: requests.PreparedRequest) -> schemathesis.Response:
    headers = {name: [value] for name, value in answered.headers.items()}
    return schemathesis.Response(answered.status, headers, answered.body, sent, 0.0, False)
