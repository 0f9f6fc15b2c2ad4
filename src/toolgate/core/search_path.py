"""`PATH` without what is relative: entries such as `./node_modules/.bin`, `.` or none mean whatever folder a program is
started in, and that may be a stranger's."""

from __future__ import annotations

import os


def absolute(path: str) -> str:
    """Where none is left, the system's own."""
    return os.pathsep.join(filter(os.path.isabs, path.split(os.pathsep))) or os.defpath.lstrip(os.pathsep)
