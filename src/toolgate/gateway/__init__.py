"""A call's whole story: what it is for, who judges it, and how it gets to its server.

May import `policy`, `surfaces` and the rooms below them.

    gateway        the story itself
    round          what is known of one round of a call on its way
    resolve        a client's name for something → the true server and its own name
    closed         finds what a client may not call, so that policies refuse it; has counted what is not found
    doubts         when a list is looked at anew before a call goes by it
    makers         a call for a task or a kept result, and for what made that
    plan           what was resolved once, kept for the next call of that name
    memos          what was found for one call, kept for others that differ in nothing but their arguments
    recheck        what a call is by now that has waited
    embedding      what tools mean, as vectors of a model that is configured for it
    token_meter    how many tokens clients have loaded of tools, against all tools at once
    lists          what a client is told of what there is: lists, instructions, its tasks
    known_listings  lists as they were shown, for the next page of them
    send           when a call is sent to its server a second time
    snapshot       everything that is built from one configuration: `build`, `build_routes`
    changes        judges changes of the servers that a tool call wants, before a person is asked: a policy
    finder         searches what a client may see; indexes the lists that have changed, in a thread of its own
    confirming     which guards an edit takes away, so that it waits for the operator
    file_edits     edits of the file that people write, as its text or a part of it
    reload         another configuration, from what is written to what is served
    templates      which templates of resources make the URI of a call
    subscriptions  the story of what clients watch, and asking for it anew when its server has changed
    audience       which events concern which client
    observed       what results have looked like, told to those whose results they were
    stored         one call of a stored script
    own_work       what works in this process behind the gateway's own tools
    installing     what `mcp_provision` says of servers that are not there yet, and installs
    importing      what `import_mcp_server` could import
    activated      the tools that searches have found, which a session is shown
    route_view     what one client may see and steer on its route; `toolgate` itself as a server of tools
    scripts        what code calls that a client has run
    notices        who is told that a call waits for an operator

A call keeps the route that it began with. Whatever holds a `Route` across an `await` must be ready for a server that is
gone: `Route.upstream` and `Snapshot.route` raise the `Fault` that says so.

What another control tool needs of the gateway is a method of `GatewayView`, and of `route_view`; the tool itself
belongs to `surfaces.controls`. Another thing that is told to clients of all servers belongs to `audience`. Another path
belongs to `snapshot.build_routes`.
"""
