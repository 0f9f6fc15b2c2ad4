"""The servers that calls go to, by kind. Each is what `base.Upstream` says.

May import `auth`, `eras`, `telemetry` and the rooms below them.

Kinds
    kinds        the table of them, which has a line for the file or package of each
    links        what carries the messages of servers: stdio, HTTP, HTTP+SSE, WebSocket, memory
    process      the programs that the gateway starts, watches and ends
    providers    models behind HTTP APIs, which are no servers: nobody calls them but the gateway itself
What they share
    base         `Upstream` and `Status`: what every kind is, and what is known of one
    pool         how many servers are up at once
    concurrency  how many calls are in flight at once; principals that wait take turns
    breaker      the circuit breaker
    predecessors  what was configured by a server's id before it, and has to end first
    stopping     how a call ends whose server is stopped on purpose
    diagnosis    known causes of a failure, each with its fix
    checks       what can be said of servers without starting them
    bounds       how long a list of a server may be
    known_eras   which era each server speaks, kept from one start to the next
    kept_tasks   who made which task, kept likewise

A server starts when it is first needed. What starts takes a slot in the `Pool`, one for all snapshots, and gives it
back when every part of it is gone. The pool never looks around: its holders say that they rest, and are asked to give
way when somebody waits: what is idle first, then what is beyond the share of its principal. A server that comes back
after it gave way is not listed again for that: servers that take turns would list each other out without end.

Another kind is a class that is an `Upstream` in a file or package of its own, a row in `kinds.KINDS`, and its row in
`config.server_types.TYPES`.
Another carrier of MCP is a module of `links`, a row in `kinds.LINKS` and one in `TYPES`. A server of tools in this
process is functions, an `InProcessTools`, and a row in `inprocess.BUILT_IN_SERVERS`.
Another known cause of a failure is a row in `diagnosis.CAUSES`.
"""
