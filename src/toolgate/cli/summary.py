"""What `toolgate serve` says when it serves: its servers, how long the list of tools is, and how clients connect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from toolgate import __version__
from toolgate.app import App
from toolgate.catalog.base import ServerList
from toolgate.catalog.poisoning import visible
from toolgate.cli.printing import aligned
from toolgate.config import Config
from toolgate.core import names
from toolgate.core.model import Client
from toolgate.gateway.gateway import Gateway
from toolgate.search import tokens

MOST_SERVERS = 30  # that are named

# How a client is told of an MCP server over HTTP, by its maker's documentation. `{url}` and `{header}` are put in.
CLIENTS: Mapping[str, tuple[str, str]] = {
    "Claude Code": (
        "claude mcp add --transport http toolgate {url}{header}",
        ' --header "Authorization: Bearer $TOOLGATE_KEY"',
    ),
    "Codex": ("codex mcp add toolgate --url {url}{header}", " --bearer-token-env-var TOOLGATE_KEY"),
    "Gemini CLI": (
        "gemini mcp add --scope user --transport http toolgate {url}{header}",
        ' --header "Authorization: Bearer $TOOLGATE_KEY"',
    ),
    "VS Code": (
        """code --add-mcp '{{"name": "toolgate", "type": "http", "url": "{url}"{header}}}'""",
        ', "headers": {"Authorization": "Bearer KEY"}',
    ),
}


def lines(app: App, url: str) -> Iterator[str]:
    """`url` is that of the endpoint /mcp. What is known of the servers' tools is that of the last time they were up."""
    gateway, config = app.gateway, app.gateway.snapshot.config
    yield f"toolgate {__version__}, process {gateway.gateway_info.pid}, configuration {config.source or 'none'}"
    server_lists = _known(gateway)
    yield from aligned(tuple(_rows(config, server_lists)))
    if config.servers:
        yield from _length(config, url, server_lists)
    else:
        yield "No servers are configured yet: add one under mcpServers; no restart is needed"
    yield ""
    yield "Connect a client:"
    yield from connecting(config, url)


def _known(gateway: Gateway) -> Mapping[str, ServerList | None]:
    catalog = gateway.snapshot.catalog
    return {id: catalog.known(id, "tools", Client()) for id in gateway.snapshot.upstreams if id not in names.INTERNAL}


def _rows(config: Config, server_lists: Mapping[str, ServerList | None]) -> Iterator[tuple[str, str]]:
    for server in config.servers[:MOST_SERVERS]:
        server_list = server_lists.get(server.id)
        state = counted(len(server_list.items)) if server_list else "not listed yet" if server.enabled else "disabled"
        yield f"  {visible(server.name)}", state
    if len(config.servers) > MOST_SERVERS:
        yield f"  and {len(config.servers) - MOST_SERVERS} more", ""


def _length(config: Config, url: str, server_lists: Mapping[str, ServerList | None]) -> Iterator[str]:
    items = [raw for server_list in server_lists.values() if server_list for raw in server_list.items.values()]
    size = sum(tokens.estimate(bytes(raw)) for raw in items)
    missing = sum(server_list is None for server_list in server_lists.values())
    if items:
        unlisted = f" (without those not listed yet: {missing})" if missing else ""
        yield f"In total: {counted(len(items))}, about {size:,} tokens for a model{unlisted}"
    else:
        yield "The servers have not been listed yet: run `toolgate list`, or wait for the first client"
    search = config.virtual_search
    is_long = len(items) > search.threshold or size > search.threshold_tokens
    if config.surface != "aggregate":
        yield f"/mcp shows the surface {config.surface}; all tools are at {url}/aggregate"
    elif is_long and not search.enabled:
        yield f"That is a long list. {url}/meta shows just two tools that find and call all others"


def connecting(config: Config, url: str) -> list[str]:
    """How the common clients are told of the gateway. Where an issuer makes tokens, clients find that by themselves."""
    needs_key = not config.is_open and not config.auth.issuer
    rows = [
        (f"  {name}", command.format(url=url, header=header if needs_key else ""))
        for name, (command, header) in CLIENTS.items()
    ]
    entry: dict[str, object] = {"type": "http", "url": url}
    if needs_key:
        entry |= {"headers": {"Authorization": "Bearer ${TOOLGATE_KEY}"}}
    rows.append(("  other clients", json.dumps({"mcpServers": {"toolgate": entry}})))
    if needs_key:
        rows.append(("  their keys", "toolgate keys create CLIENT"))
    return aligned(tuple(rows))


def counted(tools: int) -> str:
    return f"{tools} {'tool' if tools == 1 else 'tools'}"
