"""The errors that a type checker reports to a user of the builder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

GOOD = """\
from datetime import timedelta
from typing import assert_type

from orchestrator import WorkflowBuilder
from orchestrator.builder import Expr, Reference, Step, Value, input_, item, op, output, when

flow = WorkflowBuilder("orders", timeout=timedelta(days=2), defaults={"on_error": "skip", "retry": 3})
sku = flow.input("sku", type="string", default=None)
check = flow.step("check", fn="check_order", input={"sku": sku, "deep": [{"n": (1, sku)}]}, priority=1)
lines = flow.map("lines", over=check.output.lines, input={"line": item}, retry={"max_retries": 4})
flow.wait("approval", signal="go", timeout="24h", after=[check, "lines"], when=check.output.amount > 500)
flow.step("store", after=lines, branch=[when(output.code == 7).halt({"why": output.text})], join="any")
shared: dict[str, Value] = {"sku": sku}
flow.outputs(shared, total=op.reduce(lines.output.items, lambda total, line: total + line.price, 0))

assert_type(sku, Reference)
assert_type(check, Step)
assert_type(check.output.lines[0].price, Reference)
assert_type(check.output.amount == 7, Expr)
assert_type((check.output.amount * 2 < 7) & ~sku | True, Expr)
assert_type(input_.x.default("y"), Expr)
"""

BAD = """\
from orchestrator.builder import WorkflowBuilder, literal, op, state, when

flow = WorkflowBuilder("orders", tiemout="2d")  # wrong
flow.input("sku", type="text")  # wrong
check = flow.step("check", on_error="ignore")  # wrong
flow.step("a", depends_on=["check"])  # wrong
flow.step("b", when="len(x) > 0")  # wrong
flow.step("c", priority=6)  # wrong
flow.step("d", retry={"max_retry": 3})  # wrong
flow.step("e", timeout=2.5)  # wrong
flow.step("f", input={"x": check})  # wrong
flow.step("g", branch=[when(True)])  # wrong
flow.step("h", join="both")  # wrong
flow.wait("i")  # wrong
flow.wait("j", signal="go", on_timeout="skip")  # wrong
flow.delay("k", "1s", fn="work")  # wrong
flow.loop("l", on_max="stop")  # wrong
flow.step("m", concurrency={"key": "m"})  # wrong
state.total + " euros"  # wrong
state.total.defualt(0)  # wrong
check.ouput  # wrong
literal(state.total)  # wrong
op.upper(5)  # wrong
"""


def test_a_type_checker_accepts_what_is_right_and_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)

    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            "--cache-dir=cache",
            "good.py",
            "bad.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    found = re.findall(r"^(\w+)\.py:(\d+): error: ", checked.stdout, re.MULTILINE)
    wrong = [("bad", str(n)) for n, line in enumerate(BAD.splitlines(), 1) if line.endswith("  # wrong")]
    assert found == wrong, checked.stdout + checked.stderr
