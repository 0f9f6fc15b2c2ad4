"""Upstreams: the servers that calls go to, by kind; each is what `upstreams.base.Upstream` says."""
