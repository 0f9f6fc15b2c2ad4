"""Who comes in, what they may do, and who we are to servers.

Clients: `admission` (everybody, or whom the `doorkeeper` knows by `keys`, or by `tokens` of an `issuer`); what they may
do: `access`; what they are told: `refusals`, `resource`; what is wrong with all of it together: `soundness`. Servers:
`oauth`. Both: `seal` (states that only we can have written), `outside` (what others name is reached outside only),
`exhibit` (what strangers wrote, made safe to be shown).

Imports `state`, `config` and `core`. Another way to show who one is stands beside `doorkeeper`, behind `admission`.
"""
