"""A tool that its caller may not use, code cannot reach by any way, and what it may use it reaches by each."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from inmemory import Json, Scripted, Visitor, gateway, said, tools
from processes.ground import real
from sandboxes import detours

from toolgate.app import App
from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions, Verdict
from toolgate.core.clock import SystemClock
from toolgate.core.model import Principal
from toolgate.core.spelling import as_a_lenient_reader
from toolgate.frontends.guards import Headers
from toolgate.sandbox import monty, stored
from toolgate.sandbox.services import ENGINES, MakeEngine
from toolgate.sandbox.stored import StoredScripts
from toolgate.state.memory import MemoryStore

SECRET = "the rows that nobody may see"
HEAD = '// /// toolgate\n// name = "{}"\n// description = "Does it."\n// ///\n'
STORED = {
    "relay": "const one = await servers.sqlite.query({}); return one;",
    "closed": "return await servers.sqlite.open({});",
    "forward": "return await servers[data.server].call(data.tool, {});",
}


class Way(NamedTuple):
    """A tool by which a client has code run, the language, and what runs it."""

    tool: str
    language: str
    engines: Mapping[str, MakeEngine] = ENGINES
    opens: int = 40  # detours that would lead to the tool if it were not denied

    def arguments(self, code: str) -> Json:
        if self.tool == "execute_code":
            return {"code": code, "language": self.language, "timeout": 100}
        if self.tool == "mcp_execute":
            return {"code": code}
        return {"data": [1], "operation": "", "parameters": {"code": code}, "timeout": 100}


WAYS = {
    "execute_code, JavaScript": Way("execute_code", "javascript"),
    "execute_code, Python": Way("execute_code", "python"),
    "mcp_execute": Way("mcp_execute", "javascript"),
    "code for a dataset": Way("process_large_dataset", "python"),
}
if monty.is_installed():
    of_monty = {**ENGINES, "python": lambda supervisor, limits, _: monty.engine(supervisor, limits)}
    WAYS["execute_code, monty"] = Way("execute_code", "python", of_monty, opens=15)
each_way = pytest.mark.parametrize("way", WAYS)


class Sqlite(Scripted):
    """It takes any name for the denied tool's that a careless reader might."""

    def __init__(self) -> None:
        super().__init__(tools_list=tools("query", "open"), tools_call=self.call)
        self.reached: list[str] = []
        self.answers |= {"resources/read": self.other, "prompts/get": self.other, "tasks/result": self.other}

    def call(self, params: Json) -> Json:
        letters = re.sub(r"[^a-z]", "", as_a_lenient_reader(params["name"]))
        if "query" in letters or "query" in json.dumps(params.get("_meta", {})):
            self.reached.append(params["name"])
            return said(SECRET)
        return said("open done")

    def other(self, params: Json) -> Json:
        self.reached.append(json.dumps(params))
        return said(SECRET)


async def as_ann(headers: Headers, address: str, path: str) -> Principal:
    return Principal("ann", client="ann")


@asynccontextmanager
async def opened(
    verdict: Verdict = "off", engines: Mapping[str, MakeEngine] = ENGINES
) -> AsyncGenerator[tuple[Visitor, Sqlite]]:
    """A gateway whose client may use all but `query`, and the script `closed`."""
    permissions = Permissions(tools={"sqlite__query": verdict, "gobby-scripts__closed": verdict})
    config = Config(clients=(KnownClient(id="ann", name="ann", servers="all", permissions=permissions),))
    clock, sqlite = SystemClock(), Sqlite()
    store = MemoryStore(clock)
    kept = StoredScripts(store, "")
    for name, text in STORED.items():
        assert await kept.approve(stored.read(HEAD.format(name) + text), None, 0.0, "ann")
    servers = {"sqlite": sqlite, "shop": Scripted(tools_list=tools("open"), tools_call=said("open done"))}
    more: Any = {"clock": clock, "engines": engines, "identify": as_ann, "store": store}
    async with gateway(config=config, scripts=servers, **more) as app:
        await _listed(app)
        yield Visitor(app), sqlite


async def _listed(app: App) -> None:
    listed = (await Visitor(app).ask("tools/list")).result["tools"]
    assert {each["name"] for each in listed} >= {"sqlite__open", "gobby-scripts__relay", "gobby-scripts__forward"}


def in_javascript(codes: Iterable[str]) -> str:
    """All of them, each whatever the one before has come to; but not for long."""
    attempts = "\n".join(f"await attempt(async () => ({code}));" for code in codes)
    return f"""
        const came = [];
        async function attempt(way) {{
            try {{ came.push(await Promise.race([way(), sleep(1000)])) }} catch (error) {{ came.push(null) }}
        }}
        {attempts}
        return came.map((each) => typeof each === 'string' ? each : each ?? null);
    """


def in_python(codes: Iterable[str]) -> str:
    attempts = "".join(f"attempt(lambda: ({code}))\n" for code in codes)
    return f"""
came = []
def attempt(way):
    try:
        came.append(way())
    except BaseException as error:
        came.append(None)
{attempts}
came
"""


WRITTEN = {"javascript": in_javascript, "python": in_python}


