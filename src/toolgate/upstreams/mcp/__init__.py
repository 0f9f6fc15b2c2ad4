"""Servers that speak MCP, over any link, in any revision. The only package below the frontends that knows eras.

A server
    upstream          `McpUpstream`: a server's sessions, one for each scope
    upstream_session  a scope's session: its connection, opened when needed and ended when nobody needs it
    condition         how a session is, and what people are told of that
    idle              when it has been idle for long enough
    era_choice        in which era a server is spoken to, where it may speak both
    opening           opening a connection: which era the server speaks, then the handshake where it wants one
    resubscribe       what a scope's clients watch; asking for it anew on a new connection
One connection
    requests          its requests: ids, sending, what is pending, answers; all below is built on them
    dialects          what an era, as it is spoken to a server, must have (`eras`); the one before any is found out
    paging            one whole list, read page by page
    notifications     what the server says unasked
    questions         a legacy server's questions, given to the call that they belong to
    attribution       which call that is
    rotation          clients taking turns, so that it is clear which call that is
    large_notes       notes that are dropped unread, but for a task's result
    large_answers     which answers are being read aside
    subscriptions     having a server tell of changes
    tasks             tasks of 2025-11-25, and waiting for one
    made_tasks        whose each one is
    counted_tasks     which count for limits, and when they are over
    sent_pages        which clients were sent to which pages
    reporting         where the progress of their calls goes
    watchdog          replacing a process that says nothing any more
    revision_check    whether an HTTP server speaks another revision by now

Everything goes through `McpUpstream._use`, which leases the connection before it looks for one. Nobody ends a
connection that is leased, at work or watched, so no call can meet one on its way out. All endings (idle, pool,
ephemeral, `stop`) are one, `UpstreamSession._end`, in a task of its own that the next opening waits for.

What is built on `Requests` is given it, and registers there what it wants to hear: a notification is a row of
`handlers`. Another one that a server may send is a handler in `notifications`, or in what it is about.

The era (decision 0013): over HTTP, and where a server belongs to one principal or session, it is the client's era; one
scope may then have two sessions. One process for all clients is spoken to in one era: it is asked to initialize first,
and to discover where it refuses that. A process of one's own is asked to discover first. One that ends over a first
message is started once more for the other era.

Of a task nothing is kept but who made it (`TaskOwners`, bounded). Where a tool of 2025-11-25 runs as a task only and
the client wants none, `tasks.Waiting` makes the task, waits for its result and looks after it; whatever the task asks
is asked of the call.
"""
