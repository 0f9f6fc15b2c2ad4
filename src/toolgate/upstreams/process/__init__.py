"""Programs of the gateway: `supervisor` starts, watches and ends them; `guard` is the process that outlives the gateway
for as long as it takes to end what is left of them."""
