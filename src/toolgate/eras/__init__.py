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
is asked of the row, and written here. A new revision is a row there, the shapes that it changes here, and its date in
`tests/official.py`. A result stays in its server's words until a frontend writes it: where a member has another name
in one revision, rooms that read it by name (search for it) must know both, and the official schema goes to
`tests/spec`.
"""
