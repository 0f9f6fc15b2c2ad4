"""Kinds of values that only other tools' files have, and what those tools ask people for."""

from __future__ import annotations

import os
import re
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config import values
from toolgate.config.containers import File, at
from toolgate.config.values import mapping, optional, plain, record, wrong
from toolgate.config.variables import Reference, as_variable

Table: TypeAlias = dict[str, Any]


# What the tools ask people for. toolgate asks nobody: it looks for a variable with the same name.


def vs_code_inputs(tree: Any) -> dict[str, Reference]:
    written = at(tree).get("inputs", at(tree, "mcp").get("inputs"))
    inputs = (
        [cast(Table, each) for each in cast("list[object]", written) if isinstance(each, dict)]
        if (isinstance(written, list))
        else []
    )
    return {
        each["id"]: Reference(
            as_variable(each["id"]), default if isinstance(default := each.get("default"), str) else None
        )
        for each in inputs
        if isinstance(each.get("id"), str)
    }


def places(file: File) -> dict[str, str]:
    """What tools know of themselves. A project is the folder above the tool's own one."""
    folder, home = file.folder, file.environ.get("HOME", "")
    project = folder.parent if folder.name.startswith(".") and file.name == "mcp.json" else folder
    return {
        "__dirname": str(folder),
        "workspaceFolder": str(project),
        "workspaceFolderBasename": project.name,
        "userHome": home,
        "HOME": home,
        **{name.upper(): os.path.join(home, name) for name in ("Desktop", "Documents", "Downloads")},
        "pathSeparator": os.sep,
        "/": os.sep,
    }


# Values.


def named_variables(value: object) -> dict[str, Reference]:
    """Variables of the environment to pass on where they are set."""
    return {name: Reference(name, optional=True) for name in _variable_names(value)}


def needed_variables(value: object) -> dict[str, Reference]:
    return {name: Reference(name) for name in _variable_names(value)}


def _variable_names(value: object) -> tuple[str, ...]:
    return values.many(lambda each: _variable_name(cast(Table, each).get("name") if isinstance(each, dict) else each))(
        value
    )


def _variable_name(value: object) -> str:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", values.text(value)):
        raise wrong("is not a valid variable name")  # not quoted: it may be the token itself
    return values.text(value)


def header_variables(value: object) -> dict[str, Reference]:
    return {header: Reference(_variable_name(name)) for header, name in values.headers(value).items()}


def bearer_variable(value: object) -> dict[str, Reference]:
    return {"Authorization": Reference(_variable_name(value), before="Bearer ")}


def bearer(value: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {values.filled(value)}"}


def command_line(value: object) -> Table:
    """The fields `command` and `args` of one list."""
    words = values.many(values.text)(value)
    if not words:
        raise wrong("must not be empty")
    return {"command": words[0], "args": words[1:]}


def zed_command(value: object) -> Table:
    """A program, or the table that older files have."""
    if isinstance(value, str):
        return {"command": values.filled(value)}
    read = record(
        path=values.filled,
        args=values.many(values.text),
        env=optional(values.environment),
        settings=plain,
    )(value)
    if "path" not in read:
        raise wrong("needs `path`")
    return {"command": read["path"], "args": read.get("args", ()), "env": read.get("env") or {}}


def loose_environment(value: object) -> dict[str, str]:
    """Numbers too, and null for what is not set."""
    pairs = values.table(value)
    words = {
        name: str(each) if type(each) in (int, float) else each for name, each in pairs.items() if each is not None
    }
    return values.environment(words)


def milliseconds_from_a_second(value: object) -> Any:
    """Less than a second is passed over, as its tools do."""
    seconds = values.milliseconds(value)
    return seconds if seconds >= 1 else msgspec.UNSET


def transformed_tools(value: object) -> Table:
    """FastMCP's transforms, in the words of our `tools`."""
    argument = record(
        name=optional(values.filled), description=optional(values.text), default=plain,
        hide=values.flag, required=values.flag, type=plain, examples=plain,
    )  # fmt: skip
    tool = record(
        name=optional(values.filled), title=optional(values.text), tags=plain,
        description=optional(values.text), enabled=values.flag, arguments=mapping(argument),
        meta=plain, annotations=plain,
    )  # fmt: skip
    found: Table = mapping(tool)(value)
    return {name: _transformed(each) for name, each in found.items()}


def _transformed(tool: Table) -> Table:
    parameters = {name: _transformed_argument(each) for name, each in tool.get("arguments", {}).items()}
    return {
        **{key: tool[key] for key in ("name", "title", "description") if tool.get(key) is not None},
        **({"hidden": True} if tool.get("enabled") is False else {}),
        **({"parameters": parameters} if parameters else {}),
    }


def _transformed_argument(argument: Table) -> Table:
    hidden = bool(argument.get("hide"))
    default = {"fixed" if hidden else "default": argument["default"]} if "default" in argument else {}
    words = {key: argument[key] for key in ("name", "description") if argument.get(key) is not None}
    return {**words, **default, **({"hidden": True} if hidden else {})}
