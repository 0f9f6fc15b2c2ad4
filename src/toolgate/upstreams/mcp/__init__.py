"""Upstreams that speak MCP, over any link, in any revision. The only package below the frontends that knows eras."""
