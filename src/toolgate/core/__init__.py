"""Bytes and values: what every other room speaks in. Imports nothing of toolgate.

The protocol: `jsonrpc` (messages), `sse`, `lines` (framing), `mcp` (its words, as tables), `items` (what an item of a
list says), `surrogates`, `counting` (how many values JSON holds), `names` (those of the merged view, and near misses).
Values: `model`. Work: `exchange` (work that asks), `asks` (whether a client can be asked), `background` (work
that nobody waits for), `clock`, `events` (what is told to all who listen), `fairness` (a queue in which those who wait
take turns), `inflow` (what comes on a connection, a piece at a time). Texts: `redaction` (known secrets, taken out),
`excerpts` (the ends of long ones), `complaints` (how much of what a server does wrong is logged).

A new method of MCP is a row in `mcp`; a new failure a row in `model.RPC_CODES`.
"""
