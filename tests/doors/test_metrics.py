"""What Prometheus reads of the gateway: `/metrics`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inmemory import Refusal, Scripted, Visitor, gateway, said, tools

from toolgate.config import Config, Server, ServerAuth
from toolgate.config.access import KnownClient, Permissions
from toolgate.config.settings import Telemetry

KEY, ADMIN = "tg-a-key-that-is-long-enough", "tg-the-key-of-an-administrator"
KNOWN = Config(
    clients=(
        KnownClient(id="ann", name="ann", key=KEY, servers="all"),
        KnownClient(id="ops", name="ops", key=ADMIN, admin=True),
    )
)
COUNTED = msgspec.structs.replace(KNOWN, telemetry=Telemetry(usage=True))
SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z_]+="(?:[^"\\\n]|\\.)*",?)+\})? [0-9.e+-]+')
PAGE = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()


def opened(config: Config = KNOWN, **answers: Any) -> Any:
    return gateway(scripts={"git": Scripted(tools_list=tools("t", "u"), **answers)}, config=config)


def figures(lines: list[str], name: str) -> dict[str, float]:
    """The samples of one metric, by their labels."""
    found = (line.rpartition(" ") for line in lines if line.startswith(f"{name}{{"))
    return {labels.removeprefix(name): float(value) for labels, _, value in found}


def of(who: str, method: str = "tools/call", server: str = "git", tool: str = "t", **more: str) -> str:
    labels = {"principal": who, "method": method, "server": server, "tool": tool, **more}
    return "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


async def scraped(app: Any) -> list[str]:
    response = await Visitor(app, "/metrics", authorization=f"Bearer {ADMIN}").send("GET")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return bytes(response.body).decode().splitlines()


async def test_a_scrape_shows_the_gateway_and_the_state_of_each_server() -> None:
    async with opened() as app:
        lines = await scraped(app)
        assert "toolgate_serving 1" in lines
        assert "toolgate_configuration_invalid 0" in lines
        assert 'toolgate_server_calls{server="git"} 0' in lines
        states = [line for line in lines if line.startswith('toolgate_server_state{server="git"')]
        assert [line for line in states if line.endswith(" 1")] == [
            f'toolgate_server_state{{server="git",state="{app.gateway.snapshot.upstreams["git"].status().state}"}} 1'
        ]
        app.gateway.phase = "draining"
        assert "toolgate_serving 0" in await scraped(app)


async def test_each_line_is_of_the_format_and_each_metric_has_its_row_in_the_docs() -> None:
    async with opened(COUNTED, tools_call=said("x")) as app:
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("tools/call", name="git__t")
        lines = await scraped(app)
        assert all(SAMPLE.fullmatch(line) for line in lines if not line.startswith("# "))
        told = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
        assert told == set(re.findall(r"^\| `((?:toolgate|mcp)_\w+)` \|", PAGE, re.MULTILINE))
        assert {line.split()[2] for line in lines if line.startswith("# HELP ")} == told


async def test_nothing_is_counted_where_that_is_not_wanted() -> None:
    async with opened(tools_call=said("x")) as app:
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("tools/call", name="git__t")
        assert not [line for line in await scraped(app) if "_total" in line or "duration" in line]


async def test_calls_are_counted_by_who_called_what_with_their_size() -> None:
    async with opened(COUNTED, tools_call=said("a few words")) as app:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        for _ in range(3):
            await ann.ask_modern("tools/call", name="git__t", arguments={"a": 1})
        lines = await scraped(app)
        assert figures(lines, "toolgate_calls_total") == {of("client:ann"): 3}
        assert figures(lines, "toolgate_call_argument_bytes_total") == {of("client:ann"): 3 * len('{"a": 1}')}
        assert figures(lines, "toolgate_call_result_bytes_total") == {
            of("client:ann"): 3 * len(json.dumps(said("a few words")))
        }
        assert 3 * 10 < figures(lines, "toolgate_call_result_tokens_total")[of("client:ann")] < 3 * 30
        assert figures(lines, "toolgate_call_errors_total") == {}


async def test_credentials_say_when_they_end_and_since_when_they_fail() -> None:
    auth = ServerAuth(grant="client_credentials", client_id="robot", client_secret="wrong")
    docs = Server(id="docs", name="docs", type="http", url="https://docs.example/mcp", auth=auth)
    async with gateway(docs, config=KNOWN) as app:
        app.sign_ins.fails("docs", "", "refused")
        lines = await scraped(app)
        labels = '{server="docs",principal="",credential="client_credentials"}'
        assert figures(lines, "toolgate_credential_failing") == {labels: 1}
        since = figures(lines, "toolgate_credential_failing_since_timestamp_seconds")
        assert since == {labels: app.clock.wall()}
        app.sign_ins.works("docs", "")
        assert figures(await scraped(app), "toolgate_credential_failing") == {}


def bad(_: Any) -> Any:
    raise Refusal(-32000, "no")


@pytest.mark.parametrize(
    ("answer", "error"),
    [(bad, "UPSTREAM_ERROR"), ({**said("no"), "isError": True}, "tool_error")],
    ids=["an error", "a tool that fails"],
)
async def test_what_a_server_fails_with_is_an_error(answer: Any, error: str) -> None:
    async with opened(COUNTED, tools_call=answer) as app:
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("tools/call", name="git__t")
        lines = await scraped(app)
        assert figures(lines, "toolgate_call_errors_total") == {of("client:ann", error=error): 1}
        assert figures(lines, "toolgate_call_refusals_total") == {}
        labels = f'{{mcp_method_name="tools/call",server="git",gen_ai_tool_name="t",error_type="{error}"}}'
        for end in ("server", "client"):
            assert figures(lines, f"mcp_{end}_operation_duration_seconds_count") == {labels: 1}


async def test_what_the_gateway_refuses_is_a_refusal_and_not_sent() -> None:
    clients = (
        msgspec.structs.replace(KNOWN.clients[0], permissions=Permissions(tools={"git__t": "off"})),
        KNOWN.clients[1],
    )
    async with opened(msgspec.structs.replace(COUNTED, clients=clients), tools_call=said("x")) as app:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        await ann.ask_modern("tools/list")
        await ann.ask_modern("tools/call", name="git__t")
        lines = await scraped(app)
        assert figures(lines, "toolgate_call_refusals_total") == {of("client:ann", reason="ACCESS_DENIED"): 1}
        assert figures(lines, "toolgate_calls_total") == {of("client:ann"): 1}
        assert figures(lines, "mcp_client_operation_duration_seconds_count") == {}


async def test_names_that_a_client_makes_up_are_in_no_label() -> None:
    async with opened(COUNTED, tools_call=said("x")) as app:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        await ann.ask_modern("tools/call", name="git__made_up")
        await ann.ask_modern("tools/call", name="made_up_too")
        await ann.ask_modern("resources/read", uri="made:up")
        assert not [line for line in await scraped(app) if "made" in line]
        assert sum(figures(await scraped(app), "toolgate_calls_total").values()) == 3


async def test_a_call_through_a_control_tool_counts_for_the_tool_that_works() -> None:
    async with opened(msgspec.structs.replace(COUNTED, surface="meta"), tools_call=said("x")) as app:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        arguments: Any = {"server_name": "git", "tool_name": "t", "arguments": {}}
        await ann.ask_modern("tools/call", name="call_tool", arguments=arguments)
        assert of("client:ann") in figures(await scraped(app), "toolgate_calls_total")


@pytest.mark.parametrize(("key", "status"), [("", 401), (KEY, 403), (ADMIN, 200)], ids=["nobody", "client", "admin"])
async def test_only_an_administrator_reads_it(key: str, status: int) -> None:
    async with opened() as app:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        response = await Visitor(app, "/metrics").send("GET", headers=headers)
        assert response.status == status
        assert (b"toolgate_server" in bytes(response.body)) == (status == 200)


async def test_other_paths_and_methods_are_refused() -> None:
    async with opened() as app:
        assert (await Visitor(app, "/metrics/more").send("GET")).status == 404
        assert (await Visitor(app, "/metrics", authorization=f"Bearer {ADMIN}").send("POST")).status == 405
