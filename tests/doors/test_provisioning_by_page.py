"""Servers found, looked at and added by page."""

from __future__ import annotations

import msgspec
import pytest
import registry_double
from inmemory import Scripted, gateway, tools
from reader import signed_in
from registry_double import Registry, item, npm

from toolgate.auth.access import THE_OPERATOR
from toolgate.upstreams.process.kept import hash_of

NOTES = "keep searchable notes of meetings"
NEEDS = [{"name": "NOTES_KEY", "description": "<b>yours</b>", "isRequired": True}]


def described(**more: object) -> Registry:
    return Registry(item(description="Keeps searchable notes of meetings", packages=[npm(**more)]))


@pytest.mark.promise("b.operator.provisioning")
async def test_a_server_is_found_shown_with_its_gates_and_added_as_it_was_shown() -> None:
    notes = Scripted(tools_list=tools("keep", "find"))
    async with gateway(registries=(registry_double.URL,), links_of={"notes": notes}) as app:
        registry_double.reach(app, described())
        reader = await signed_in(app)
        page = await reader.open("/ui/registry?q=keep+searchable+notes+of+meetings")
        assert "io.github.ann/notes" in page.text and "npx -y @ann/notes@1.0.0" in page.text
        assert "not passed: trusted." in page.text and "passed: pinned." in page.text
        assert "notes" not in app.gateway.snapshot.servers
        page = await reader.press("/ui/registry")
        assert "Added notes. It lists 2 tools." in page.text
        server = app.gateway.snapshot.servers["notes"]
        assert (server.command, server.args, server.pinning) == ("npx", ("-y", "@ann/notes@1.0.0"), "quarantine")


async def test_one_that_is_added_by_page_starts_the_file_that_was_there_then() -> None:
    notes = Scripted(tools_list=tools("keep"))
    async with gateway(registries=(registry_double.URL,), links_of={"notes": notes}) as app:
        registry = described()
        registry_double.reach(app, registry)
        packed = registry.add_npm("@ann/notes", "1.0.0")
        reader = await signed_in(app)
        await reader.open("/ui/registry?q=keep+searchable+notes+of+meetings")
        page = await reader.press("/ui/registry")
        assert "Added notes." in page.text and "not kept" not in page.text
        assert app.gateway.snapshot.servers["notes"].package_hash == hash_of(packed, "sha512-")


@pytest.mark.parametrize("spoiled", ["another file", "no file"])
async def test_where_there_is_no_such_file_the_page_says_why(spoiled: str) -> None:
    notes = Scripted(tools_list=tools("keep"))
    async with gateway(registries=(registry_double.URL,), links_of={"notes": notes}) as app:
        registry = described()
        registry_double.reach(app, registry)
        registry.add_npm("@ann/notes", "1.0.0")
        (path,) = [each for each in registry.packages if each.endswith(".tgz")]
        registry.answers[path] = b"another" if spoiled == "another file" else 404
        reader = await signed_in(app)
        await reader.open("/ui/registry?q=keep+searchable+notes+of+meetings")
        page = await reader.press("/ui/registry")
        assert "Its file was not kept, so npx fetches it at each start" in page.text
        assert ("another hash" if spoiled == "another file" else "does not know it") in page.text
        assert not app.gateway.snapshot.servers["notes"].package_hash


async def test_a_file_is_kept_for_administrators_and_by_its_exact_version_alone() -> None:
    async with gateway(registries=(registry_double.URL,)) as app:
        registry = described()
        registry_double.reach(app, registry)
        packed = registry.add_npm("@ann/notes", "1.0.0")
        for args in (["-y", "@ann/notes"], ["-y", "@ann/notes@latest"], ["@ann/notes@1.0.0"], ["-y", "--package", "x"]):
            body = msgspec.json.encode({"command": "npx", "args": args})
            status, _ = await app.http.web.admin.ask("POST", "/admin/packages", body, THE_OPERATOR)
            assert status == 400 and not registry.asked
        body = msgspec.json.encode({"command": "npx", "args": ["-y", "@ann/notes@1.0.0", "--stdio"]})
        status, said = await app.http.web.admin.ask("POST", "/admin/packages", body, THE_OPERATOR)
        assert (status, msgspec.json.decode(said)) == (200, {"package_hash": hash_of(packed, "sha512-")})


async def test_what_a_server_needs_is_asked_for_and_may_be_a_secret() -> None:
    notes = Scripted(tools_list=tools("keep"))
    async with gateway(registries=(registry_double.URL,), links_of={"notes": notes}) as app:
        registry_double.reach(app, described(environmentVariables=NEEDS))
        reader = await signed_in(app)
        page = await reader.open("/ui/registry?q=keep+searchable+notes+of+meetings")
        (field,) = [each for each in page.all("input") if each.get("name", "").startswith("env.")]
        assert field["value"] == "${secret:NOTES_KEY}"
        assert "It needs NOTES_KEY" in (await reader.press("/ui/registry", 400)).text
        await reader.open("/ui/registry?q=keep+searchable+notes+of+meetings")
        assert "Added notes." in (await reader.press("/ui/registry", **{field["name"]: "a value of mine"})).text
        assert app.gateway.snapshot.servers["notes"].env == {"NOTES_KEY": "a value of mine"}


async def test_a_tool_that_is_here_is_named_first_and_one_may_look_further() -> None:
    there = Scripted(tools_list=tools("keep_notes", description="Keep searchable notes of meetings"))
    async with gateway(registries=(registry_double.URL,), scripts={"there": there}) as app:
        registry_double.reach(app, described())
        reader = await signed_in(app)
        page = await reader.open("/ui/registry?q=keep+searchable+notes+of+meetings")
        assert "keep_notes of there" in page.text and "npx" not in page.text
        assert "npx" in (await reader.open("/ui/registry?anyway=on&q=keep+searchable+notes+of+meetings")).text


async def test_what_fits_nothing_says_so_and_a_form_of_nothing_adds_nothing() -> None:
    async with gateway() as app:
        reader = await signed_in(app)
        assert "Nothing fits." in (await reader.open("/ui/registry?q=milk+the+goats+before+sunrise")).text
        for match in ("", "[]", "{}", '{"server": []}', '{"server": {"name": 7}}'):
            form = {"csrf": reader.page.hidden["csrf"], "match": match}
            assert (await reader.send("POST", "/ui/registry", form)).status == 400
