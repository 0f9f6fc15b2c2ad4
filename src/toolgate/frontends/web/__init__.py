"""What is served beside MCP: `connect` (a user's browser, to sign in at a server) and `admin` (an operator's
programs)."""
