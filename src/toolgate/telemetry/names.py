"""What things are called in metrics, traces and logs: one table.

The names of OpenTelemetry are those of its conventions for MCP, which are still in development: as `docs/gen-ai/mcp.md`
of `open-telemetry/semantic-conventions-genai` has them in commit 0393513c908b. What begins with `toolgate` is our own.
"""

from __future__ import annotations

from typing import Final

# Attributes; those that name a prompt or a resource stand with their kinds (`mcp.KINDS`).
METHOD: Final = "mcp.method.name"
TOOL: Final = "gen_ai.tool.name"
ERROR: Final = "error.type"
OPERATION: Final = "gen_ai.operation.name"
REVISION: Final = "mcp.protocol.version"
CODE: Final = "rpc.response.status_code"
TRANSPORT: Final = "network.transport"
SERVER: Final = "toolgate.server"
PRINCIPAL: Final = "toolgate.principal"
OUTCOME: Final = "toolgate.outcome"
VIA: Final = "toolgate.via"  # the control tool that a call came through

# Their values.
EXECUTE_TOOL: Final = "execute_tool"
TOOL_ERROR: Final = "tool_error"  # a result says `isError`
CANCELLED: Final = "cancelled"
OTHER: Final = "_OTHER"  # what is not told apart

# Metrics; durations are in seconds.
SERVED: Final = "mcp.server.operation.duration"  # from a client's request to its answer
SENT: Final = "mcp.client.operation.duration"  # from what we ask of a server to its answer

# Upper bounds of their buckets: those that the conventions recommend, and below them what takes us microseconds.
BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0,
                 300.0)  # fmt: skip


def prometheus(name: str) -> str:
    """A name of OpenTelemetry as Prometheus has it."""
    return name.replace(".", "_")
