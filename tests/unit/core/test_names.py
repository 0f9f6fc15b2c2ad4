"""Names on aggregating surfaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from toolgate.core import names

# Found by trying: of these two, 8 digits of the hash are the same.
TWINS = ("x" * 60 + "15365", "x" * 60 + "46666")


@pytest.mark.promise("b.names.slug")
@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("My MCP Server", "my-mcp-server"),
        ("broken_server", "broken-server"),
        ("@scope/pkg.js", "scope-pkg-js"),
        ("__", ""),
        ("日本", ""),
        ("7zip", "7zip"),
    ],
)
def test_an_id_is_the_slug_of_a_name(name: str, id: str) -> None:
    assert names.slug(name) == id


@pytest.mark.promise("b.names.lookup")
def test_a_server_is_found_by_its_id_its_name_and_its_snake_case() -> None:
    assert names.spellings("My Server") == ("my-server", "My Server", "my_server")


@pytest.mark.promise("b.names.split")
def test_a_name_is_joined_and_split_at_the_registered_prefix() -> None:
    assert names.join_name("brave", "search") == "brave__search"
    assert names.split_name("brave__search", ["brave", "fetch"]) == ("brave", "search")
    assert names.split_name("brave__a__b", ["brave"]) == ("brave", "a__b")
    assert names.split_name("search", ["brave"]) is None
    assert names.split_name("brave_search", ["brave"]) is None


@pytest.mark.promise("b.names.split")
def test_the_longest_prefix_wins() -> None:
    assert names.split_name("a-b__c", ["a", "a-b"]) == ("a-b", "c")


@pytest.mark.promise("b.names.short")
def test_a_name_over_64_characters_is_shortened_in_one_way_only() -> None:
    long = names.join_name("brave", "x" * 80)
    assert len(long) == names.LONGEST
    assert long == names.join_name("brave", "x" * 80)
    assert long != names.join_name("brave", "x" * 81)
    assert long.startswith("brave__xxx")
    whole = names.join_name("brave", "x" * 57)
    assert whole == "brave__" + "x" * 57


@pytest.mark.promise("b.uris.digit")
@pytest.mark.parametrize(
    ("server", "uri", "joined"),
    [
        ("docs", "file:///a", "docs+file:///a"),
        ("7zip", "file:///a", "s7zip+file:///a"),
        ("docs", "ui://panel/main.html", "ui://docs+panel/main.html"),
        ("7zip", "ui://panel", "ui://s7zip+panel"),
        ("docs", "file:///{path}", "docs+file:///{path}"),
    ],
)
def test_a_uri_is_joined_and_split(server: str, uri: str, joined: str) -> None:
    assert names.join_uri(server, uri) == joined
    assert names.split_uri(joined, ["other", server]) == (server, uri)


@pytest.mark.promise("b.uris.reading")
def test_a_uri_may_be_written_with_two_underscores_too() -> None:
    assert names.split_uri("docs__file:///a", ["docs"]) == ("docs", "file:///a")


def test_a_bare_uri_is_of_nobody() -> None:
    assert names.split_uri("file:///a", ["docs"]) is None
    assert names.split_uri("ui://panel", ["docs"]) is None
    assert names.split_uri("git+ssh://a", ["docs"]) is None


@pytest.mark.promise("b.names.short")
def test_two_names_that_would_be_shortened_to_one_are_told_apart_in_whatever_order_they_come() -> None:
    first, second = TWINS
    assert names.join_name("docs", first) == names.join_name("docs", second)
    joined = names.join_names("docs", TWINS)
    assert joined == names.join_names("docs", reversed(TWINS))
    assert joined[min(TWINS)] == names.join_name("docs", min(TWINS))
    assert len(set(joined.values())) == 2 and all(len(name) == names.LONGEST for name in joined.values())


@pytest.mark.promise("b.names.short")
def test_a_tool_that_has_the_name_that_another_is_shortened_to_keeps_it() -> None:
    long = "a" * 80
    whole = names.join_name("docs", long)
    own = whole.removeprefix("docs__")
    joined = names.join_names("docs", [long, own])
    assert joined[own] == whole
    assert joined[long] != whole and len(joined[long]) == names.LONGEST


@pytest.mark.parametrize(
    ("pattern", "meant", "matched"),
    [
        ("time__*", ["time"], ["time__now", "time__zone"]),
        ("time__n*", ["time"], ["time__now"]),
        ("time__zone", ["time"], ["time__zone"]),
        ("time-zones__*", ["time-zones"], ["time-zones__now"]),
        ("time*", ["time", "time-zones"], ["time__now", "time__zone", "time-zones__now"]),
        ("*", ["time", "time-zones"], ["time__now", "time__zone", "time-zones__now"]),
        ("tim__*", [], []),
        ("time", [], []),
        ("", [], []),
    ],
)
def test_a_pattern_means_tools_by_their_namespaced_names(pattern: str, meant: list[str], matched: list[str]) -> None:
    tools = {"time": ["now", "zone"], "time-zones": ["now"]}
    assert names.meant(pattern, tools) == meant
    found = [
        names.join_name(server, name)
        for server, own in tools.items()
        for name in own
        if names.matches(pattern, server, name)
    ]
    assert found == matched
    means = names.matcher([pattern, "another__*", "another__one"])
    assert [
        names.join_name(server, name) for server, own in tools.items() for name in own if means(server, name)
    ] == found


# What may have been meant.


def test_what_may_have_been_meant_is_found_among_any_number_of_names() -> None:
    known = [
        f"{verb}_{thing}_{number}" for verb in ("get", "list") for thing in ("issue", "file") for number in range(2500)
    ]
    assert names.near("create_isue", [*known, "create_issue"])[0] == "create_issue"
    assert names.near("nothing like it", known) == []


def test_names_without_end_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    vars(names)["_near"].cache_clear()
    parts = vars(names)["_parts"]
    monkeypatch.setattr(names, "_parts", lambda name: compared.append(name) or parts(name))
    for name in ("ab" * 50_000, "tool_x"):
        compared.clear()
        names.near(name, ["ba" * 50_000, "ba" * 99, *(f"tool_{number}" for number in range(100_000))])
        assert len(compared) > 1
        assert sum(map(len, compared)) <= names.LONGEST_COMPARED + names.MOST_COMPARED
        assert max(map(len, compared)) <= names.LONGEST_COMPARED


@pytest.mark.parametrize("name", ["ehco", "eco", "exho", "ecoh", "Echo", "echoo", "the_echo"])
def test_what_is_mistyped_is_found(name: str) -> None:
    assert names.near(name, ["add", "echo", "fetch", "search", "ping"])[0] == "echo"


def test_words_may_be_written_in_another_order_or_in_other_case() -> None:
    known = ["get_issue", "list_issues", "get_file", "create_issue"]
    assert names.near("issue_get", known)[0] == names.near("getIssue", known)[0] == "get_issue"
    assert names.near("issues_list", known)[0] == "list_issues"


@pytest.mark.parametrize("written", ["my-mcp-server", "My MCP Server", "my_mcp_server"])
def test_a_server_may_be_written_by_its_id_as_it_is_configured_and_in_snake_case(written: str) -> None:
    servers = {"my-mcp-server": "My MCP Server", "my": "my", "a-b": "a__b"}
    assert names.split_name(f"{written}__x", servers) == ("my-mcp-server", "x")
    assert names.split_name(f"{written}__x__y", servers) == ("my-mcp-server", "x__y")
    assert names.split_uri(f"{written}__file:///a__b", servers) == ("my-mcp-server", "file:///a__b")


def test_a_configured_name_may_have_the_separator_in_it() -> None:
    assert names.split_name("a__b__c__d", {"a-b": "a__b", "x": "x"}) == ("a-b", "c__d")
    assert names.split_name("a__b__c", {"a-b": "a__b", "a": "a"}) == ("a", "b__c")  # an id first
    assert names.split_name("A-B__c", {"a-b": "a__b"}) is None  # nobody has written it so


def test_a_name_of_nothing_but_separators_is_split_soon() -> None:
    assert names.split_name("_" * 16_000, {"a": "a"}) is None


class _Counted(dict[str, str]):
    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all servers are gone through")


@pytest.mark.parametrize("name", ["server-7__x", "Server 7__x", "unknown__x", "unknown", "server-7+file:///a", "a+b"])
def test_a_name_is_looked_up_however_many_servers_there_are(name: str) -> None:
    servers = _Counted({f"server-{number}": f"Server {number}" for number in range(1000)})
    names.split_name(name, servers)
    names.split_uri(name, servers)
    assert servers.looks <= 4
