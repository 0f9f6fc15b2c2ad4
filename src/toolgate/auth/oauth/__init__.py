"""The gateway as an OAuth client of servers.

    base         the values: metadata, clients, grants, sign-ins
    credentials  what a server is shown, and what happens when it refuses that; the one place a token comes from
    challenge    `WWW-Authenticate`, read
    discovery    where a server's tokens come from: metadata of the server and of its authorization server
    ourselves    who the gateway is to an authorization server
    registering  the ways to become a client there
    grants       asking for tokens
    sign_in      a sign-in: how a user is asked, where the browser goes, what must come back
    vault        where grants and registrations are kept, sealed

The rule of this package: what one principal was granted is shown only to the server that it was granted for, and only
for that principal. What a caller came with is shown to no server at all.
"""
