"""Code that a client has run: what it prints and returns, which tools it reaches, and what they ask meanwhile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from inmemory import Scripted, gateway, said, tools
from processes.ground import real

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.config.sandbox import Sandbox
from toolgate.core.clock import SystemClock
from toolgate.core.model import Principal
from toolgate.frontends.guards import Headers
from toolgate.sandbox.services import ENGINES

sys.path.insert(0, str(Path(__file__).parents[1] / "behaviour"))

import examples
from stage import PIXEL, ROWS, Asker, at_least, playing

EXAMPLES = {example.id: example.body for example in examples.kept()}


def real_code() -> dict[str, Any]:
    """For a gateway that runs code: time is real there, and a clock is of one event loop."""
    return {"clock": SystemClock(), "engines": ENGINES}


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def run(asker: Asker, code: str) -> tuple[str, bool]:
    """The text of `mcp_execute`, and whether it failed."""
    result = await asker.call("mcp_execute", {"code": code})
    return "".join(block["text"] for block in result["content"]), bool(result.get("isError"))


@real
@pytest.mark.promise("002.execute.console")
async def test_what_code_prints_stands_before_its_value_and_failures_have_a_prefix(era: str) -> None:
    async with playing("sqlite", **real_code()) as app:
        asker = Asker(app, era)
        assert await run(asker, "console.log('one'); console.log({two: 2}); return 'three'") == (
            'one\n{"two":2}\nthree',
            False,
        )
        assert await run(asker, "const unused = 1") == ("(no output)", False)
        assert await run(asker, "console.log('seen'); throw new TypeError('odd')") == (
            "seen\nSandbox error: TypeError: odd\n    at script.js:1:28",
            True,
        )
        text, failed = await run(asker, "x" * 51_201)
        assert (text, failed) == ("mcp_execute error: code exceeds 51200 bytes", True)


@real
@pytest.mark.promise("002.execute.globals")
async def test_the_globals_of_the_text_are_there(era: str) -> None:
    names = [
        "JSON",
        "Math",
        "Date",
        "Array",
        "Map",
        "Set",
        "Promise",
        "Object",
        "String",
        "Number",
        "Boolean",
        "RegExp",
        "Error",
        "parseInt",
        "parseFloat",
        "isNaN",
        "isFinite",
        "encodeURIComponent",
        "decodeURIComponent",
        "encodeURI",
        "decodeURI",
        "setTimeout",
        "clearTimeout",
        "console",
        "sleep",
        "servers",
    ]
    listed = ", ".join(f"[{json.dumps(name)}, typeof {name}]" for name in names)
    for strict in (False, True):
        config = Config(sandbox=Sandbox(strict_globals=strict))
        async with playing("sqlite", config=config, **real_code()) as app:
            text, failed = await run(
                Asker(app, era), f"await sleep(1); return [{listed}].filter(e => e[1] === 'undefined')"
            )
            assert (text, failed) == ("[]", False)


@real
@pytest.mark.promise("002.execute.missing")
async def test_what_reaches_out_of_the_sandbox_is_not_there(era: str) -> None:
    names = "process require module exports Buffer __dirname __filename SharedArrayBuffer WebAssembly fetch globalThis"
    listed = ", ".join(f"typeof {name}" for name in names.split())
    async with playing("sqlite", **real_code()) as app:
        asker = Asker(app, era)
        assert await run(asker, f"return [{listed}].filter(type => type !== 'undefined')") == ("[]", False)
        assert await run(asker, "try { eval('1') } catch (e) { return e.name }") == ("EvalError", False)
        text, failed = await run(asker, "return (async () => {}).constructor('return 1')()")
        assert failed and "Sandbox error: EvalError" in text


@real
@pytest.mark.promise("002.execute.servers")
async def test_code_reaches_the_tools_of_several_servers_by_any_spelling(era: str) -> None:
    code = """
        const whole = await servers.sqlite.callRaw('query', { sql: 'SELECT 1' });
        const [one, two] = await servers.batch([
            { server: 'sqlite', tool: 'query', arguments: { sql: 'SELECT 2' } },
            { server: 'playwright', tool: 'browser_navigate', arguments: { url: 'https://example.com' } },
        ]);
        const navigate = servers['playwright']['browser_navigate'];
        return [whole.structuredContent, await servers.sqlite.query({ sql: 'SELECT 3' }), one, two,
                await navigate({ url: 'https://example.org' })];
    """
    async with playing("sqlite", "playwright", **real_code()) as app:
        text, failed = await run(Asker(app, era), code)
        assert not failed, text
        whole, rows, one, two, there = json.loads(text)
        assert whole == rows == {"rows": ROWS}
        assert (one["value"], two["value"]) == ({"rows": ROWS}, "Navigated to https://example.com")
        assert there == "Navigated to https://example.org"


@real
@pytest.mark.promise("002.execute.limits")
async def test_code_that_does_not_end_is_ended_and_what_it_printed_is_kept(era: str) -> None:
    config = Config(sandbox=Sandbox(timeout=0.5))
    async with playing("sqlite", config=config, **real_code()) as app:
        text, failed = await run(Asker(app, era), "console.log('before'); await sleep(1); for (;;) {}")
        assert (text, failed) == ("before\nSandbox error: execution timed out after 500ms", True)


@real
@pytest.mark.promise("004.code.execute")
async def test_code_in_python_and_javascript_gives_a_text_and_how_long_it_took(era: str) -> None:
    async with playing("sqlite", **real_code()) as app:
        asker = Asker(app, era)
        told = await asker.told("execute_code", code="print('seen')\nrows = servers.sqlite.query(sql='SELECT 1')\nrows")
        assert (told["success"], told["language"], told["stdout"]) == (True, "python", "seen")
        assert json.loads(told["result"]) == {"rows": ROWS}
        assert told["execution_time"] >= 0
        told = await asker.told("execute_code", code="print('seen')\nprint('\"🙂')")
        assert told["result"] == 'seen\n"🙂' and "stdout" not in told
        told = await asker.told("execute_code", code="return 6 * 7", language="JavaScript")
        assert (told["result"], told["language"]) == ("42", "javascript")
        told = await asker.failed("execute_code", code="1 / 0")
        assert told["error"].startswith("Sandbox error: ZeroDivisionError: division by zero")
        told = await asker.failed("execute_code", code="1", language="cobol")
        assert (told["error_type"], "python or javascript" in told["error"]) == ("ValueError", True)


@real
@pytest.mark.promise("004.code.dataset")
async def test_a_dataset_is_worked_down_as_a_whole_or_refused(era: str) -> None:
    data = [
        {"name": f"n{number}", "status": ("open", "closed")[number % 3 == 0], "price": number} for number in range(90)
    ]
    async with playing("sqlite", **real_code()) as app:
        asker = Asker(app, era)
        told = await asker.told("process_large_dataset", data=data, operation="count by status")
        assert told["result"] == [{"status": "closed", "count": 30}, {"status": "open", "count": 60}]
        assert (told["original_size"], told["processed_size"], told["method"]) == (90, 2, "grammar")
        for parameters in (
            {"sql": "SELECT max(price) AS most FROM data"},
            {"code": "[{'most': max(r['price'] for r in data)}]"},
        ):
            told = await asker.told("process_large_dataset", data=data, operation="", parameters=parameters)
            assert (told["result"], told["method"]) == ([{"most": 89}], next(iter(parameters)))
        told = await asker.failed("process_large_dataset", data=data, operation="find the interesting ones")
        assert told["error_type"] == "ValueError" and "hint" in told


@real
@pytest.mark.promise("b.surfaces.missing-engine")
async def test_without_an_engine_the_tools_are_not_listed_and_say_what_to_install(era: str) -> None:
    async with playing("sqlite", engines={}) as app:
        asker = Asker(app, era, "/mcp/all")
        assert not {"mcp_execute", "execute_code", "process_large_dataset"} & set(await asker.listed())
        text, failed = await run(asker, "return 1")
        assert failed and text.startswith("mcp_execute error: ")


# The examples of the texts.


@real
@pytest.mark.promise("b.rulings.10")
async def test_the_examples_of_mcp_execute_run_as_they_stand(era: str) -> None:
    async with playing("sqlite", "playwright", **real_code()) as app:
        asker = Asker(app, era)
        first = await asker.call("mcp_execute", EXAMPLES["002 mcp_execute 2"])
        assert json.loads(first["content"][0]["text"]) == {"rows": ROWS}
        second = await asker.call("mcp_execute", EXAMPLES["002 mcp_execute 3"])
        assert json.loads(second["content"][0]["text"]) == {"screenshot": "[image]", "dbStatus": {"rows": ROWS}}
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        assert second["content"][1:] == [image]
        third = await asker.call("mcp_execute", EXAMPLES["002 mcp_execute 4"])
        assert third["content"] == [{"type": "text", "text": "\n".join(EXAMPLES["002 mcp_execute 5"][:2])}, image]


@real
@pytest.mark.promise("b.rulings.10")
async def test_the_example_of_execute_code_runs_as_it_stands(era: str) -> None:
    async with playing("sqlite", **real_code()) as app:
        told = await Asker(app, era).told("execute_code", code="sum(i * i for i in range(10000))")
        at_least(EXAMPLES["004 execute_code 3"], told)
        assert (told["result"], told["language"]) == ("333283335000", "python")


@real
@pytest.mark.promise("b.rulings.10")
async def test_the_example_of_process_large_dataset_runs_as_it_stands(era: str) -> None:
    data = [{"id": number, "price": number % 977} for number in range(10_000)]
    async with playing("sqlite", **real_code()) as app:
        told = await Asker(app, era).told("process_large_dataset", data=data, operation="top 100 by price")
        at_least(EXAMPLES["004 process_large_dataset 3"], told | {"result": []})
        assert len(told["result"]) == 100
        assert (told["original_size"], told["processed_size"], told["reduction_percent"]) == (10_000, 100, 99.0)


async def as_ann(headers: Headers, address: str, path: str) -> Principal:
    return Principal("ann", client="ann")


def opened() -> Scripted:
    return Scripted(tools_list=tools("query", "open"), tools_call=lambda params: said(f"{params['name']} done"))


@real
async def test_code_does_not_reach_what_its_caller_may_not_use_however_it_names_it(era: str) -> None:
    permissions = Permissions(tools={"sqlite__query": "off"})
    config = Config(clients=(KnownClient(id="ann", name="ann", servers="all", permissions=permissions),))
    code = """
        const refused = [];
        const names = Object.keys(servers.sqlite);
        for (const reach of [
            () => servers.sqlite.query({}),
            () => servers['sqlite']['query']({}),
            () => servers.sqlite.call('query', {}),
            () => servers.sqlite.callRaw('query', {}),
            () => servers['sql' + 'ite'].call(['que', 'ry'].join(''), {}),
            () => { const tool = servers.sqlite.query; return tool({}) },
            async () => {
                const [one] = await servers.batch([{ server: 'sqlite', tool: 'query', arguments: {} }]);
                if (one.error) throw one.error;
            },
            () => servers.SQLite.query({}),
            () => servers.toolgate.call('mcp_call', { server: 'sqlite', tool: 'query' }),
        ]) {
            try { await reach(); refused.push('reached') } catch (error) { refused.push('refused') }
        }
        return [names, refused, await servers.sqlite.open({})];
    """
    script = opened()
    async with gateway(config=config, scripts={"sqlite": script}, identify=as_ann, **real_code()) as app:
        asker = Asker(app, era)
        assert await asker.listed() == ["sqlite__open"]
        text, failed = await run(asker, code)
        assert not failed, text
        assert json.loads(text) == [["open"], ["refused"] * 9, "open done"]
        assert [each["params"]["name"] for each in script.requests if each["method"] == "tools/call"] == ["open"]
