"""Who comes in, and who the gateway is to others."""
