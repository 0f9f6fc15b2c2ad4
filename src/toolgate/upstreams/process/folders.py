"""Where programs start that take code or settings from the folder that they start in: `npx` a package from its
`node_modules`, `bun` what its `bunfig.toml` names, `python -m` a module that lies there.

The gateway's folder may be anybody's: agents start a gateway in the project that they work on. So where neither `cwd`
nor a configuration in that folder says that it is meant, such a program starts in a folder of its own. npm goes back to
the gateway's folder before it starts the server's program, by what it has for a shell (`SHELL`).

The rule this file keeps: no folder in which such a program starts, but the gateway's own where that is meant, lies
below one that other users can write: runners look for `node_modules/.bin` and `.tool-versions` in all of those above.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from toolgate.config import ownership

# Empty files at which runners stop to look in the folders above.
_ENDS = {"package.json": "{}", "uv.toml": "", ".python-version": ""}

OF_NPM = frozenset(["npx", "npm"])
_PROJECTS = """
bun bunx deno pnpm pnpx pnx pn yarn yarnpkg tsx ts-node-esm vite-node ts-node-dev node-dev ts-node nodemon vite esno
corepack nx pm2
pipx uv poetry pdm hatch rye pixi pipenv conda mamba ipython tox nox
uvicorn gunicorn hypercorn granian daphne waitress-serve flask fastapi django-admin celery supervisord
docker-compose podman-compose process-compose honcho foreman overmind
make gmake just task mise rtx asdf volta fnm proto nix-shell direnv devenv devbox flox nix
cargo rustup go dotnet dnx swift dart flutter zig bazel mill sbt mvn gradle jbang scala-cli lein scala clojure clj bb
bundle rake rails rackup puma irb gem mix iex erl composer ansible-playbook
Rscript R julia octave lua luajit
"""
_OF_A_PROJECT = frozenset(_PROJECTS.split())
# Those of them that nothing else is called behind a program of which nobody knows whether it starts another.
_USUAL_WORDS = """
make just task mise cargo go dotnet nix rake mix rye R julia proto volta fnm flask celery foreman vite rails puma gem
swift dart flutter zig bazel mill scala octave lua composer
"""
_WORDS = frozenset(_USUAL_WORDS.split())
# What starts the program that is named behind it.
_STARTERS = """
env nice nohup timeout stdbuf setsid ionice chronic op dotenvx direnv asdf fnm volta doppler infisical
"""
_BEFORE_OTHERS = frozenset(_STARTERS.split())
_CONTAINERS = frozenset(["docker", "podman"])
_OF_ONE_CONTAINER = frozenset(["run", "exec", "start", "attach", "container"])  # behind these, words are for the inside
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "fish"])
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_MODULE = re.compile(r"-[bBdEhiIOPqRsSuvVx]*[mc].*")
_WITH_VALUE = frozenset(["-W", "-X", "--check-hash-based-pycs"])
_LOADED_BY_NODE = re.compile(
    r"(?:-[repi]+|--(?:require|import|loader|experimental-loader|eval|print|interactive|run|test|experimental-.*config-file))(?:=.*)?"
)
_FROM_HERE = re.compile(r"(--?[\w-]+=)?(\.{1,2}(?:/.*)?)", re.DOTALL)

SHELL = "shell"
FOLDER = "TOOLGATE_FOLDER"
_SHELL = f"""#!/bin/sh
# npm starts the program of a package by this: not in the folder in which npm itself was started.
if [ "$npm_lifecycle_event" = npx ] && [ -n "${FOLDER}" ]; then
    cd "${FOLDER}" || exit 1
    INIT_CWD=${FOLDER}
    unset npm_config_script_shell {FOLDER}
