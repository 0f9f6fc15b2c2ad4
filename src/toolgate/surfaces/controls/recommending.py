"""`recommend_tools` of seed 004: which tools fit a task, in words and as a list.

The rules this file keeps: what is recommended is what the ranker found, among what the client may see; a model, where
one is configured, may say it in other words and chooses nothing that was not found; and what a server wrote stands in
a sentence of ours in quotes that it cannot leave.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolgate.auth import safe_text
from toolgate.core import jsonrpc, names
from toolgate.core.fault import Fault
from toolgate.search import Hit
from toolgate.search.briefs import brief
from toolgate.surfaces.controls.context import ControlContext
from toolgate.upstreams.inprocess.tools import Object
from toolgate.upstreams.providers import prompts

LONGEST_TASK = 4000  # characters
LONGEST_TOLD = 4000  # characters of what a model says
MOST = 5  # tools that are recommended
LEAST = 0.1  # confidence; who reads a recommendation decides, and is told how sure it is
LOOKED_AT = 50  # hits, of which a profile leaves some
_is_plain = re.compile(r"[A-Za-z0-9_.:/-]{1,128}").fullmatch


async def recommend_tools(given: Object, context: ControlContext) -> Object:
    task = given["task_description"].strip()
    if not task or len(task) > LONGEST_TASK:
        message = f"Invalid arguments: `task_description` must have 1 to {LONGEST_TASK:,} characters"
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    patterns = _profile(given.get("agent_id"), context)
    known = context.gateway.configured
    servers = [id for id in known if patterns is None or any(id in names.meant(each, known) for each in patterns)]
    means = names.matcher(patterns or ())
    view = await context.gateway.lists([(id, "tools") for id in servers])
    offered = {
        (id, name)
        for id in servers
        if (server_list := view.server_list(id, "tools"))
        for name in server_list.items
        if patterns is None or means(id, name)
    }
    hits = await context.gateway.search(task, servers=servers, limit=LOOKED_AT)
    found = [hit for hit in hits if (hit.document.server, hit.document.name) in offered and hit.confidence >= LEAST]
    best = [hit for hit in found if hit.verdict == "match"] or found
    tools = [_told(hit, context) for hit in best[:MOST]]
    said: dict[str, Any] = {
        "success": True,
        "task": task,
        "recommendation": _in_words(best[:MOST], tools),
        "tools": tools,
        "available_servers": [known[id].name for id in servers],
        "total_tools": len(offered),
    }
    pending = [known[id].name for id in servers if (id, "tools") in view.pending and not view.server_list(id, "tools")]
    said |= {"pending": pending} if pending else {}
    return {**said, **await _by_model(task, tools, context)}


def _profile(agent: str | None, context: ControlContext) -> Sequence[str] | None:
    """The patterns of the bundle that an agent's id names, of those with a server of this client's; None where all
    tools are meant. Raises `Fault`."""
    known = context.gateway.servers
    found = context.gateway.profiles.items()
    profiles = {name: patterns for name, patterns in found if any(names.meant(each, known) for each in patterns)}
    if agent is None or agent == context.client.principal.client:
        return None
    if agent in profiles:
        return profiles[agent]
    close = names.did_you_mean(names.near(agent[: names.LONGEST_COMPARED], profiles))
    hint = close or "an agent's profile is a bundle of the configuration (`bundles`); leave agent_id out for all tools"
    message = f"Invalid arguments: there is no profile {agent[:100]}"
    raise Fault("INVALID_ARGS", message, hint=hint, reach="not_sent", extra={"available_agents": list(profiles)[:100]})


def _told(hit: Hit, context: ControlContext) -> Object:
    found = hit.document
    return {
        "server": context.gateway.servers[found.server].name,
        "tool": found.name,
        "brief": brief(found.description),
        "confidence": round(hit.confidence, 2),
    }


def _in_words(hits: Sequence[Hit], tools: Sequence[Object]) -> str:
    if not tools:
        return "No tool of the available servers fits this task. mcp_provision finds servers that could be added."
    by_server: dict[str, list[str]] = {}
    for tool in tools:
        about = f" ({safe_text.quoted(tool['brief'].rstrip('.'))})" if tool["brief"] else ""
        name = tool["tool"] if _is_plain(tool["tool"]) else safe_text.named(tool["tool"])
        by_server.setdefault(tool["server"], []).append(f"{name}{about}")
    parts = [f"{server} tools: {', '.join(each)}" for server, each in by_server.items()]
    if hits[0].verdict == "match":
        return f"I recommend using {'; and '.join(parts)}."
    return f"No tool is a clear match. The closest are {'; '.join(parts)}."


async def _by_model(task: str, tools: Sequence[Object], context: ControlContext) -> Mapping[str, Any]:
    """The same in a model's words, where one is configured for it; without an answer nothing is lost."""
    providers = context.gateway.providers
    if not tools or not providers.of("recommendations"):
        return {}
    prompt = prompts.recommendation(task, jsonrpc.encode(tools))
    try:
        said = await providers.ask("recommendations", prompt, context.client.principal.counted_as)
    except Fault as fault:
        return {"note": f"{fault.message}; the recommendation is written without a model"}
    text = said.text.strip()[:LONGEST_TOLD]
    by = {"provider": providers.name("recommendations"), "model": said.model}
    return {"recommendation": text, "model": by, "note": "A model wrote the recommendation."} if text else {}
