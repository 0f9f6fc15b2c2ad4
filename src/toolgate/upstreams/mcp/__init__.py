"""Upstreams that speak MCP, over any link, in any revision. The only room below the frontends that knows eras."""
