"""The sandbox: code that clients send, run apart from the gateway.

May import `upstreams` and the rooms below it.

    dataset   operations on data, described in English, as steps or as SQL
"""
