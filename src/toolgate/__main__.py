"""`toolgate` and `python -m toolgate`."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """`toolgate hook` is what programs wait for at each event of a session: it does without the command line."""
    is_hook = sys.argv[1:2] == ["hook"] and "--help" not in sys.argv
    if is_hook:
        importlib.import_module("toolgate.frontends.hook").main(sys.argv[2:])
    else:
        importlib.import_module("toolgate.cli").main()


if __name__ == "__main__":
    main()
