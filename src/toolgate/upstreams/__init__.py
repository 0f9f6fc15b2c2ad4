"""Upstreams: the servers that calls go to, by kind; each is what `ports.Upstream` says."""