async def run(visitor: Visitor, way: Way, code: str) -> str:
    """All that is told of it."""
    return (await visitor.ask("tools/call", name=way.tool, arguments=way.arguments(code))).body.decode()


async def came(visitor: Visitor, language: str, codes: Iterable[str]) -> Any:
    reply = json.loads(await run(visitor, Way("execute_code", language), WRITTEN[language](codes)))
    told = json.loads(reply["result"]["content"][0]["text"])
    assert told["success"], told
    return json.loads(told["result"])


def all_of(language: str) -> tuple[str, ...]:
    return (*detours.JAVASCRIPT, *detours.SPOILING_JAVASCRIPT) if language == "javascript" else detours.PYTHON


def chunks(language: str) -> list[tuple[str, ...]]:
    """All of a language, a dozen in a run, but those that would spoil others."""
    codes = detours.JAVASCRIPT if language == "javascript" else detours.PYTHON
    alone = detours.SPOILING_JAVASCRIPT if language == "javascript" else ()
    return [*(codes[at : at + 12] for at in range(0, len(codes), 12)), *((code,) for code in alone)]


def test_there_are_more_than_sixty() -> None:
    assert len(set(all_of("javascript"))) + len(set(all_of("python"))) >= 280
    assert len(set(all_of("javascript"))) >= 60 and len(set(all_of("python"))) >= 60


async def none_leads_there(way: Way, runs: Iterable[tuple[str, ...]]) -> None:
    async with opened(engines=way.engines) as (visitor, sqlite):
        for codes in runs:
            told = await run(visitor, way, WRITTEN[way.language](codes))
            assert SECRET not in told and sqlite.reached == [], (codes, sqlite.reached, told)


@each_way
@real
async def test_no_detour_leads_to_a_tool_that_is_denied(way: str) -> None:
    await none_leads_there(WAYS[way], chunks(WAYS[way].language))


@each_way
@real
async def test_many_of_them_would_lead_there_if_it_were_not_denied(way: str) -> None:
    tried = WAYS[way]
    async with opened("allow", tried.engines) as (visitor, sqlite):
        for codes in chunks(tried.language):
            await run(visitor, tried, WRITTEN[tried.language](codes))
        assert len(sqlite.reached) >= tried.opens


@real
async def test_no_line_that_is_forged_leads_to_it() -> None:
    way = WAYS["execute_code, Python"]
    async with opened() as (visitor, sqlite):
        for line in detours.LINES_OF_PYTHON:
            for code in (f"servers._bridge.say_text({line!r})\nservers._bridge.read()", f"import os\n{_written(line)}"):
                told = await run(visitor, way, code)
                assert SECRET not in told and sqlite.reached == [], (line, told)


def _written(line: str) -> str:
    return f"os.write(servers._bridge._writing, {line!r}.encode() + b'\\n')\nservers._bridge.read()"


@pytest.mark.attack
@pytest.mark.timeout(900)
@each_way
def test_no_detour_leads_there_in_a_run_of_its_own(way: str, counted: Callable[[str], None]) -> None:
    codes = all_of(WAYS[way].language)

    @real
    async def each_alone() -> None:
        await none_leads_there(WAYS[way], ((code,) for code in codes))

    each_alone()
    counted(f"detours around a denied tool, {way}: 0 of {len(codes)} led there")


@real
async def test_each_permitted_way_leads_to_a_tool_that_is_permitted() -> None:
    async with opened() as (visitor, sqlite):
        for language, codes in (
            ("javascript", detours.WAYS_OF_JAVASCRIPT),
            ("python", detours.WAYS_OF_PYTHON),
        ):
            assert await came(visitor, language, codes) == ["open done"] * len(codes)
        assert sqlite.reached == []


@pytest.mark.parametrize("way", ["execute_code, JavaScript", "execute_code, Python", "mcp_execute"])
@pytest.mark.parametrize("tool", ["open", "query"])
@real
async def test_a_call_by_code_has_no_more_values_than_one_of_its_caller(tool: str, way: str) -> None:
    """As many would be looked at in one step, and nobody else's call meanwhile."""
    javascript = f"await servers.sqlite.{tool}({{o: Array(150000).fill([])}}).catch((error) => String(error))"
    call = f"try:\n    servers.sqlite.{tool}(o=[[]] * 150000)"
    python = f"came = ''\n{call}\nexcept Exception as error:\n    came = str(error)\ncame"
    tried = WAYS[way]
    async with opened() as (visitor, sqlite):
        told = await run(visitor, tried, python if tried.language == "python" else f"return {javascript}")
        assert "more than 100,000 JSON values (limits.values)" in told and sqlite.reached == []


@pytest.mark.parametrize(
    "value", ["1e999", '{"a": [1e999]}', '{"type": "image", "data": 1e999}', '"\\ud800"', "[-1e400]"]
)
@real
async def test_a_forged_result_that_cannot_be_read_is_told_as_it_was_written(value: str) -> None:
    line = '{"done": {"value": ' + value + "}}"
    async with opened() as (visitor, _):
        told = json.loads(await run(visitor, WAYS["execute_code, Python"], f"import os\n{_written(line)}"))
        assert '"success":true' in told["result"]["content"][0]["text"], told
