"""Translation between `Call` and the bytes of each era. Nothing here waits or sends.

May import `state`, `config` and `core`, and needs only `core`. Stands apart from `auth`, which is in the same row.

One era
    legacy            the handshake revisions, 2024-11-05 to 2025-11-25
    modern            revision 2026-07-28: requests that carry their envelope, results that may ask
    listening         `subscriptions/listen` of 2026-07-28: what a client wants to hear, and what it is told
    headers           request headers of 2026-07-28 that repeat values of the body
    header_arguments  arguments that an HTTP request repeats in headers (`x-mcp-header`)
Both
    calls             `params` ↔ `Call`
    questions         what a client of a revision can be asked, in which words, and how its answer is read
    tasks             what can be told of a task, and the places where its id stands
    revisions         lists, results and notifications, as their reader's revision allows them
    naming            members that a revision calls otherwise, read into our words, and written in a peer's
    listed            which items of lists every client can read
    output_schemas    which schemas of results every client can compile
    js_patterns       which patterns JavaScript can
    repair            small writers that make a value fit its reader; the tables are made of them

`header_arguments` reads `x-mcp-header` out of a tool's schema. The gateway knows those arguments from the tool's
listing (`catalog.tool_info`), compares a client's headers with them, and writes them anew for the server. A server
that answers "header mismatch" has changed its tool: the tool is listed again and called once more.

How an era is spoken to a server is the `ToServer` of `legacy` and of `modern`; a connection has one
(`upstreams.mcp.dialects` says what it must have).

What only some revisions have is a field of `core.mcp.Revision`. Nobody compares revisions or names one: what differs
is asked of the row, and written here. A new revision is a row there, and the shapes that it changes here; a member
that it calls otherwise is a `Renamed` of its row, and nothing else. What a server says is in our words from
`upstreams.mcp` on, until a frontend writes it in its client's: the rooms between know of no other name.
"""
