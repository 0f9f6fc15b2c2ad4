"""Attempts to get out of a sandbox, as tables, and the world that they aim at."""
