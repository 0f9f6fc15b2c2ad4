"""Policies: rules around a call whose true target is known."""
