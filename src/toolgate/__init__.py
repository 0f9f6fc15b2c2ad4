"""toolgate: one MCP endpoint in front of every MCP server."""

__version__ = "0.1.0"