fi
exec /bin/sh "$@"
"""


def takers(command: str, args: Sequence[str]) -> list[str]:
    """The programs of a command line that may run code which lies in the folder that they start in, without naming it
    by a path. Any program may start another that its arguments name."""
    name, words = _name(command), words_of(args)
    if name in _CONTAINERS:  # what is started within has another folder
        return [name] if _takes(name, args) else []
    own = [name] if name not in _SHELLS and _takes(name, args) else []
    starts_all = name in _BEFORE_OTHERS or name in _SHELLS
    inner = [(at, _name(word)) for at, word in enumerate(words) if word[0] != "."]
    may = [(at, each) for at, each in inner if starts_all or (each not in _WORDS and at + 1 < len(words))]
    return own + [each for at, each in may if _takes(each, words[at + 1 :])]


def _takes(name: str, rest: Sequence[str]) -> bool:
    """The same of a program by itself."""
    if name == "uvx" or (name == "uv" and rest[:2] == ["tool", "run"]):
        return any(_PYTHON.fullmatch(_name(word)) and _has_module(rest[at + 1 :]) for at, word in enumerate(rest))
    if _PYTHON.fullmatch(name):
        return _has_module(rest)
    if name == "node":
        return any(_LOADED_BY_NODE.fullmatch(each) for each in _options(rest, frozenset()))
    if name in _CONTAINERS:
        return "compose" in takewhile(lambda each: each not in _OF_ONE_CONTAINER, rest)
    return name in OF_NPM or name in _OF_A_PROJECT or name.rstrip("0123456789.") in _OF_A_PROJECT


def goes_back(found: Sequence[str]) -> bool:
    """Whether of these `takers` npm alone is in the line, which can start a program in another folder. What that
    program would start would be there, too."""
    return len(found) == 1 and found[0] in OF_NPM


def from_here(args: Sequence[str]) -> tuple[str, ...]:
    """Arguments that are paths from the gateway's folder, such as `.` or `--root=../x`, as whole paths."""

    def whole(each: str) -> str:
        found = _FROM_HERE.fullmatch(each)
        return f"{found[1] or ''}{os.path.abspath(found[2])}" if found else each

    return tuple(map(whole, args))


def back_to(folder: str, own: Path) -> Mapping[str, str]:
    """Variables by which npm, started in `own`, starts a program in `folder`."""
    put_ends(own)
    shell = own / SHELL
    shell.write_text(_SHELL)
    shell.chmod(0o700)
    return {"npm_config_script_shell": str(shell), FOLDER: folder}


def put_ends(folder: str | Path) -> None:
    """Have runners that start in a folder look in none above it."""
    for name, text in _ENDS.items():
        with contextlib.suppress(FileExistsError), open(os.path.join(folder, name), "x") as file:
            file.write(text)


def below_none_of_others(own: Path) -> str:
    """Where a program starts that has this folder of its own: there, or in the one at the top of all where another
    user can put something into one above, as where the gateway's state lies in `/tmp`. Looks at folders."""
    return os.sep if any(map(_is_others, own.resolve().parents)) else str(own)


def _is_others(folder: Path) -> bool:
    try:
        ownership.check(folder)
    except OSError:
        return True
    return False


@contextlib.contextmanager
def empty(parent: Path) -> Generator[str]:
    """A folder for a runner, below one of the gateway's own."""
    parent.mkdir(0o700, True, True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=parent) as folder:
        put_ends(folder)
        yield folder


def words_of(args: Sequence[str]) -> list[str]:
    """Those of arguments, of which one may be a whole command line."""
    return [word for each in args for word in re.split(r"[\s;&|()='\"]+", each) if word]


def _has_module(args: Sequence[str]) -> bool:
    """Whether Python looks for what it runs, or for what that imports, in its folder first."""
    return any(_MODULE.fullmatch(each) for each in _options(args, _WITH_VALUE))


def _options(args: Sequence[str], with_value: frozenset[str]) -> Iterator[str]:
    """What stands before the first argument that is no option."""
    rest = iter(args)
    for each in rest:
        if not each.startswith("-"):
            return
        yield each
        if each in with_value:
            next(rest, "")


def _name(command: str) -> str:
    return re.sub(r"\.(?:exe|cmd)$", "", re.split(r"[/\\]", command)[-1])
