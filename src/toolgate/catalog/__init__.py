"""What servers offer: their lists, kept, refreshed, changed by operators, and filtered for each client.

May import `upstreams` and the rooms below it.

    base         one list of one server (`ServerList`), and what one client may see (`View`)
    catalog      all lists: fetched when first needed, kept, told of when they change; says when a list holds
    refresh      when a list that its server says has changed is fetched again
    cache        what the store knows of servers between two runs
    views        what one client may see; filtered before anything else looks at it
    permitted    the part of a list that the rules of a client permit
    overlays     what an operator changes of a server's tools
    tool_info    what a tool's listing says that matters to calls of it
    server_info  what the servers of a route say of themselves together
    pins         what tools were when they were first seen or approved, and which have changed
    reviews      when tools are compared with their pins that were shown already
    pin_review   how they differ, for who decides, and the decision
    prints       what of a tool is pinned
    poisoning    words in a description that are meant for the model: a table of patterns
    loaded       what clients have loaded of tools: the last list, and what they were told
    served       what was served last, so that the audit notes edits of the configuration

A list holds as long as its server says (`ttlMs`), else as long as `catalog.ttl`. A merged list holds as long as the
shortest of its parts and is public only if all of them are; one that lacks something holds for nobody. What was listed
once is known: after a restart lists are there before any server is. A server that is not up is not started because
its list is old. A list that cannot be fetched anew is shown as it was for `catalog.grace`, with the fault beside it.
A refusal is another matter: a call that a list from before its server's start would refuse is checked against the
present list first (`gateway.resolve`). Decision 0012 says how long a first list waits.

An overlay is applied to a server's own list by a pure function (`overlays.apply`); `ServerList.own` keeps the original.
Surfaces know the shown names only. Before any policy runs, the gateway translates a call back to the server's own tool
and arguments. On a server with overlays nothing can be called that is not shown.
"""
