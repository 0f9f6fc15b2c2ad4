"""What of any tool is pinned without its name is what stands there when all of it is written without that."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from properties.material import values

from toolgate.catalog import prints

NAMES = st.sampled_from(["a", 'a, "name": "a"', '"', "\u2028"])
nested = st.fixed_dictionaries({}, optional={"name": NAMES, "a": NAMES, "z": values})
tools = st.fixed_dictionaries(
    {},
    optional={"name": NAMES | values, "description": NAMES, "inputSchema": nested, "outputSchema": nested, "z": NAMES},
)


@given(tools)
def test_what_is_pinned_without_a_name_is_all_else(tool: dict[str, Any]) -> None:
    told = prints.told_of(json.dumps(tool).encode())
    rest = prints.without_name(tool)
    assert told.is_read and told.whole == json.dumps(tool, sort_keys=True)
    assert told.rest == (json.dumps(rest, sort_keys=True) if rest else "")
