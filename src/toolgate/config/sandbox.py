"""The section `sandbox` of the configuration: what scripts of models may use."""

# No annotation is deferred here: `fields.rows` reads them.

from typing import Annotated, Literal

import msgspec

from toolgate.config import allowing
from toolgate.config.allowing import Allows
from toolgate.config.fields import Key
from toolgate.config.values import choice, duration, flag, size, whole

CONFINEMENT = ("auto", "always", "never")


class Sandbox(msgspec.Struct, frozen=True):
    """What runs code against tools. `timeout` in seconds, `output_limit` and `memory` in bytes."""

    enabled: Annotated[bool, Key(flag, "`false`: no client can run code", "relist"), allowing.LESS] = True
    require_os_confinement: Annotated[
        Literal["auto", "always", "never"],
        Key(
            choice(*CONFINEMENT),
            'whether code runs only where the system confines it too (on Linux: Landlock and seccomp): `"always"`, '
            '`"never"`, or `"auto"`: always where the gateway listens beyond this machine, else with a warning',
        ),
        Allows("run code of models without the confinement of the system", stronger=("always",)),
    ] = "auto"
    require_boxes: Annotated[
        bool,
        Key(
            flag,
            "`false`: a server whose [box](boxes.md) this machine cannot put on whole is started all the same, with "
            "what there is of the box and a warning",
        ),
        Allows("start servers in boxes that are not whole: require_boxes = {}"),
    ] = True
    strict_globals: Annotated[
        bool,
        Key(flag, "`true`: JavaScript has the globals of `mcp_execute` as specified, and no others"),
        allowing.LESS,
    ] = False
    timeout: Annotated[
        float,
        Key(duration, "how long code may run, not counting the time in which its calls wait for people"),
        allowing.PACE,
    ] = 120.0
    output_limit: Annotated[
        int, Key(size, "the maximum size of the output and the result of one run"), allowing.MEMORY
    ] = 10 * 1024 * 1024
    memory: Annotated[int, Key(size, "the maximum memory of a process that runs code"), allowing.MEMORY] = (
        512 * 1024 * 1024
    )
    calls: Annotated[int, Key(whole(1, 1_000_000), "how many calls of tools one run may make"), allowing.PACE] = 1000
    runs: Annotated[
        int | None,
        Key(whole(1, 1000), "how many runs go on at once; others wait", default="four for each processor, 16 at most"),
        allowing.PACE,
    ] = None
    warm: Annotated[
        int, Key(whole(0, 64), "how many processes for JavaScript are started in advance"), allowing.PACE
    ] = 2
