"""Makes `cli.md`: every command with its arguments and options, from the commands themselves.

    python docs/make_cli.py            write docs/cli.md
    python docs/make_cli.py --print    show it

A test holds the file against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from toolgate.cli import COMMANDS, app

FILE = Path(__file__).with_name("cli.md")
HEAD = """# Command line

`toolgate COMMAND --help` shows the same in the terminal, and `toolgate --version` prints the version. This
page is made by `make tools`, from the commands.

Output that is asked for goes to standard output; warnings, problems and logs go to standard error.

| exit status | meaning |
|---|---|
| 0 | it worked |
| 1 | it did not: a call failed, something was not found, or a check found a problem |
| 2 | the command line is wrong, or the configuration is missing, invalid or not trusted |

| variable | what it does |
|---|---|
| `TOOLGATE_CONFIG` | the configuration file, where `--config` is not given |
| `XDG_CONFIG_HOME` | its folder `toolgate` is searched for a file; default: `~/.config` |
| `XDG_STATE_HOME` | its folder `toolgate` holds the state; default: `~/.local/state` |
| `TOOLGATE_SECRET_NAME` | the value of `${secret:NAME}` ([secrets.md](secrets.md)) |
| `CREDENTIALS_DIRECTORY` | systemd's credentials ([secrets.md](secrets.md)) |
| `VAULT_ADDR`, `VAULT_TOKEN`, `VAULT_NAMESPACE` | Vault's address, token and namespace ([secrets.md](secrets.md)) |

`--config CONFIG`, or `-c`, names the configuration file. Without it, commands use the first file that
[configuration.md](configuration.md) lists.
"""


def text() -> str:
    root: Any = typer.main.get_command(app)
    made = [HEAD, *_overview()]
    for name in COMMANDS:
        command = root.get_command(None, name)
        made += [f"\n## {name}\n", command.help.strip()]
        if subcommands := getattr(command, "commands", {}):
            for each in subcommands.values():
                made += [f"\n### {name} {each.name}\n", each.help.strip(), *_usage(f"{name} {each.name}", each)]
        else:
            made += _usage(name, command)
    return "\n".join([*made, ""])


def _overview() -> Iterator[str]:
    yield "| command | |"
    yield "|---|---|"
    for name, (_, help) in COMMANDS.items():
        yield f"| [`{name}`](#{name}) | {help} |"


def _usage(name: str, command: Any) -> Iterator[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if not each.opts[0].startswith("-")]
    options = [each for each in shown if each not in arguments]
    written = [*map(_argument, arguments), *(["[OPTIONS]"] if options else [])]
    yield f"\n```\n{' '.join(['toolgate', name, *written])}\n```"
    described = [each for each in shown if each.name != "config"]  # which is said once, above
    if described:
        yield "\n| | |"
        yield "|---|---|"
    for each in described:
        label = _argument(each) if each in arguments else _option(each)
        yield f"| `{label}` | {each.help.replace('|', chr(92) + '|')} |"


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    more = "..." if argument.nargs == -1 else ""
    return f"{name}{more}" if argument.required or name.startswith("[") else f"[{name}{more}]"


def _option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(text())
    else:
        FILE.write_text(text())
