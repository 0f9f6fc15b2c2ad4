"""Who comes in, what they may do, and as whom the gateway goes to servers.

May import `state`, `config` and `core`. Stands apart from `eras`, which is in the same row.

Clients
    admission      who is let in: any local user, or the clients that the configuration knows
    authenticator  who a client is, by the key or token that it shows with each request
    keys           the keys that `toolgate keys` makes
    tokens         JWTs of the configured issuer
    page_sign_in   administrators who sign in to the pages at that issuer
    issuer         that issuer: its metadata and its public keys
    access         who may do what: the one decision for lists, searches, calls and subscriptions
    unasked        what control tools may do without a person's decision
    uri_readings   what servers may take a URI for
    typed_values   the same of values in one, which servers read as numbers
    hosts          what readers take the host of one for
    refusals       how a client is told that it is not let in
    resource       what the gateway says of itself to a client that wants a token for it (RFC 9728)
    cross_checks   problems that show only where several keys of the configuration are read together
Servers
    oauth          the gateway as an OAuth client: `credentials` decides what a server is shown
Both
    credential_states  until when each credential is good, and since when it fails
    seal           what clients carry for us: request states, cursors, ids of tasks
    lookups        names looked up, by who asks
    exchange       one request and its answer, bounded in bytes and in what it holds
    safe_net       reaching addresses that somebody else has named; private networks only where that is allowed
    safe_text      text of strangers, made safe for a person who decides by it

Another thing that clients may or may not do belongs to `access.Rules`; nothing else asks. Another way to show who one
is stands beside `authenticator`, behind `admission`.
"""
