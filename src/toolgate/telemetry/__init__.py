"""What toolgate tells programs that watch it.

May import `state` and the rooms below it.

    names        one table of what things are called: OpenTelemetry's conventions for MCP, and our own
    usage        what was called, by whom, how often and how fast: counted in memory
    recorder     what calls are told to: usage, and a tracer where there is one
    trace_context  W3C's trace context, as requests carry it
    spans        a tracer, by OpenTelemetry's SDK
    otlp         traces, metrics and logs by OpenTelemetry's SDK, which only it loads
    exposition   Prometheus's text format
    access_log   a line for each round of a call
    traffic      the same for who watches now

What is counted is told by a policy (`policy/telemetry`), and shown at `/metrics` (`frontends/web/metrics`). A figure of
another kind is a name in `names`, and where it is looked up in one of the two.
"""
