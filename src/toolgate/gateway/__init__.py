"""A call's whole story: what it is for, who judges it, and how it gets to its server.

May import `policy` and the rooms below it.

    gateway        the story itself, of a call, a list, a subscription
    resolve        a client's name for something → the true server and its own name
    plan           what a name means on a route, found once and kept while its lists and rules hold
    send           how a call gets to its server, and when it is sent a second time
    snapshot       everything that is built from one configuration: `KINDS`, `build`, `build_routes`
    reload         another configuration, from what is written to what is served
    subscriptions  what clients watch, and asking for it anew when its server has changed
    audience       which events concern which client
    tool_context   what control tools work by, for one client on one route
    notices        who is told that a call waits for an operator

A call keeps the route that it began with. Whatever holds a `Route` across an `await` must be ready for a server that is
gone: `Route.upstream` and `Snapshot.route` raise the `Fault` that says so.

Another thing that is told to clients of all servers belongs to `audience`. Another path belongs to
`snapshot.build_routes`.
"""
