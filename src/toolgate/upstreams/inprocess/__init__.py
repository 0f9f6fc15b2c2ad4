"""Servers whose tools are functions in this process. `BUILT_IN_SERVERS` is the table of them.

tools     `InProcessTools`: a set of functions as tools; `ToolContext`: what such a function gets
upstream  the kind: `InProcessUpstream`
relaying  a call that such a function has made: what it asks is asked of the function's client
demo      `greeter`, which shows all that one can do
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolgate.upstreams.inprocess import demo
from toolgate.upstreams.inprocess.tools import InProcessTools

BUILT_IN_SERVERS: Mapping[str, Callable[[], InProcessTools]] = {"greeter": demo.greeter}
