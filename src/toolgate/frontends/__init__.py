"""The ways in: bytes become calls, outcomes become bytes of the client's era.

May import `gateway` and the rooms below it.

HTTP
    server           the socket: uvicorn, ended by an event of ours
    accepting        connections as they come, also to a socket that workers share
    tls              the certificate of the listener, and handshakes
    application      what it serves: an ASGI application, with what its connections work with
    guards           what each request passes first: host, origin, client, path, size
    cors             which web pages may use it from a browser, and how browsers are told so
    http             every way in that begins with an HTTP request; which path is which
    known_heads      what heads of requests mean that were let in before
    slots            where such a request came, and where its answer is written
    lane             calls that wait for nothing but their server's answer, without a task
    connections      how many connections there are, and which one goes
    unread           how much is kept of answers that are not read
    unsent           a large answer, a piece at a time; in a file where its client does not read it
    streams          a response that becomes JSON or a stream, decided as late as can be
    scheduling       whose request is started next
    active_requests  who is inside now, who has to leave, how much is kept of requests until they are answered
    workers          several processes for one port: what answers at once there, and how all else comes to the owner
    web              what is served beside MCP: `admin` for an operator's programs, `connect` for sign-in pages, and
                     `metadata` for who wants a token; `Web`, the table of them
Connections that go both ways
    duplex           `Conversation`: one client of either era on one connection
    pipes            WebSocket, and HTTP with SSE (2024-11-05)
    frames           reading WebSocket frames a piece at a time
    stdio            one client on standard input and output
    operator         the operator's Unix socket
    forwarding       what the operator's proxies say of who came to them
    peers            which user is at the other end of a Unix socket
    hook             `toolgate hook`, a program of its own: what agents' programs tell, put where a gateway reads it
Clients
    modern           a request of 2026-07-28: checked, handled, answered; here alone a call is parked and sealed
    request_states   what its client brings back with a retry, sealed
    session          a legacy client's connection
    sessions         all sessions, and when each ends
    batches          batches of messages (2025-03-26 only)
    channels         streams of a session that outlast their connections; `ReplayBuffer`
    sse_delivery     how one connection carries a channel
    subscriber       what one client is told without having called
    pages            pages of our lists, and their sealed cursors
    responses        who we are, what we offer, errors as bytes
    ways             the ways to a client, what is read at the end of each, and that no message is more than that
    deps             `FrontendDeps`: what every frontend works with

What a legacy session says over HTTP goes over channels, one for each call and one for each listening stream. Its
events get ids (`c3.7` is the seventh of the third channel), and the `ReplayBuffer` keeps them for five minutes within
bounds that all sessions share. A GET with `Last-Event-ID` takes the channel over. A modern request has no such
stream: it ends with its connection.

A `Conversation` has no channels either: what a client has begun on it ends with the connection, except that over stdio
what was asked before the end is answered first, for three seconds. What carries it brings bytes in (`received`) and out
(`write`), and says how much its client has not read: beyond 1 MiB notifications are lost, beyond 64 MiB a client of
the network is cut off.

Another way in that goes both ways is a thin carrier of a `Conversation`. Another page beside MCP is a row of `web.Web`.
"""
