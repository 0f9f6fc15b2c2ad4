"""What servers offer: their lists, kept, looked at again, changed by operators, and filtered for each client.

`base`: one list (`ServerList`), and what one client may see (`View`). `catalog`: all lists, asked for, kept and told of
when they change; `refresh`: when they are looked at again; `cache`: what the store knows of servers; `views`: what
one client may see; `overlays`: what an operator changes of tools; `pins`: what tools were when they were trusted;
`poisoning`: which words are meant for a model; `tool_info`: what a listing says that matters to calls; `server_info`:
what a route's servers say together; `served`: what was served last, so that edits are in the audit.

Imports `upstreams` for what a server is, and the packages below.
"""
