"""Pages made of templates (Jinja2). Imported with the first page that is asked for.

The rule this file keeps: all that stands on a page is escaped, and what servers and clients wrote is `visible` before:
it neither becomes markup nor turns the order of reading. Members that the admin API leaves out are empty there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from toolgate.catalog.poisoning import visible

LONGEST = 20_000  # characters of one text
MOST_SHOWN = 500  # items of one list


def page(template: str, values: Mapping[str, Any]) -> bytes:
    return _environment.get_template(template).render({"most_shown": MOST_SHOWN, **values}).encode("utf-8", "replace")


def _put(value: Any) -> Any:
    """What stands in a template's place: a text is a stranger's until it is known to be markup of ours."""
    return _text(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _text(whole: str) -> str:
    cut = whole[:LONGEST] + (f" … ({len(whole) - LONGEST} characters more)" if len(whole) > LONGEST else "")
    return "\n".join(visible(line) for line in cut.split("\n"))


def _verbatim(value: str) -> markupsafe.Markup:
    """For what comes back as it is: what an operator edits, and fields that nobody sees. It is escaped as well."""
    return markupsafe.escape(value)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _ago(seconds: float) -> str:
    """How long that is, for people."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + " UTC"


_environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=_put,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"json": _json, "verbatim": _verbatim, "ago": _ago, "at": _at}
