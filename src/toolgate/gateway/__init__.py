"""A call's whole story: what it is for, who may make it, and how it gets to its server.

`gateway`: the story itself, of a call, a list, a subscription; `resolve`: a client's name led to the true server and
its own name; `send`: how a call gets there, and when twice; `snapshot`: all that is built from one configuration;
`reload`: another configuration, from what is written to what is served; `subscriptions`: what clients watch;
`audience`: who hears of what; `tool_context`: what control tools work by; `notices`: who is told that a call waits for
an operator.

May import every package but `frontends`, `cli` and `app`.
"""
