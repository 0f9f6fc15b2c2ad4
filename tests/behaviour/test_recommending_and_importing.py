"""Seed 004: `recommend_tools` says which tools fit a task, `import_mcp_server` brings servers from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model_double
import pytest
import registry_double
from inmemory import Json, Scripted, gateway, said, tools
from registry_double import Registry, RegistryNet, item, npm
from stage import Asker, cast, confirming, playing

from toolgate.app import App
from toolgate.auth.safe_net import Fetched
from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.config.providers import Provider
from toolgate.config.provision import Provision
from toolgate.core import names
from toolgate.workspace.projects import project_of

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/daemon"])
TASK = "Find React hooks documentation of the library"
OWNER = "io.github.ann/notes"
URL = "https://github.com/ann/weather"
ALLOW = Config(add_servers="allow")
NAMES = ("weather", "clock", "notes", "more")


def readme(**servers: Json) -> str:
    block = json.dumps({"mcpServers": servers}, indent=2)
    return f"# Weather\n\nInstall:\n\n```bash\nnpm i\n```\n\nThen:\n\n```json\n{block}\n```\n"


STDIO: Json = {"command": "npx", "args": ["-y", "@ann/weather@1.2.0"]}


def served(app: App) -> list[str]:
    return [id for id in app.gateway.snapshot.servers if id not in names.INTERNAL]


def there(config: Config = Config(), **more: Any) -> Any:
    """A gateway to which servers may be added."""
    later = {name: Scripted(tools_list=tools("t"), tools_call=said("done")) for name in NAMES}
    opened = confirming if config.add_servers == "ask" else gateway
    return opened(config=config, scripts={"there": Scripted(tools_list=tools("look"))}, links_of=later, **more)


# recommend_tools.


class Model:
    """The API of a model in this process, which answers with this text, or with this status and nothing of use."""

    def __init__(self, text: str = "", status: int = 200) -> None:
        self.text, self.status = text, status
        self.asked: list[Json] = []

    async def fetch(self, url: str, _method: str, *, body: bytes, **_: Any) -> Fetched:
        self.asked.append(json.loads(body))
        said = model_double.completion(self.text) if self.status == 200 else {}
        return Fetched(self.status, {}, json.dumps(said).encode(), url)


def with_model(*uses: str) -> Config:
    url, name = "http://127.0.0.1:9/v1", model_double.MODEL
    return Config(providers={"robot": Provider(type="openai", model=name, key=model_double.KEY, url=url, uses=uses)})


@pytest.mark.promise("004.ai.recommend")
async def test_a_model_that_is_configured_for_it_writes_the_recommendation_of_the_tools_that_were_found(
    era: str,
) -> None:
    async with playing(config=with_model("recommendations")) as app:
        app.providers._net = model = Model("Ask context7 for the hooks of React.")  # type: ignore[assignment]
        told = await Asker(app, era).told("recommend_tools", task_description=TASK)
        assert told["recommendation"] == "Ask context7 for the hooks of React."
        assert told["model"] == {"provider": "robot", "model": model_double.ANSWERED}
        assert told["tools"][0]["tool"] == "get-library-docs"
        (asked,) = model.asked
        assert TASK in json.dumps(asked) and "get-library-docs" in json.dumps(asked)


async def test_where_the_model_does_not_answer_the_recommendation_is_written_without_it_and_says_so(era: str) -> None:
    async with playing(config=with_model("recommendations")) as app:
        app.providers._net = Model(status=500)  # type: ignore[assignment]
        told = await Asker(app, era).told("recommend_tools", task_description=TASK)
        assert "get-library-docs" in told["recommendation"] and "model" not in told
        assert told["note"] == "The provider robot answered HTTP 500; the recommendation is written without a model"


async def test_no_model_is_asked_for_what_it_is_not_configured_for_nor_about_nothing(era: str) -> None:
    async with playing(config=with_model("datasets")) as app:
        app.providers._net = model = Model("never")  # type: ignore[assignment]
        await Asker(app, era).told("recommend_tools", task_description=TASK)
        assert not model.asked
    async with playing(config=with_model("recommendations")) as app:
        app.providers._net = model = Model("never")  # type: ignore[assignment]
        await Asker(app, era).told("recommend_tools", task_description="Peel these potatoes")
        assert not model.asked


@PATHS
@pytest.mark.promise("004.ai.recommend")
async def test_tools_are_recommended_in_words_and_as_a_list(path: str, era: str) -> None:
    async with playing() as app:
        told = await Asker(app, era, path).told("recommend_tools", task_description=TASK)
        assert (told["success"], told["task"]) == (True, TASK)
        first = told["tools"][0]
        assert (first["server"], first["tool"]) == ("context7", "get-library-docs")
        assert first["brief"] == "Get the documentation of a library." and 0 < first["confidence"] <= 1
        assert "context7 tools: get-library-docs" in told["recommendation"]
        assert told["available_servers"] == list(cast())
        assert told["total_tools"] == sum(len(each.answers["tools/list"]["tools"]) for each in cast().values())  # type: ignore[union-attr]
        assert "model" not in told


@pytest.mark.promise("004.ai.recommend")
async def test_a_task_that_no_tool_fits_is_told_so(era: str) -> None:
    async with playing() as app:
        told = await Asker(app, era).told("recommend_tools", task_description="Peel these potatoes")
        assert told["success"] is True and told["tools"] == []
        assert told["recommendation"].startswith("No tool of the available servers fits this task")


@pytest.mark.promise("004.ai.recommend")
async def test_an_agents_profile_is_a_bundle_and_leaves_the_others_out(era: str) -> None:
    config = Config(bundles={"reviewer": ("serena__*", "sqlite__query")})
    async with playing(config=config) as app:
        asker = Asker(app, era)
        told = await asker.told("recommend_tools", task_description=TASK, agent_id="reviewer")
        assert told["available_servers"] == ["serena", "sqlite"] and told["total_tools"] == 2
        assert all(each["server"] in ("serena", "sqlite") for each in told["tools"])
        wrong = await asker.failed("recommend_tools", task_description=TASK, agent_id="reviewr")
        assert (wrong["error_type"], wrong["available_agents"]) == ("ValueError", ["reviewer"])
        assert "did you mean reviewer" in wrong["hint"]


@pytest.mark.promise("004.ai.recommend")
async def test_only_what_the_client_may_use_is_recommended(era: str) -> None:
    key = "tg-a-key-that-is-long-enough"
    config = Config(clients=(KnownClient(id="ann", name="ann", key=key, servers=("sqlite",)),))
    async with playing(config=config) as app:
        asker = Asker(app, era)
        asker.visitor.headers["authorization"] = f"Bearer {key}"
        for agent in ({}, {"agent_id": "ann"}):
            told = await asker.told("recommend_tools", task_description=TASK, **agent)
            assert told["available_servers"] == ["sqlite"]
            assert "context7" not in json.dumps(told)


@pytest.mark.promise("004.ai.recommend")
@pytest.mark.parametrize("task", ["", "  ", "x" * 4001])
async def test_a_task_has_a_length(task: str, era: str) -> None:
    async with playing("sqlite") as app:
        assert (await Asker(app, era).failed("recommend_tools", task_description=task))["error_type"] == "ValueError"


# import_mcp_server.


@PATHS
@pytest.mark.promise("004.servers.import")
@pytest.mark.parametrize(
    "given",
    [{}, {"from_project": "a", "query": "b"}, {"github_url": URL, "query": "b"}, {"query": "b", "content": "c"}],
)
async def test_exactly_one_source_is_named(given: Json, path: str, era: str) -> None:
    async with there() as app:
        told = await Asker(app, era, path).failed("import_mcp_server", **given)
        assert told["error_type"] == "ValueError"
        assert "content" in told["error"] or "from_project, github_url, query" in told["error"]


@PATHS
@pytest.mark.promise("004.servers.import")
async def test_what_a_readme_shows_is_imported_once_a_person_has_said_yes(path: str, era: str) -> None:
    async with there() as app:
        content = readme(weather=STDIO, clock={"url": "https://clock.example/mcp"})
        told = await Asker(app, era, path).told("import_mcp_server", github_url=URL, content=content)
        assert told == {"success": True, "imported": ["weather", "clock"]}
        assert served(app) == ["there", "weather", "clock"]
        weather = app.gateway.snapshot.servers["weather"]
        assert (weather.command, weather.args, weather.by_operator) == ("npx", ("-y", "@ann/weather@1.2.0"), False)


@pytest.mark.promise("004.servers.import")
async def test_only_those_that_are_named_are_imported(era: str) -> None:
    async with there() as app:
        asker, content = Asker(app, era), readme(weather=STDIO, clock=STDIO)
        told = await asker.told("import_mcp_server", github_url=URL, content=content, servers=["clock"])
        assert told["imported"] == ["clock"] and served(app) == ["there", "clock"]
        wrong = await asker.failed("import_mcp_server", github_url=URL, content=content, servers=["sundial"])
        assert wrong["available_servers"] == ["weather", "clock"]


@pytest.mark.promise("004.servers.import")
@pytest.mark.parametrize("value", ["${API_KEY}", "<your-api-key>", "YOUR_API_KEY_HERE", "", "your-key", "xxxx", "..."])
async def test_what_lacks_a_secret_says_which_and_is_not_added(value: str, era: str) -> None:
    async with there(environ={"API_KEY": "of-the-gateway"}) as app:
        content = readme(weather={**STDIO, "env": {"API_KEY": value}}, clock=STDIO)
        told = await Asker(app, era).told("import_mcp_server", github_url=URL, content=content)
        assert (told["status"], told["missing"], told["imported"]) == ("needs_configuration", ["API_KEY"], ["clock"])
        shown = told["config"]["weather"]
        assert (shown["command"], shown["transport"], list(shown["env"])) == ("npx", "stdio", ["API_KEY"])
        assert served(app) == ["there", "clock"]
        assert "of-the-gateway" not in json.dumps(told), "no variable of the gateway is put in"


@pytest.mark.promise("004.servers.import")
async def test_a_default_of_a_variable_is_its_value(era: str) -> None:
    async with there() as app:
        env = {"LEVEL": "${LEVEL:-info}", "EXTRA": "${EXTRA:-}"}
        content = readme(weather={**STDIO, "env": env})
        await Asker(app, era).told("import_mcp_server", github_url=URL, content=content)
        assert dict(app.gateway.snapshot.servers["weather"].env) == {"LEVEL": "info"}


async def test_a_server_with_thousands_of_variables_is_not_imported() -> None:
    """All others waited for seconds while what is missing in it was written."""
    async with there(ALLOW) as app:
        for most, is_taken in ((1000, True), (1001, False)):
            env = {f"V{number}": f"${{V{number}}}" for number in range(most - len(STDIO["args"]))}
            content, asker = readme(weather={**STDIO, "env": env}), Asker(app, "modern")
            if is_taken:
                told = await asker.told("import_mcp_server", github_url=URL, content=content)
                assert len(told["missing"]) == len(env)
            else:
                told = await asker.failed("import_mcp_server", github_url=URL, content=content)
                assert "has more than 1,000 arguments, variables and headers" in told["error"]


@pytest.mark.promise("004.servers.import", "b.rulings.18")
async def test_where_no_person_is_asked_what_a_repository_says_waits_for_one(era: str) -> None:
    async with there(ALLOW) as app:
        told = await Asker(app, era).told("import_mcp_server", github_url=URL, content=readme(weather=STDIO))
        assert (told["status"], told["imported"]) == ("needs_approval", [])
        (waits,) = told["servers"]
        assert (waits["name"], waits["command"]) == ("weather", "npx -y @ann/weather@1.2.0")
        assert served(app) == ["there"]


@pytest.mark.promise("004.servers.import", "b.rulings.18")
async def test_who_may_not_add_servers_imports_none(era: str) -> None:
    async with there(Config(add_servers="off")) as app:
        told = await Asker(app, era).failed("import_mcp_server", github_url=URL, content=readme(weather=STDIO))
        assert told["error_type"] == "PermissionError" and "add_servers" in told["error"]
    key = "tg-a-key-that-is-long-enough"
    clients = (KnownClient(id="ann", name="ann", key=key, servers="all"),)
    async with there(Config(clients=clients)) as app:
        asker = Asker(app, era)
        asker.visitor.headers["authorization"] = f"Bearer {key}"
        told = await asker.failed("import_mcp_server", github_url=URL, content=readme(weather=STDIO))
        assert told["error_type"] == "PermissionError" and served(app) == ["there"]


@pytest.mark.promise("004.servers.import", "b.rulings.18")
async def test_nothing_is_imported_that_nobody_has_decided_on(era: str) -> None:
    later = {"weather": Scripted(tools_list=tools("t"))}
    async with gateway(scripts={"there": Scripted(tools_list=tools("look"))}, links_of=later) as app:
        told = await Asker(app, era).failed("import_mcp_server", github_url=URL, content=readme(weather=STDIO))
        assert told["success"] is False and told["imported"] == []
        assert "toolgate approvals allow" in told["hint"] and served(app) == ["there"]


class Files(RegistryNet):
    """GitHub's files by their paths."""

    def __init__(self, **files: bytes | int) -> None:
        super().__init__(Registry())
        self.files = files
        self.asked: list[str] = []

    async def fetch(self, url: str, *_: Any, **__: Any) -> Fetched:
        self.asked.append(url)
        found = self.files.get(url.rpartition("/")[2].replace(".", "_").lstrip("_"), 404)
        if isinstance(found, int):
            return Fetched(found, {}, b"", url)
        return Fetched(200, {}, found, url)


