"""That a file of the user was not edited. It imports nothing, so that the command line may know of it before it knows
which command runs."""

from __future__ import annotations


class NotEdited(Exception):
    """`str()` says why, for people. All is as it was. `is_unfit`: what was named is never edited."""

    def __init__(self, why: str, is_unfit: bool = False) -> None:
        super().__init__(why)
        self.is_unfit = is_unfit
