"""The room as one program, in a Python that has nothing of toolgate; and long texts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from unit.sandbox.dataset.operations import ORDERS

from toolgate.sandbox.dataset import program
from toolgate.sandbox.dataset.runner import process

ALONE = """
import json, sys
data = json.load(sys.stdin)
program = open(sys.argv[1]).read()
body, _, last = program.rstrip().rpartition("\\n")
exec(body)
print(json.dumps(eval(last)))
"""


@pytest.mark.parametrize("operation", ["top 3 by price", "count by status", "what do you think of this"])
def test_the_program_replies_as_the_room_does(operation: str, tmp_path: Path):
    (tmp_path / "program.py").write_text(program.text())
    request = {"data": ORDERS, "operation": operation}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path / "program.py")],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == process(request)


def test_the_program_needs_the_standard_library_only():
    names = {
        line.split()[1].split(".")[0] for line in program.text().split("\\n") if line.startswith(("import ", "from "))
    }
    assert names - {"toolgate", "sys", "types"} <= sys.stdlib_module_names | {"__future__"}


LONG = [
    "open " * 40,
    "price > 1 and " * 20 + "price > 1",
    "price " * 80,
    "sum " * 79,
    "a, " * 40,
    "the all every each " * 20,
    "status is open or " * 19 + "status is open",
    "status in (" + "open, " * 36 + "open)",
    "keep only " + ", ".join(list(ORDERS[0]) * 2),
    "average price by " + " and ".join(list(ORDERS[0]) * 2),
    "count by status, " * 15 + "count",
    "(" * 40 + "price > 1" + ")" * 40,
    "only " * 80,
    "first 3 rows " * 20,
    "x" * 1_000,
    "x" * 1_000_000,
    "not " * 79,
    ", and " * 39,
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", LONG, ids=[text[:20] for text in LONG])
def test_a_long_text_is_understood_or_refused_in_bounded_time(text: str):
    assert process({"data": ORDERS, "operation": text})["success"] in (True, False)