SERVER_JSON = {
    "name": OWNER,
    "description": "Keeps notes",
    "version": "1.0.0",
    "packages": [npm(environmentVariables=[{"name": "NOTES_KEY", "isRequired": True, "isSecret": True}])],
}


@pytest.mark.promise("004.servers.import")
async def test_a_repository_is_looked_into_by_the_guarded_client(era: str) -> None:
    async with there() as app:
        net = app.provisioning.net = Files(server_json=json.dumps(SERVER_JSON).encode())
        told = await Asker(app, era).told("import_mcp_server", github_url="https://github.com/ann/notes")
        assert (told["status"], told["missing"]) == ("needs_configuration", ["NOTES_KEY"])
        assert told["config"]["notes"]["args"] == ["-y", "@ann/notes@1.0.0"]
        assert net.asked == ["https://raw.githubusercontent.com/ann/notes/HEAD/server.json"]


@pytest.mark.promise("004.servers.import")
async def test_its_readme_is_read_where_nothing_else_says_anything(era: str) -> None:
    async with there() as app:
        net = app.provisioning.net = Files(README_md=readme(weather=STDIO).encode())
        told = await Asker(app, era).told("import_mcp_server", github_url=URL + "/tree/main/packages/a")
        assert told["imported"] == ["weather"]
        assert net.asked[-1] == "https://raw.githubusercontent.com/ann/weather/main/packages/a/README.md"


