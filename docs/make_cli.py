"""Makes `cli.md`: every command with its arguments and options, from the commands themselves.

    python docs/make_cli.py            write docs/cli.md
    python docs/make_cli.py --print    show it

A test holds the file against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from toolgate.cli import tree
from toolgate.cli.tree import Command

FILE = Path(__file__).with_name("cli.md")
HEAD = """# Command line

`toolgate COMMAND --help` shows the same in the terminal, and `toolgate --version` prints the version. This
page is made by `make tools`, from the commands.

Output that is asked for goes to standard output; warnings, problems and logs go to standard error. If that is a
terminal, a command that takes over a second shows there what it waits for, and how far it is if that is known. With
`TERM=dumb` it does not.

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
    found = tree.commands()
    made = [HEAD, *_overview(found)]
    for command in found:
        made += [f"\n## {command.name}\n", command.help, *([] if command.below else _usage(command))]
        for each in command.below:
            made += [f"\n### {each.name}\n", each.help, *_usage(each)]
    return "\n".join([*made, ""])


def _overview(found: tuple[Command, ...]) -> Iterator[str]:
    yield "| command | |"
    yield "|---|---|"
    for command in found:
        yield f"| [`{command.name}`](#{command.name}) | {command.line} |"


def _usage(command: Command) -> Iterator[str]:
    yield f"\n```\n{command.usage}\n```"
    options = [each for each in command.options if "--config" not in each.names]  # which is said once, above
    if command.arguments or options:
        yield "\n| | |"
        yield "|---|---|"
    for each in (*command.arguments, *options):
        yield f"| `{each.label}` | {each.help.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(text())
    else:
        FILE.write_text(text())
