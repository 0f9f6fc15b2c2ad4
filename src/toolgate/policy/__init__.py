"""Policies: rules around a call whose true target is known, and what they keep.

May import `provision` and the rooms below it.

The frame
    base               `Policy`: `before`, `recheck`, `after`, `ended`; `Wait`: to be asked again later
    chain              the policies: a line each, and their order with its reasons; `build` makes a route's
    run                one round through the policies and back, and once more before what has waited is sent
    faults             counts and notes what is not found; tells of wrong arguments what they should be
What they use
    tracing            the spans of a call, first and last as well
    endings            how a round has ended: who decided, and why
    arguments          as they are noted
    schemas            JSON schemas, compiled; what is wrong with a value, without quoting it
    plain_schemas      which are like almost all, so that no care is needed
    checker            what may take long is compiled and checked in a process of its own
    checker_process    that process
    schema_cost        how much work a schema can make, known before a value is judged
    approval_requests  how a waiting call is shown, and what may be answered
    approvals          what people have decided, in the store
    deciding           an operator's decisions, carried out and noted
    content_kinds      which texts mean nothing when they are cut
    places             where lines and characters of a long text are
    large_results      the last two, and the client's names, in a thread, for what is large
    overflow           the whole of a result that was cut, for an hour, at `mcp://results/{id}`

A policy sees true targets only: the server and the server's own name, whatever surface or control tool the call came
through. It is synchronous: it decides, it does not wait.

Another policy is a row in `chain.build`, with the reason for its place, and a line there. A program that embeds the
gateway gives its own to `app.running(policies=…)`; those come before the chain's.
"""
