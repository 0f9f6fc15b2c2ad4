"""Bytes and values that every other room works with.

May import nothing of toolgate.

The protocol
    jsonrpc     the JSON-RPC envelope, read and written without looking inside
    sse         server-sent events, both ways
    lines       one message a line: the framing of stdio
    mcp         revisions, methods, notifications, error codes and keys of MCP, as tables
    items       what an item of a list says of itself
    addresses   which address counts where something is bounded for each
    names       `server__tool`, `server+uri` and back; near misses
    templates   templates of URIs, and what a completion makes of one
    plain       JSON of others, read into plain values
    surrogates  lone surrogates in JSON
    counting    how many values JSON holds, counted before it is read
    outline     where the members of large JSON stand, found a piece at a time
Values
    model       `Call`, `Done`, `NeedInput`, `Client`, `Principal`, `Event`, and what belongs to them
    listing     one list for one client, and its pages
    notes       what is told of one call while it runs: progress, logs
    fault       `Fault`: a failure, and the table of codes
    search_path  `PATH` without what is relative
    not_edited  that a file of the user was not edited
Work
    exchange    work that runs and may ask: the base of every question from a server to a client
    asks        whether a client can be asked something
    background  work that nobody waits for, and its owner; work that is carried out whole, or again and again
    own_threads  a thread of its own for work that may hang
    services    what has to go by another configuration while it works
    clock       time, which tests can stop
    events      what is told to everyone who listens
    fairness    a queue in which principals take turns
    crowds      very many that go on at the same moment, few in each round of the event loop
    steps       work in steps, between which others may go on
    concurrency  how much of something goes on at once; principals that wait take turns
    inflow      reading a connection a piece at a time
    encrypted   TLS, made sense of a piece at a time
    outflow     writing to many connections at the end of a round
    bodies      how much is kept of bodies that have not ended, and of results on their way
    large       large bodies: in a file while they come, looked at in pieces, written without being joined
Texts
    escapes     what readers of JSON in texts find, layer by layer, and where it stands
    redaction   known secrets, taken out of a text
    token_shapes  text in the form of a secret, taken out of it
    spelling    text in one spelling, whatever is in it
    excerpts    the beginning and the end of a long text
    complaints  how often a server's mistakes are logged
    internal_errors  how often our own are

A new revision of MCP is a row in `mcp`; what it changes in shape is written by `eras`. A new method is a row there:
its role says which handler of `frontends.session` and `frontends.modern` takes it. A new failure is a row in
`fault.RPC_CODES`.
"""
