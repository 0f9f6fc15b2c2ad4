"""Frontends: the doors that clients come in by. They turn bytes into calls, and outcomes into bytes of the client's era."""
