"""Bytes: the JSON-RPC envelope, the tables of MCP, server-sent events, names. Knows nobody above."""
