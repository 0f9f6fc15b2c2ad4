"""The gateway as an OAuth client of servers: found out, registered, signed in, renewed, kept.

The rule this package keeps: what one principal was granted is shown to no server but the one that it was granted for,
and for nobody but that principal; and what a caller came with is shown to no server at all."""