@pytest.mark.promise("004.servers.import")
@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/ann/weather",
        "http://github.com/ann/weather",
        "https://github.com.evil.example/ann/weather",
        "https://github.com/ann",
        "https://github.com/ann/weather/tree/main/../../x",
        "https://user@github.com/ann/weather",
        "file:///etc/passwd",
    ],
)
async def test_no_other_place_is_looked_into(url: str, era: str) -> None:
    async with there() as app:
        net = app.provisioning.net = Files()
        for more in ({}, {"content": readme(weather=STDIO)}):
            told = await Asker(app, era).failed("import_mcp_server", github_url=url, **more)
            assert "no URL of a repository" in told["error"] and not net.asked
        assert served(app) == ["there"]


@pytest.mark.promise("004.servers.import")
@pytest.mark.parametrize("content", ["nothing here", "{", '{"mcpServers": {}}', "```json\n{}\n```", "x" * 1_100_000])
async def test_a_text_without_servers_is_told_so(content: str, era: str) -> None:
    async with there() as app:
        told = await Asker(app, era).call("import_mcp_server", {"github_url": URL, "content": content})
        assert told["isError"] is True and served(app) == ["there"]


@pytest.mark.promise("004.servers.import")
@pytest.mark.parametrize(
    "content",
    [
        "```json\n" * 30_000,
        "{" * 200_000,
        '{"mcpServers": ' * 15_000,
        "```json\n" + "-" * 200_000 + "\n```",
        readme(weather={**STDIO, "env": {"K": "-" * 200_000}}),
        readme(**{f"s{number}": {"command": "x", "env": {"K": "${A}" * 1000}} for number in range(40)}),
    ],
    ids=["fences", "braces", "nested", "dashes", "long", "variables"],
)
async def test_a_text_that_is_made_to_take_long_is_read_or_refused(content: str) -> None:
    async with there(Config(add_servers="allow")) as app:
        result = await Asker(app, "modern").call("import_mcp_server", {"github_url": URL, "content": content})
        assert result["content"] and served(app) == ["there"]


