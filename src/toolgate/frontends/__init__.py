"""Frontends: the frontends that clients come in by. Bytes become calls, outcomes become bytes of the client's era."""
