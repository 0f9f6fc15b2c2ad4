"""What the pinned servers offer and answer, written down from the servers themselves, and the checks of a report."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import installed
import world

# What server-everything shows depends on what its client declares.
EVERYTHING = {
    "echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference",
    "get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource", "toggle-simulated-logging",
    "toggle-subscriber-updates", "trigger-long-running-operation", "simulate-research-query",
}  # fmt: skip
EVERYTHING_IF = {
    "roots": {"get-roots-list"},
    "sampling": {"trigger-sampling-request"},
    "elicitation": {"trigger-elicitation-request", "trigger-url-elicitation"},
}
ALL_CAPABILITIES = ("elicitation", "sampling", "roots")

TOOLS = {
    "filesystem": {
        "read_file", "read_text_file", "read_media_file", "read_multiple_files", "write_file", "edit_file",
        "create_directory", "list_directory", "list_directory_with_sizes", "directory_tree", "move_file",
        "search_files", "get_file_info", "list_allowed_directories",
    },
    "memory": {
        "create_entities", "create_relations", "add_observations", "delete_entities", "delete_observations",
        "delete_relations", "read_graph", "search_nodes", "open_nodes",
    },
    "time": {"get_current_time", "convert_time"},
    "git": {
        "git_status", "git_diff_unstaged", "git_diff_staged", "git_diff", "git_commit", "git_add", "git_reset",
        "git_log", "git_create_branch", "git_checkout", "git_show", "git_branch",
    },
}  # fmt: skip
DOCUMENTS = ("architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure")
RESOURCES = {
    "everything": {f"demo://resource/static/document/{name}.md" for name in DOCUMENTS},
    "memory": {"memory://knowledge-graph"},
}
TEMPLATES = {"everything": {f"demo://resource/dynamic/{kind}/{{resourceId}}" for kind in ("text", "blob")}}
PROMPTS = {"everything": {"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}}

DOCUMENT = "demo://resource/static/document/features.md"
SIMPLE_PROMPT = "This is a simple prompt without arguments."


def everything_tools(*capabilities: str) -> set[str]:
    return EVERYTHING.union(*(EVERYTHING_IF[name] for name in capabilities))


def union(capabilities: tuple[str, ...] = ALL_CAPABILITIES) -> dict[str, list[str]]:
    """The lists of the aggregate view, sorted, for a client that declares these capabilities."""
    tools = {**TOOLS, "everything": everything_tools(*capabilities)}
    return {
        "tools": _joined(tools, "__"),
        "resources": _joined(RESOURCES, "+"),
        "templates": _joined(TEMPLATES, "+"),
        "prompts": _joined(PROMPTS, "__"),
    }


def alone() -> dict[str, list[str]]:
    """The lists of server-everything by itself, for a client that declares all."""
    return {
        "tools": sorted(everything_tools(*ALL_CAPABILITIES)),
        "resources": sorted(RESOURCES["everything"]),
        "templates": sorted(TEMPLATES["everything"]),
        "prompts": sorted(PROMPTS["everything"]),
    }


def _joined(offered: dict[str, set[str]], mark: str) -> list[str]:
    return sorted(f"{server}{mark}{name}" for server, names in offered.items() for name in names)


def lists(report: dict[str, Any]) -> dict[str, list[str]]:
    """The lists of a report, sorted; what is listed twice stays twice."""
    return {kind: sorted(found["items"]) for kind, found in report["list"].items()}


# -- one call of each server ---------------------------------------------------------------------------------------


def calls(files: world.Files) -> list[tuple[str, dict[str, Any]]]:
    noon = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"}
    return [
        ("everything__get-sum", {"a": 2, "b": 3}),
        ("everything__get-structured-content", {"location": "Chicago"}),
        ("filesystem__read_text_file", {"path": str(files.hello)}),
        ("memory__open_nodes", {"names": ["Ada"]}),
        ("time__convert_time", noon),
        ("git__git_status", {"repo_path": str(files.repository)}),
    ]


def answers(today: datetime) -> dict[str, Any]:
    """What these calls answer: texts, and structured content. `today` is any moment of the day in Tokyo."""
    weather = {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    graph = {"entities": [world.ENTITY], "relations": []}
    noon = today.replace(hour=12, minute=0, second=0, microsecond=0)
    converted = {
        "source": _instant("Asia/Tokyo", noon),
        "target": _instant("Asia/Kolkata", noon.astimezone(ZoneInfo("Asia/Kolkata"))),
        "time_difference": "-3.5h",
    }
    return {
        "everything__get-sum": ("The sum of 2 and 3 is 5.", None),
        "everything__get-structured-content": (weather, weather),
        "filesystem__read_text_file": (world.GREETING, {"content": world.GREETING}),
        "memory__open_nodes": (graph, graph),
        "time__convert_time": (converted, converted),
        "git__git_status": ("Repository status:\nOn branch main\nnothing to commit, working tree clean", None),
    }


def _instant(zone: str, moment: datetime) -> dict[str, Any]:
    written = moment.isoformat(timespec="seconds")
    return {"timezone": zone, "datetime": written, "day_of_week": moment.strftime("%A"), "is_dst": False}


def now_in_tokyo() -> datetime:
    return datetime.now(ZoneInfo("Asia/Tokyo"))


def check_calls(report: dict[str, Any], before: datetime, server: str = "") -> None:
    """Every call (or those of one server) answered exactly so. A run that midnight fell into may have either day."""
    found = {name: _answer(result) for name, result in report["calls"].items()}
    assert not any(result["isError"] for result in report["calls"].values()), report["calls"]
    on_either_day = [
        {name: answer for name, answer in answers(day).items() if name.startswith(server)}
        for day in (before, now_in_tokyo())
    ]
    assert found in on_either_day, (found, on_either_day)


def _answer(result: dict[str, Any]) -> tuple[Any, Any]:
    (text,) = result["text"]
    return (json.loads(text) if text.startswith("{") else text, result["structured"])


# -- questions and progress ----------------------------------------------------------------------------------------


def check_read(report: dict[str, Any], uri: str, text: str | None = None) -> None:
    if text is None:
        folder = installed.NPM / "node_modules/@modelcontextprotocol/server-everything/dist/docs"
        text = (folder / "features.md").read_text(encoding="utf-8")
    assert report["read"] == {"resource": [[uri, text]], "prompt": [SIMPLE_PROMPT]}


def check_elicitation(report: dict[str, Any]) -> None:
    found = report["elicitation"]
    [asked] = found["asked"]
    assert asked.rpartition("> ")[2] == "Please provide inputs for the following fields:"
    assert found["text"][:2] == [
        "✅ User provided the requested information!",
        "User inputs:\n- Name: Ada Lovelace\n- Agreed to terms: true\n- Favorite Integer: 7",
    ]


def check_sampling(report: dict[str, Any]) -> None:
    found = report["sampling"]
    assert found["asked"] == ["Resource trigger-sampling-request context: say something"]
    (text,) = found["text"]
    title, _, body = text.partition("\n")
    assert title == "LLM sampling result: "
    assert json.loads(body) == {
        "role": "assistant",
        "content": {"type": "text", "text": "a sampled sentence"},
        "model": "interop-model",
        "stopReason": "endTurn",
    }


def check_roots(report: dict[str, Any], root: str) -> None:
    (text,) = report["roots"]["text"]
    assert text.startswith(f"Current MCP Roots (1 total):\n\n1. own root\n   URI: {root}\n\nNote: "), text
    assert set(report["roots"]["asked"]) <= {root}


def check_progress(client: world.Client, report: dict[str, Any]) -> None:
    """Five steps were told one by one, in order."""
    found = report["progress"]
    assert found["text"] == ["Long running operation completed. Duration: 0.5 seconds, Steps: 5."]
    told = [[step, 5] for step in range(1, 6)]
    if client.loses_the_last_progress:
        assert found["seen"] in (told, told[:4])
    else:
        assert found["seen"] == told
