"""A call's whole story: what it is for, who may make it, and how it gets to its server.

`gateway`: the story itself, of a call, a list, a watch; `entering`: a client's name led to the true server and its own
name; `sending`: how a call gets there, and when twice; `snapshot`: all that is built from one configuration;
`reloading`: another configuration, from what is written to what is served; `watches`: what clients watch; `earshot`:
who hears of what; `realm`: what control tools work by; `notices`: who is told that a call waits for an operator.

May import every room but `frontends`, `cli` and `app`.
"""
