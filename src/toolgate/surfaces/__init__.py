"""Surfaces: what one client is shown, and how the names of that view map to true targets."""
