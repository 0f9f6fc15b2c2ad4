"""Who comes in, what they may do, and who we are to servers.

Clients: `admission` (everybody, or whom the `authenticator` knows by `keys`, or by `tokens` of an `issuer`); what they
may do: `access`; what they are told: `refusals`, `resource`; what is wrong with all of it together: `cross_checks`.
Servers: `oauth`. Both: `seal` (states that only we can have written), `safe_net` (what others name is reached outside
only), `safe_text` (what strangers wrote, made safe to be shown).

Imports `state`, `config` and `core`. Another way to show who one is stands beside `authenticator`, behind `admission`.
"""