@pytest.mark.promise("004.servers.import")
async def test_the_servers_of_a_project_are_imported_by_its_name(tmp_path: Path, era: str) -> None:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "parser"}')
    file = {"mcpServers": {"weather": STDIO, "clock": {**STDIO, "env": {"TOKEN": "ghp_of-the-project", "K": "${K}"}}}}
    (tmp_path / ".mcp.json").write_text(json.dumps(file))
    async with there() as app:
        asker = Asker(app, era)
        wrong = await asker.failed("import_mcp_server", from_project="parser")
        assert "There is no project parser" in wrong["error"]
        told = await asker.told("import_mcp_server", from_project=str(tmp_path))
        assert (told["status"], told["missing"], told["imported"]) == ("needs_configuration", ["K"], ["weather"])
        assert "ghp_of-the-project" not in json.dumps(told), "a model may never have seen the file"
        app.workspace.workspace.note(project_of(tmp_path))
        again = await asker.failed("import_mcp_server", from_project="parser", servers=["weather"])
        assert "has the same id as server" in again["error"]


PRIVATE = {
    "x": {"command": "npx", "args": ["-y", "a@1.0.0", "--token", "ghp_of-the-operator"], "env": {"B": "${NOT_SET}"}},
    "y": {"url": "https://h.example/mcp?key=of-the-operator", "headers": {"Z": "${NOT_SET}"}},
}


