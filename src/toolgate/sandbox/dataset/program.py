"""The files of this room that work on data, as one program for the Python sandbox, which has nothing of toolgate.

The sandbox sets `data` to the request, runs the text, and takes its last expression: the reply.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

_PACKAGE = "toolgate.sandbox.dataset"
_FILES = (
    "tables",
    "conditions",
    "measures",
    "steps",
    "sql",
    "words",
    "scope",
    "parser",
    "rows",
    "sentences",
    "compose",
    "grammar",
    "outline",
    "runner",
)

_LOADER = """
import sys as _sys, types as _types
def _load(name, text):
    module = _types.ModuleType(name)
    module.__path__ = []
    _sys.modules[name] = module
    exec(compile(text, name.rpartition(".")[2] + ".py", "exec", dont_inherit=True), module.__dict__)
    if "." in name:
        outer, _, own = name.rpartition(".")
        setattr(_sys.modules[outer], own, module)
    return module
"""


@cache
def text() -> str:
    """The program. Its value is the reply to the request in `data`."""
    folder = resources.files(_PACKAGE)
    outer = ["toolgate", "toolgate.sandbox", _PACKAGE]
    loads = [f"_load({name!r}, '')" for name in outer]
    loads += [f"_load({f'{_PACKAGE}.{name}'!r}, {(folder / f'{name}.py').read_text('utf-8')!r})" for name in _FILES]
    return "\n".join([_LOADER, *loads, f"_sys.modules[{f'{_PACKAGE}.runner'!r}].process(data)", ""])
