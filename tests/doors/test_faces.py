"""What the gateway says of itself to registries' clients and to who looks for servers: `/v0.1`, cards, the catalog."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from doors.shapes_of_faces import CARD, LIST, RESPONSE
from inmemory import Json, Scripted, Visitor, gateway, tools

from toolgate import __version__
from toolgate.config import Auth, Config, Server
from toolgate.config.access import KnownClient
from toolgate.provision import entries

KEY = "tg-a-key-that-is-long-enough"
CATALOG = "/.well-known/ai-catalog.json"
SECRET = "sk-very-secret"


def check(shape: Json, said: Any) -> None:
    jsonschema_rs.validate(shape, said)


def servers(*ids: str) -> dict[str, Any]:
    configured = [
        Server(
            id=id,
            name=id.title(),
            type="stdio",
            command="/opt/private/run",
            env={"KEY": SECRET},
            description=f"What {id} does. " * 20,
        )
        for id in ids
    ]
    return {"servers": configured, "scripts": {id: Scripted(tools_list=tools("t")) for id in ids}}


async def asked(app: Any, path: str, query: str = "", key: str = "", **more: Any) -> tuple[int, Any, Any]:
    visitor = Visitor(app, path, **({"authorization": f"Bearer {key}"} if key else {}))
    response = await visitor.send("GET", query_string=query.encode(), **more)
    return response.status, json.loads(response.body) if response.body else None, response.headers


def opened(*ids: str, **more: Any) -> Any:
    found = servers(*ids)
    return gateway(*found["servers"], scripts=found["scripts"], **more)


def known(**more: Any) -> Config:
    return Config(clients=(KnownClient(id="ann", name="ann", key=KEY, **more),))


# /v0.1


async def test_the_servers_are_listed_as_endpoints_of_this_gateway() -> None:
    async with opened("git", "docs") as app:
        status, said, _ = await asked(app, "/v0.1/servers")
        check(LIST, said)
        assert (status, said["metadata"]) == (200, {"count": 2})
        assert [each["server"]["name"] for each in said["servers"]] == ["localhost/docs", "localhost/git"]
        assert said["servers"][1]["server"]["remotes"] == [
            {"type": "streamable-http", "url": "http://127.0.0.1:8765/mcp/servers/git"}
        ]
        assert SECRET not in json.dumps(said) and "/opt/private" not in json.dumps(said)


async def test_pages_are_had_by_their_cursors_whatever_comes_and_goes() -> None:
    async with opened(*(f"s{number:02}" for number in range(7))) as app:
        seen: list[str] = []
        query = "limit=3"
        for _ in range(3):
            _, said, _ = await asked(app, "/v0.1/servers", query)
            check(LIST, said)
            seen += [each["server"]["name"].partition("/")[2] for each in said["servers"]]
            query = f"limit=3&cursor={said['metadata'].get('nextCursor', '')}"
        assert seen == [f"s{number:02}" for number in range(7)] and "nextCursor" not in said["metadata"]
        _, gone, _ = await asked(app, "/v0.1/servers", "limit=3&cursor=localhost/s02a")
        assert gone["servers"][0]["server"]["name"] == "localhost/s03"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("search=DOC", ["docs"]),
        ("version=latest", ["docs", "git"]),
        (f"version={__version__}", ["docs", "git"]),
        ("version=9.9.9", []),
        ("updated_since=2001-01-01T00:00:00Z&include_deleted=true", ["docs", "git"]),
        ("updated_since=2999-01-01T00:00:00Z", []),
    ],
)
async def test_the_list_is_filtered_as_registries_do(query: str, found: list[str]) -> None:
    async with opened("git", "docs") as app:
        _, said, _ = await asked(app, "/v0.1/servers", query)
        assert [each["server"]["name"].partition("/")[2] for each in said["servers"]] == found


@pytest.mark.parametrize("limit", ["0", "101", "x", "-1"])
async def test_a_page_has_a_bounded_size(limit: str) -> None:
    async with opened("git") as app:
        assert (await asked(app, "/v0.1/servers", f"limit={limit}"))[0] == 400


@pytest.mark.parametrize("name", ["localhost%2Fgit", "localhost/git"])
@pytest.mark.parametrize("version", ["latest", __version__])
async def test_one_server_and_its_versions_are_had_by_name(name: str, version: str) -> None:
    async with opened("git", "docs") as app:
        status, one, _ = await asked(app, f"/v0.1/servers/{name}/versions/{version}")
        check(RESPONSE, one)
        assert (status, one["server"]["name"]) == (200, "localhost/git")
        _, versions, _ = await asked(app, f"/v0.1/servers/{name}/versions")
        check(LIST, versions)
        assert versions["servers"] == [one]


@pytest.mark.parametrize(
    "path", ["localhost%2Fnope/versions/latest", "localhost%2Fgit/versions/9.9.9", "localhost%2Fgit", "x/y/z"]
)
async def test_a_server_that_there_is_not_is_not_found(path: str) -> None:
    async with opened("git") as app:
        status, said, _ = await asked(app, f"/v0.1/servers/{path}")
        assert (status, said) == (404, {"error": "Server not found"})


async def test_a_client_is_told_of_the_servers_that_it_may_use_and_who_is_nobody_of_none() -> None:
    async with opened("git", "docs", config=known(servers=("git",))) as app:
        assert (await asked(app, "/v0.1/servers"))[0] == 401
        _, said, _ = await asked(app, "/v0.1/servers", key=KEY)
        assert [each["server"]["name"] for each in said["servers"]] == ["localhost/git"]
        (remote,) = said["servers"][0]["server"]["remotes"]
        assert remote["headers"][0]["name"] == "Authorization" and remote["headers"][0]["isSecret"] is True
        assert (await asked(app, "/v0.1/servers/localhost%2Fdocs/versions/latest", key=KEY))[0] == 404
        assert KEY not in json.dumps(said)


async def test_nothing_is_published_here() -> None:
    async with opened("git") as app:
        assert (await Visitor(app, "/v0.1/servers").send("POST")).status == 405


async def test_this_registry_is_read_by_the_gateways_own_reader() -> None:
    async with opened("git") as app:
        _, said, _ = await asked(app, "/v0.1/servers")
        entry = entries.read(said["servers"][0], "http://127.0.0.1:8765")
        assert entry and (entry.name, entry.status) == ("localhost/git", "active")


# Cards.


@pytest.mark.parametrize(
    ("path", "name"),
    [("/mcp", "toolgate"), ("/mcp/servers/git", "git"), ("/mcp/meta", "toolgate.meta"), ("/mcp/all", "toolgate.all")],
)
async def test_each_endpoint_has_a_card(path: str, name: str) -> None:
    async with opened("git") as app:
        status, card, headers = await asked(app, f"{path}/server-card")
        check(CARD, card)
        assert (status, card["name"], card["version"]) == (200, f"localhost/{name}", __version__)
        assert card["remotes"][0]["url"] == f"http://127.0.0.1:8765{path}"
        assert "2026-07-28" in card["remotes"][0]["supportedProtocolVersions"]
        assert headers["content-type"] == "application/mcp-server-card+json"
        assert headers["access-control-allow-origin"] == "*" and headers["etag"]
        again = await Visitor(app, f"{path}/server-card", if_none_match=headers["etag"]).send("GET")
        assert (again.status, again.body) == (304, b"")
        assert SECRET not in json.dumps(card) and "/opt/private" not in json.dumps(card)


async def test_the_catalog_leads_to_cards_that_are_there() -> None:
    async with opened("git", "docs") as app:
        status, catalog, headers = await asked(app, CATALOG)
        assert (status, headers["content-type"], catalog["specVersion"]) == (200, "application/ai-catalog+json", "1.0")
        assert [each["identifier"] for each in catalog["entries"]] == [
            f"urn:air:localhost:mcp:{name}" for name in ("toolgate", "git", "docs")
        ]
        for entry in catalog["entries"]:
            assert entry.keys() == {"identifier", "type", "url"} and entry["type"] == "application/mcp-server-card+json"
            status, card, _ = await asked(app, entry["url"].removeprefix("http://127.0.0.1:8765"))
            check(CARD, card)
            assert status == 200 and entry["identifier"].endswith(":" + card["name"].partition("/")[2])


async def test_who_is_nobody_learns_that_there_is_a_gateway_and_of_no_server() -> None:
    async with opened("git", "docs", config=known(servers=("git",))) as app:
        _, catalog, _ = await asked(app, CATALOG)
        assert [each["url"] for each in catalog["entries"]] == ["http://127.0.0.1:8765/mcp/server-card"]
        status, card, _ = await asked(app, "/mcp/server-card")
        assert status == 200 and "git" not in json.dumps(card)
        for path in ("/mcp/servers/git", "/mcp/servers/docs", "/mcp/servers/nope", "/mcp/meta", "/nowhere"):
            assert (await asked(app, f"{path}/server-card"))[0] == 401
        _, catalog, _ = await asked(app, CATALOG, key=KEY)
        assert [each["url"].rpartition("/mcp")[2] for each in catalog["entries"]] == [
            "/server-card",
            "/servers/git/server-card",
        ]
        assert (await asked(app, "/mcp/servers/docs/server-card", key=KEY))[0] == 403


async def test_pages_of_elsewhere_and_other_hosts_are_refused() -> None:
    async with opened("git") as app:
        for path in ("/mcp/server-card", CATALOG, "/v0.1/servers"):
            assert (await Visitor(app, path, origin="https://evil.example").send("GET")).status == 403
            assert (await Visitor(app, path, host="evil.example").send("GET")).status == 403
            assert (await Visitor(app, path).send("DELETE")).status == 405


@pytest.mark.parametrize("path", ["/nowhere", "/mcp/servers/nope", "/mcp/bundles/nope"])
async def test_what_is_not_there_has_no_card(path: str) -> None:
    async with opened("git") as app:
        assert (await asked(app, f"{path}/server-card"))[0] == 404


async def test_a_gateway_that_is_told_where_it_is_reached_says_that() -> None:
    auth = Auth(issuer="https://id.example.com", audience="https://mcp.example.com")
    config: Json = {"auth": auth}
    async with opened("git", config=Config(**config)) as app:
        _, card, _ = await asked(app, "/mcp/server-card")
        check(CARD, card)
        assert (card["name"], card["remotes"][0]["url"]) == ("com.example.mcp/toolgate", "https://mcp.example.com/mcp")
        assert card["remotes"][0]["headers"][0]["name"] == "Authorization"
