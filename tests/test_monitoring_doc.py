"""The dashboard, the alerts and the queries of docs/monitoring.md ask for metrics and labels that a gateway has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from inmemory import Refusal, Scripted, Visitor, gateway, said, tools
from virtualtime import play

from toolgate.config import Config, Server, ServerAuth
from toolgate.config.access import KnownClient
from toolgate.config.settings import Telemetry

DOCS = Path(__file__).parents[1] / "docs"
KEY, ADMIN = "tg-a-key-that-is-long-enough", "tg-the-key-of-an-administrator"
PAGE = (DOCS / "monitoring.md").read_text()
DASHBOARD: Any = json.loads((DOCS / "grafana-dashboard.json").read_text())
RULES: list[Any] = [
    rule for group in yaml.safe_load((DOCS / "prometheus-rules.yml").read_text())["groups"] for rule in group["rules"]
]
QUERIES = re.findall(r"^\| [^|]+ \| `((?:sum|topk)[^|]+)` \|$", PAGE, re.MULTILINE)
OF_PROMETHEUS = {"up": {"job", "instance"}}
ALWAYS = {"le", "instance", "job"}


def asked() -> Iterator[tuple[str, str]]:
    """What each expression is, and where it stands."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for query in QUERIES:
        yield "docs/monitoring.md", query


EXPRESSIONS = list(asked())


def scraped() -> Mapping[str, set[str]]:
    """The labels of each metric of a gateway in which all has happened that is counted."""
    text: list[str] = []
    play(scraping(text))
    found = dict(OF_PROMETHEUS)
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text[0], re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels), ALWAYS)
    return found


async def scraping(into: list[str]) -> None:

    def answer(params: Any) -> Any:
        if params["name"] == "bad":
            raise Refusal(-32000, "no")
        return said("x")

    git = Scripted(tools_list=tools("t", "bad"), tools_call=answer)
    auth = ServerAuth(grant="client_credentials", client_id="robot", client_secret="wrong")
    docs = Server(id="docs", name="docs", type="http", url="https://docs.example/mcp", auth=auth)
    key = Server(id="key", name="key", type="http", url="https://key.example/mcp", headers={"Authorization": JWT})
    clients = (
        KnownClient(id="ann", name="ann", key=KEY, servers="all"),
        KnownClient(id="ops", name="ops", key=ADMIN, admin=True),
    )
    config = Config(clients=clients, telemetry=Telemetry(usage=True))
    async with gateway(docs, key, scripts={"git": git}, config=config) as app:
        app.sign_ins.fails("docs", "", "refused")
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        for name in ("git__t", "git__bad", "git__made_up"):
            await ann.ask_modern("tools/call", name=name)
        response = await Visitor(app, "/metrics", authorization=f"Bearer {ADMIN}").send("GET")
        into.append(response.body.decode())


JWT = "Bearer eyJhbGciOiJub25lIn0.eyJleHAiOjIwMDAwMDAwMDB9.c2lnbmVk"
_WORDS = {
    "sum",
    "by",
    "rate",
    "increase",
    "topk",
    "histogram_quantile",
    "time",
    "min",
    "max",
    "sort",
    "or",
    "and",
    "vector",
}


def test_each_metric_and_label_that_is_asked_for_is_there() -> None:
    there = scraped()
    for where, expression in EXPRESSIONS:
        bare = re.sub(r'"[^"]*"|\[[^\]]*\]', "", expression)
        grouped = {label for labels in re.findall(r"by \(([^)]*)\)", bare) for label in re.split(r",\s*", labels)}
        selected = set(re.findall(r"(\w+)=~?", bare))
        metrics = set(re.findall(r"[a-z_]\w*", re.sub(r"by \([^)]*\)|\{[^}]*\}", "", bare))) - _WORDS
        assert metrics and metrics <= there.keys(), where
        labels = set.intersection(*(there[metric] | ALWAYS for metric in metrics))
        assert grouped | selected <= labels, where
        assert bare.count("(") == bare.count(")"), where


def test_the_page_says_of_each_alert_where_to_look_first() -> None:
    section = PAGE.partition("## What to alert on")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(Toolgate\w+)`", section)) == {rule["alert"] for rule in RULES}
    titles = {panel["title"].partition(" (")[0] for panel in DASHBOARD["panels"]}
    assert set(re.findall(r'panel "([^"]+)"', section)) <= titles


def test_there_is_something_to_ask_for() -> None:
    assert len(QUERIES) >= 5
    assert len(RULES) >= 9


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_says_how_grave_it_is_and_what_to_do_and_names_labels_that_it_has(rule: Any) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    summary = rule["annotations"]["summary"]
    named = set(re.findall(r"\$labels\.(\w+)", summary))
    if grouped := re.search(r"by \(([^)]*)\)", rule["expr"]):
        assert named <= set(grouped[1].split(", "))


def test_the_dashboard_has_panels_that_do_not_overlap_and_no_address_of_anybody() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert "http" not in json.dumps(DASHBOARD)
