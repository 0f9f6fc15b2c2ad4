"""What a server would make toolgate do, in lines for the user who decides about it.

The rule this file keeps: it is told as it is written, commands and URLs to the letter, since what is masked could be
what runs; no variable is put in and no secret looked up.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from toolgate.config import masking
from toolgate.config.variables import OF_EVERY_PROGRAM, named_in
from toolgate.core.token_shapes import shaped

_SHOWN = frozenset({"type", "command", "args", "cwd", "env", "url", "headers", "enabled"})  # in words of their own


def of_table(table: Mapping[str, Any]) -> Iterator[str]:
    """The same of a native table, whose other keys are shown as they are: each may allow something."""
    if command := table.get("command"):
        yield f"run {shlex.join((command, *table.get('args', ())))}"
    if cwd := table.get("cwd"):
        yield f"in {cwd}"
    if env := table.get("env"):
        yield f"with {', '.join(assigned(env))}"
    if url := table.get("url"):
        headers = f" with {', '.join(sent(table['headers']))}" if table.get("headers") else ""
        yield f"contact {url}{headers}"
    if not table.get("enabled", True):
        yield "disabled"
    yield from (f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in table.items() if key not in _SHOWN)


def given(name: str, table: Mapping[str, Any]) -> str:
    """Which secrets and variables of the user a server gets, and where that is: what follows "give". Empty where it
    gets none but variables that every program gets."""
    secrets, variables = named_in(table)
    command = table.get("command")
    names = [each for each in variables if not (command and each in OF_EVERY_PROGRAM)]
    if not secrets and not names:
        return ""
    named = (_counted("the secret", secrets), _counted("the variable", names))
    place = shlex.join((command, *table.get("args", ()))) if command else table.get("url", "")
    return (
        f"{' and '.join(filter(None, named))} to {place}, as {name}"  # the place first: whoever wrote the name may lie
    )


def _counted(what: str, names: list[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


# Variables that decide what else a program loads or runs, or where that is: none of them holds a secret.
_of_loaders = re.compile(
    r"(?:PYTHON|LD_|DYLD_|PERL5|RUBY|GEM_|BUNDLE_|NODE_(?!AUTH)|NPM_CONFIG_(?!.*(?:AUTH|TOKEN|PASS))|BUN_"
    r"|DENO_(?!AUTH)|GIT_|JAVA_|JDK_|_JAVA|MAVEN_|GRADLE_|GO(?:FLAGS|PATH|ROOT|PROXY|ENV)$|CARGO_(?!.*TOKEN)|RUST|DOTNET_|CORECLR_|LUA_|PHP"
    r"|R_|JULIA_|BASH|GLIBC_|GCONV|OPENSSL|SSL_CERT|LESS|UV_(?!.*(?:TOKEN|PASS))|PIP_|DOCKER_(?!AUTH))"
    r"|(?:PATH|SHELL|ENV|CLASSPATH|HOME|IFS|SSH_ASKPASS|SUDO_ASKPASS|EDITOR|VISUAL|PAGER|BROWSER|XDG_\w+|TMPDIR)$"
    r"|.*(?:COMMAND|CMD|FILE|FILENAME|SOCK|SOCKET|HELPER|PATH|DIR|URL|URI|EXE|PROGRAM|PROCESS|ASKPASS)$",
    re.IGNORECASE,
)
_in_no_token = re.compile(r"[^A-Za-z0-9_.:+=-]")  # but in commands and paths


def assigned(env: Mapping[str, str]) -> Iterator[str]:
    """Values matter, since some variables make programs run others, whatever they are called; what is written as tokens
    are, and could be neither a command nor a path, is masked."""
    for name, value in env.items():
        is_plain = _of_loaders.match(name) or _in_no_token.search(value) or not _is_token(value)
        yield f"{name}={value if is_plain else masking.MASK}"


def sent(headers: Mapping[str, str]) -> Iterator[str]:
    """Headers, and what each says where it says a variable or a stored secret: whose server gets it is what matters."""
    yield from (f"{name}={value}" if "${" in value else name for name, value in headers.items())


def _is_token(value: str) -> bool:
    written = value.encode()
    return masking.looks_secret(value) or shaped(written) != written
