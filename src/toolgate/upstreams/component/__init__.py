"""Tool components: HTTP servers that say with GET which tools they have, and run one with POST (seed 003).

upstream  the kind: `ComponentUpstream`
metadata  what a component says of itself
answers   what a component answers, as a value or as a `Fault`
program   a component that is started by command
owner     whose program listens at its port
"""
