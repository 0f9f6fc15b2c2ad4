"""`docs/components.md` says nothing that is not so: its program runs as configured, and answers as it is shown."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from msgspec import Raw
from processes.ground import gateway, real, until
from processes.scripted_component import component, tool

from toolgate import config as configs
from toolgate.config import CatalogLimits, Config, Server
from toolgate.core.model import Call, Client, Done
from toolgate.upstreams.component import answers, program, upstream
from toolgate.upstreams.links import whole

TEXT = (Path(__file__).parents[2] / "docs" / "components.md").read_text()
FLAT = " ".join(TEXT.split())


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


STARTED, RUNNING, MANY = blocks("toml")
METADATA, ARGUMENTS, RESULT = (json.loads(block) for block in blocks("json"))


def configured(text: str, **environ: str) -> Config:
    return configs.read(text, file="toolgate.toml", environ=environ, format="toml")


@real
async def test_its_program_is_started_as_it_says_and_answers_as_it_shows(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(*blocks("python"))
    here = STARTED.replace('"python3"', json.dumps(sys.executable)) + f"cwd = {json.dumps(str(tmp_path))}\n"
    async with gateway(configured(here)) as served:
        greeter = served.app.gateway.snapshot.upstreams["greeter"]
        listed = await greeter.list("tools", Client())
        assert [json.loads(bytes(raw)) for raw in listed.raw] == [METADATA]
        call = Call("tools/call", "greet", Client(), Raw(json.dumps(ARGUMENTS).encode()), "greeter")
        outcome = await greeter.invoke(call)
        assert isinstance(outcome, Done) and json.loads(bytes(outcome.body)) == RESULT
        assert await served.client().call("greeter__greet", who="Ada") == "Hello, Ada!"


@real
async def test_one_that_runs_is_reached_as_it_says() -> None:
    async with component(METADATA) as script:
        here = RUNNING.replace(":9000", f":{script.port}")
        async with gateway(configured(here, GREETER_TOKEN="secret")) as served:
            assert await served.client().tools() == ["greeter__greet"]
            assert script.requests[0].headers["authorization"] == "Bearer secret"


@pytest.mark.promise("003.flow.routing")
@real
async def test_many_are_reached_by_name_as_it_says() -> None:
    async with component(lambda path: tool("in" + path.replace("/", "_"))) as script:
        here = MANY.replace("{name}.example/", f"127.0.0.1:{script.port}/{{name}}")
        async with gateway(configured(here)) as served:
            await until(lambda: sorted(asked.path for asked in script.gets) == ["/greeter", "/weather-report"])
            assert await served.client().tools() == ["in_greeter", "in_weather-report"]
            assert await served.client().call("in_greeter", message="hi") == "hi"
    told = configured(MANY)
    assert [server.url for server in told.servers] == ["http://greeter.example/", "http://weather-report.example/"]
    by_default = configured(MANY.splitlines()[0])
    assert [server.url for server in by_default.servers][1] == "http://weather-report.spin.internal/"


def test_its_keys_are_those_of_the_configuration() -> None:
    for key in ("timeout", "start_timeout", "concurrency"):
        assert f"`{key}`" in TEXT and key in Server.__struct_fields__


def test_its_numbers_are_the_programs() -> None:
    said = {
        "up to 2,000 characters": answers.MOST_SHOWN == 2000,
        "no answer within 60 s": running_default("timeout") == 60,
        "at … after 60 s": running_default("start_timeout") == 60,
        "`catalog.ttl`, five minutes": CatalogLimits().ttl == 300,
        "up to 32 MiB": whole.LONGEST_MESSAGE == 32 * 2**20,
        "up to 10,000 tools and 8 MiB": (CatalogLimits().items, CatalogLimits().bytes) == (10_000, 8 * 2**20),
    }
    assert all(words in FLAT for words in said) and all(said.values())


def running_default(name: str) -> float:
    return getattr(Server(id="x", name="x", type="component"), name)


def test_its_messages_are_those_that_are_sent() -> None:
    code = "".join(Path(each.__file__).read_text() for each in (answers, whole, program, upstream))
    for words in (
        "Tool execution failed (status ",
        "no answer within ",
        "the connection broke before the answer was complete",
        "Cannot reach ",
        "Server not started: ",
        "no answer at ",
    ):
        assert words in TEXT and words in code
