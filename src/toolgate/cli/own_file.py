"""The configuration file that commands edit for the user: which one it is. What is done to it is `state/own_config`."""

from __future__ import annotations

import os
from pathlib import Path

from toolgate import config as configs
from toolgate.cli import common, printing
from toolgate.config import Config
from toolgate.config.formats import LONGEST_STATE
from toolgate.state import own_config
from toolgate.state.own_config import OwnConfig

NEW = "toolgate.toml"


def users_folder() -> Path:
    folder = next(configs.own_folders(os.environ), None)
    return folder or printing.fail(
        "There is no home folder to write a configuration into: set HOME, or give --config", 2
    )


def opened(named: str | None, is_users: bool = False) -> OwnConfig:
    """The file that was named, or the one that commands would read; `is_users`: the user's own rather than one in the
    working directory. Where there is none it is a new one in the user's folder. Raises `NotEdited`."""
    found, accept = common.find_config(named)
    if is_users and found and accept:
        found, accept = None, None
    if found is None or not (named or found.exists()):
        folder = users_folder()
        found = next((path for name in configs.NAMES if (path := folder / name).is_file()), folder / NEW)
    return own_config.opened(found, accept)


def read_foreign(path: Path, dialect: str = "") -> Config:
    """A file of another program, with variables as references. Raises `ConfigError`."""
    dialect = dialect or configs.recognised(path, os.environ).name
    return configs.load(path, os.environ, dialect, references=True, looks_up=False, longest=LONGEST_STATE)
