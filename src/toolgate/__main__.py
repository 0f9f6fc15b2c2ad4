"""`toolgate` and `python -m toolgate`."""

from __future__ import annotations

from toolgate.cli import main

if __name__ == "__main__":
    main()

__all__ = ["main"]
