"""The executors of nightly-report. The key of every effect is the day, so a day can be reported again."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

import fake_office


class Period(TypedDict):
    day: str
    execution_id: str
    timezone: str


class Report(TypedDict):
    day: str
    shops: list[dict[str, Any]]


def report_day(inputs: Period) -> dict[str, Any]:
    """Return the day to report: the given one, or the day before the slot of the schedule."""
    if inputs["day"]:
        return {"day": date.fromisoformat(inputs["day"]).isoformat()}
    slot = datetime.strptime(inputs["execution_id"].rpartition(":")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    local = slot.astimezone(ZoneInfo(inputs["timezone"]))
    return {"day": (local.date() - timedelta(days=1)).isoformat()}


def sum_sales(inputs: dict[str, Any]) -> dict[str, Any]:
    """Sum the sales of each shop. Raises BooksOpen until all shops have closed the day."""
    return {"shops": [{"shop": shop, "total": total} for shop, total in fake_office.sales_of(inputs["day"])]}


def write_report(inputs: Report) -> dict[str, Any]:
    """Write the report of a day. The file is replaced as a whole, so a reader never sees a part of it."""
    folder = Path(os.environ.get("REPORTS", "reports"))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{inputs['day']}.csv"
    lines = [f"{one['shop']},{one['total']}\n" for one in inputs["shops"]]
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_text("shop,total\n" + "".join(lines), encoding="utf-8")
    part.replace(target)
    return {"file": target.name, "total": sum(one["total"] for one in inputs["shops"])}


def mail_report(inputs: dict[str, Any]) -> dict[str, Any]:
    fake_office.send_mail(f"report-{inputs['day']}", f"Sales of {inputs['day']}: {inputs['file']}")
    return {}
