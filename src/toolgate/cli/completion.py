"""`toolgate completion`: a script that completes commands and options in a shell, without running toolgate."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import typer

from toolgate.cli import printing, tree
from toolgate.cli.tree import Command, Option, Value

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


def _words(command: Command) -> list[str]:
    return [word for each in command.arguments for word in each.expects.words]


def _taking_values(commands: tuple[Command, ...]) -> Mapping[str, Value]:
    """By option. One of a name stands for the same in every command, or for nothing that is known."""
    options = (option for command in tree.runnable(commands) for option in command.options if option.value)
    return {name: option.expects for option in options for name in option.names}


# bash.

_BASH = """\
_toolgate_value() {{
    case "$1" in
        {files}) ;;
{words}
        *) compopt +o default 2>/dev/null ;;
    esac
}}

_toolgate() {{
    local word command="" below="" words="" cur="${{COMP_WORDS[COMP_CWORD]}}" i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$word" in
            {values}) ((++i < COMP_CWORD)) || {{ _toolgate_value "$word" "$cur"; return; }} ;;
            -*) ;;
            *) if [[ -z $command ]]; then command="$word"; elif [[ -z $below ]]; then below="$word"; fi ;;
        esac
    done
    case "$command $below" in
        " ") words={first} ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    case "$command $below" in
        {without_files}) compopt +o default 2>/dev/null ;;
        *) [[ $cur == -* ]] || COMPREPLY=() ;;
    esac
}}
complete -o default -F _toolgate toolgate"""


def _bash(commands: tuple[Command, ...]) -> Iterator[str]:
    first = shlex.quote(" ".join([*(each.name for each in commands), "--help", "--version"]))
    values = _taking_values(commands)
    yield _BASH.format(
        values="|".join(values),
        files="|".join(name for name, value in values.items() if value.is_file),
        words="\n".join(_offered(name, value.words) for name, value in values.items() if value.words),
        first=first,
        cases="\n".join(_cases(commands)),
        without_files="|".join(_without_files(commands)),
    )


def _without_files(commands: tuple[Command, ...]) -> Iterator[str]:
    yield '" "'
    yield from (f'"{each.name} "' for each in commands if each.below)
    yield from map(_pattern, filter(tree.no_file, tree.runnable(commands)))


def _offered(option: str, words: Sequence[str]) -> str:
    return f'        {option}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$2")) ;;'


def _pattern(command: Command) -> str:
    """Of a command, or one below another, and what stands behind it."""
    return f'"{command.name}"' if " " in command.name else f'"{command.name} "*'


def _cases(commands: tuple[Command, ...]) -> Iterator[str]:
    for command in commands:
        if command.below:
            yield f'        "{command.name} ") words={shlex.quote(" ".join(_names(command)))} ;;'
        for each in command.below or (command,):
            yield f"        {_pattern(each)}) words={shlex.quote(' '.join([*_words(each), *_names(each)]))} ;;"


# zsh.

_OF_ALL = "'--help[show the help]' '--version[print the version]'"


def _zsh(commands: tuple[Command, ...]) -> Iterator[str]:
    yield "#compdef toolgate\n"
    yield "_toolgate() {\n    local -a below\n    if (( CURRENT == 2 )); then"
    yield f"        if [[ $words[2] == -* ]]; then\n            _arguments {_OF_ALL}\n            return\n        fi"
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
    words = f"({' '.join(found)})" if (found := _words(command)) else " " if tree.no_file(command) else "_files"
    return indent + " ".join(
        ["_arguments", *map(shlex.quote, [*rules, "--help[show the help]", f"*:argument:{words}"])]
    )


def _in_brackets(option: Option) -> str:
    said = option.help.replace("\n", " ").replace("\\", "\\\\")
    return said.replace("[", r"\[").replace("]", r"\]").replace(":", r"\:")


def _value(option: Option) -> str:
    if not option.value:
        return ""
    value = option.expects
    action = f"({' '.join(value.words)})" if value.words else "_files" if value.is_file else " "
    return f":{option.value.strip('<>[]{}').replace(':', ' ')}:{action}"


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
    yield "complete -c toolgate -l help -d 'Show the help.'"
    yield "complete -c toolgate -n __toolgate_at -f -l version -d 'Print the version.'"
    for command in commands:
        yield _fish_word("", command)
        for each in command.below:
            yield _fish_word(command.name, each)
    for command in tree.runnable(commands):
        place = shlex.quote(f"__toolgate_in {command.name}")
        if tree.no_file(command):
            words = f" -a {shlex.quote(' '.join(found))}" if (found := _words(command)) else ""
            yield f"complete -c toolgate -f -n {place}{words}"
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            said = shlex.quote(option.help.split("\n")[0])
            yield f"complete -c toolgate -n {place} {names}{_fish_value(option)} -d {said}"


def _fish_value(option: Option) -> str:
    if not option.value:
        return ""
    words = option.expects.words
    return " -r" if option.expects.is_file else f" -x -a {shlex.quote(' '.join(words))}" if words else " -x"


def _fish_word(below: str, command: Command) -> str:
    place = shlex.quote(f"__toolgate_at {below}".strip())
    word = command.name.split()[-1]
    return f"complete -c toolgate -f -n {place} -a {word} -d {shlex.quote(command.line)}"


SHELLS: Mapping[str, Callable[[tuple[Command, ...]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