def project(folder: Path) -> Path:
    (folder / ".gobby").mkdir(parents=True)
    (folder / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "parser"}')
    return folder


async def test_of_a_projects_file_no_secret_is_shown_that_stands_in_arguments_or_in_a_url(tmp_path: Path) -> None:
    (project(tmp_path) / ".mcp.json").write_text(json.dumps({"mcpServers": PRIVATE}))
    async with there() as app:
        told = await Asker(app, "modern").told("import_mcp_server", from_project=str(tmp_path))
        assert told["config"]["x"]["args"] == ["-y", "a@1.0.0", "--token", "***"]
        assert told["config"]["y"]["url"] == "https://h.example/mcp?***"
        assert "of-the-operator" not in json.dumps(told)


@pytest.mark.parametrize("file", [".mcp.json", ".cursor/mcp.json", ".codex/config.toml"])
async def test_a_link_in_a_project_leads_to_no_file_of_ours(tmp_path: Path, file: str) -> None:
    (tmp_path / "private.json").write_text(json.dumps({"mcpServers": PRIVATE}))
    link = project(tmp_path / "p") / file
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "private.json")
    async with there() as app:
        told = await Asker(app, "modern").failed("import_mcp_server", from_project=str(tmp_path / "p"))
        assert f"{file} is not read: it is a symbolic link" in told["error"]


async def test_a_folder_that_others_can_write_to_is_no_project_of_ours(tmp_path: Path) -> None:
    (project(tmp_path / "p") / ".mcp.json").write_text(json.dumps({"mcpServers": PRIVATE}))
    (tmp_path / "p").chmod(0o777)
    async with there() as app:
        told = await Asker(app, "modern").failed("import_mcp_server", from_project=str(tmp_path / "p"))
        assert "is not read: it" in told["error"] and told["hint"] == "name a project of your own"


def searched(**provision: Any) -> tuple[Registry, Config]:
    registry = Registry(item(OWNER, description="Keeps searchable notes of meetings", packages=[npm()]))
    registry.url = registry_double.URL
    registry.add_npm("@ann/notes", "1.0.0", OWNER)
    more = {"trusted": ("io.github.ann/*",), "registries": (registry_double.URL,), **provision}
    return registry, Config(provision=Provision(**more), add_servers="allow")


@pytest.mark.promise("004.servers.import")
async def test_what_a_search_finds_is_imported_if_it_passes_every_gate(era: str) -> None:
    registry, config = searched()
    async with there(config, registries=config.provision.registries) as app:
        registry_double.reach(app, registry)
        told = await Asker(app, era).told("import_mcp_server", query="keep searchable notes of meetings")
        assert told == {"success": True, "imported": ["notes"]}
        assert app.gateway.snapshot.servers["notes"].args == ("-y", "@ann/notes@1.0.0")


@pytest.mark.promise("004.servers.import", "b.002.provision-gates")
async def test_what_does_not_pass_a_gate_waits_for_a_person_with_the_exact_command(era: str) -> None:
    registry, config = searched(trusted=())
    async with there(config, registries=config.provision.registries) as app:
        registry_double.reach(app, registry)
        told = await Asker(app, era).told("import_mcp_server", query="keep searchable notes of meetings")
        assert (told["status"], told["imported"]) == ("needs_approval", [])
        (waits,) = told["servers"]
        assert waits["command"] == "npx -y @ann/notes@1.0.0" and "trusted" in waits["why"]
        assert [each["gate"] for each in waits["gates"] if not each["passed"]] == ["trusted"]
        assert served(app) == ["there"]


@pytest.mark.promise("004.servers.import")
async def test_a_search_that_finds_nothing_is_told_so(era: str) -> None:
    async with there() as app:
        told = await Asker(app, era).failed("import_mcp_server", query="peel these potatoes")
        assert "No server was found" in told["error"]
