"""A server that takes its time to start: it waits, and then is the script that it was given.

python late.py SECONDS SCRIPT
"""

from __future__ import annotations

import runpy
import sys
import time

if __name__ == "__main__":
    time.sleep(float(sys.argv[1]))  # this is what it is for: nobody in a test waits like this
    runpy.run_path(sys.argv[2], run_name="__main__")
