"""Floods, and what they cost whoever is beside them."""
