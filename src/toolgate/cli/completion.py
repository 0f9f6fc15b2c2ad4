"""`toolgate completion`: a script that completes commands and options in a shell, without running toolgate."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer

from toolgate.cli import printing, tree
from toolgate.cli.tree import Command, Option

app = typer.Typer(add_completion=False)

HELP = """Print a script that completes toolgate's commands and options.

bash: toolgate completion bash > ~/.local/share/bash-completion/completions/toolgate

zsh: toolgate completion zsh > a file _toolgate in a folder of $fpath

fish: toolgate completion fish > ~/.config/fish/completions/toolgate.fish"""


@app.command(help=HELP)
def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    made = SHELLS.get(shell)
    if not made:
        printing.fail(f"unknown shell {shell}: choose one of {', '.join(SHELLS)}", 2)
    typer.echo("\n".join(made(tree.commands())))


def _names(command: Command) -> list[str]:
    """What may come next: commands below it, or its options."""
    if command.below:
        return [*(each.name.split()[-1] for each in command.below), "--help"]
    return [*(name for option in command.options for name in option.names), "--help"]


def _taking_values(commands: tuple[Command, ...]) -> list[str]:
    options = (option for command in tree.runnable(commands) for option in command.options if option.value)
    return sorted({name for option in options for name in option.names})


# bash.

_BASH = """\
_toolgate() {{
    local word command="" below="" words="" cur="${{COMP_WORDS[COMP_CWORD]}}" i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$word" in
            {values}) ((++i < COMP_CWORD)) || return ;;
            -*) ;;
            *) if [[ -z $command ]]; then command="$word"; elif [[ -z $below ]]; then below="$word"; fi ;;
        esac
    done
    case "$command $below" in
        " ") words={first} ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _toolgate toolgate"""


def _bash(commands: tuple[Command, ...]) -> Iterator[str]:
    first = shlex.quote(" ".join([*(each.name for each in commands), "--help", "--version"]))
    cases = "\n".join(_cases(commands))
    yield _BASH.format(values="|".join(_taking_values(commands)), first=first, cases=cases)


def _cases(commands: tuple[Command, ...]) -> Iterator[str]:
    for command in commands:
        if command.below:
            yield f'        "{command.name} ") words={shlex.quote(" ".join(_names(command)))} ;;'
        for each in command.below or (command,):
            pattern = f'"{each.name}"' if command.below else f'"{each.name} "*'
            yield f"        {pattern}) words={shlex.quote(' '.join(_names(each)))} ;;"


# zsh.


def _zsh(commands: tuple[Command, ...]) -> Iterator[str]:
    yield "#compdef toolgate\n"
    yield "_toolgate() {\n    local -a below\n    if (( CURRENT == 2 )); then"
    yield f"        below=({_described(commands)})\n        _describe command below\n        return\n    fi"
    yield "    shift words\n    (( CURRENT-- ))\n    case $words[1] in"
    for command in commands:
        yield f"        {command.name})"
        yield from _zsh_below(command) if command.below else [_arguments(command, " " * 12)]
        yield "            ;;"
    yield '    esac\n}\n\n_toolgate "$@"'


def _zsh_below(command: Command) -> Iterator[str]:
    yield f"            if (( CURRENT == 2 )); then\n                below=({_described(command.below)})"
    yield "                _describe command below\n                return\n            fi"
    yield "            shift words\n            (( CURRENT-- ))\n            case $words[1] in"
    for each in command.below:
        yield f"                {each.name.split()[-1]})\n{_arguments(each, ' ' * 20)}\n                    ;;"
    yield "            esac"


def _described(commands: tuple[Command, ...]) -> str:
    pairs = ((each.name.split()[-1], each.line.replace(":", r"\:")) for each in commands)
    return " ".join(shlex.quote(f"{name}:{line}") for name, line in pairs)


def _arguments(command: Command, indent: str) -> str:
    rules = [f"{name}[{_in_brackets(option)}]{_value(option)}" for option in command.options for name in option.names]
    return indent + " ".join(["_arguments", *map(shlex.quote, [*rules, "--help[show the help]", "*:argument:_files"])])


def _in_brackets(option: Option) -> str:
    said = option.help.replace("\n", " ").replace("\\", "\\\\")
    return said.replace("[", r"\[").replace("]", r"\]").replace(":", r"\:")


def _value(option: Option) -> str:
    return f":{option.value.strip('<>[]{}').replace(':', ' ')}:_files" if option.value else ""


# fish.

_FISH = """\
function __toolgate_at
    set -l words (commandline -opc | string match -v -- '-*')
    test "$words[2..-1]" = "$argv"
end

function __toolgate_in
    set -l words (commandline -opc | string match -v -- '-*')
    test (count $words) -gt (count $argv); and test "$words[2.."(math 1 + (count $argv))"]" = "$argv"
end
"""


def _fish(commands: tuple[Command, ...]) -> Iterator[str]:
    yield _FISH
    for command in commands:
        yield _fish_word("", command)
        for each in command.below:
            yield _fish_word(command.name, each)
    for command in tree.runnable(commands):
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            place = shlex.quote(f"__toolgate_in {command.name}")
            required = " -r" if option.value else ""
            yield f"complete -c toolgate -n {place} {names}{required} -d {shlex.quote(option.help.split(chr(10))[0])}"


def _fish_word(below: str, command: Command) -> str:
    place = shlex.quote(f"__toolgate_at {below}".strip())
    word = command.name.split()[-1]
    return f"complete -c toolgate -f -n {place} -a {word} -d {shlex.quote(command.line)}"


SHELLS: Mapping[str, Callable[[tuple[Command, ...]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
