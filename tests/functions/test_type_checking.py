"""The errors that a type checker reports to a user of workflow functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from functions.order_page import APP

ROOT = Path(__file__).parents[2]

GOOD = """\
from typing import Any, TypedDict, assert_type

from app import Approval, Checked, Payment, charge, check, order, price, refund, send_parcel
from orchestrator import Again, child, executor, loop, map_each, op, sleep, step, step_of, switch, wait_for
from orchestrator import wait_for_any, workflow
from orchestrator.application.records.decisions import FinalDecision
from orchestrator.builder import when
from orchestrator.client import AsyncClient, Client, StartResult


class Answer(TypedDict):
    event: str


@step(queue="io", heartbeat="5s")
async def fetch(url: str) -> bytes:
    return b""


@step
def improve(text: str, last: str | None = None) -> str | Again[str]:
    return Again(text)


@workflow(schedule={"cron": "0 6 * * *"})
def flow(sku: str = "a") -> Payment:
    checked = check(sku, quantity=2)
    assert_type(checked, Checked)
    assert_type(fetch(url=sku), bytes)
    prices = map_each(checked.lines, lambda line: price(line=line))
    assert_type(prices, list[float])
    map_each(checked.lines, lambda line, n: price.options(id="x", after=n)(line))
    answer = wait_for_any(["a", "b"], Answer, after=[prices, sleep("5m"), "check"])
    assert_type(wait_for("manager", Approval, when=op.not_(checked.amount > 5)).by, str)
    text = loop(lambda last: improve(text=answer["event"], last=last))
    assert_type(text, str)
    paid = charge.options(retry=2, compensate=lambda paid: refund(payment=paid.id))(
        order=op.cat("order ", op.length(checked.lines)), amount=checked.amount * 2
    )
    branched = charge.options(branch=lambda paid: [when(paid.amount == 0).halt({"id": paid.id})])
    assert_type(branched("a", op.default(prices[0], 1.0)), Payment)
    shipped = switch(checked.kind, {"parcel": lambda: send_parcel(payment=paid)}, id="ship")
    assert_type(shipped, str)
    assert_type(child("other", Payment, input={"a": sku}).id, str)
    assert_type(executor("http", dict[str, Any])(url=sku), dict[str, Any])
    assert_type(order(sku=sku)["by"], Any)
    dear = op.filter(checked.lines, lambda line: line.price > 10)
    return Payment(id=op.cat(dear[0].name, step_of(paid).id), amount=checked.amount)


assert_type(flow.run("a"), FinalDecision)
client = Client("redis://localhost")
assert_type(flow.start(client, sku="a", execution_id="e"), StartResult)
assert_type(flow.register(client), str)


async def start(client: AsyncClient) -> None:
    assert_type(await flow.start(client, sku="a"), StartResult)
"""

BAD = """\
from app import charge, check, order, price
from orchestrator import map_each, sleep, step, wait_for, workflow

check("a", 1).amnt  # wrong
check("a")  # wrong
check(sku="a", quantty=1)  # wrong
check(sku="a", quantity="1")  # wrong
charge(order="a", amount=check("a", 1).kind)  # wrong
map_each(check("a", 1).amount, lambda line: price(line))  # wrong
map_each(check("a", 1).lines, lambda line: price(line.price))  # wrong
charge.options(retyr=3)  # wrong
charge.options(on_error="ignore")  # wrong
charge.options(compensate=lambda paid: check(paid.idd, 1))  # wrong
wait_for("manager", "Approval")  # wrong
sleep(2.5)  # wrong
order.run(skuu="a")  # wrong
step(timeuot="5s")  # wrong
workflow(tiemout="2d")  # wrong
"""


def test_a_type_checker_accepts_what_is_right_and_finds_what_is_wrong(tmp_path: Path) -> None:
    for name, text in (("app", APP), ("good", GOOD), ("bad", BAD)):
        (tmp_path / f"{name}.py").write_text(text)

    options = ["--strict", "--config-file=", "--cache-dir=cache", "app.py", "good.py", "bad.py"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )

    found = re.findall(r"^(\w+)\.py:(\d+): error: ", checked.stdout, re.MULTILINE)
    wrong = [("bad", str(n)) for n, line in enumerate(BAD.splitlines(), 1) if line.endswith("  # wrong")]
    assert sorted(set(found)) == sorted(wrong), checked.stdout + checked.stderr
