"""Tool components: HTTP servers that say with GET what tools they are, and run one with POST (seed 003)."""
