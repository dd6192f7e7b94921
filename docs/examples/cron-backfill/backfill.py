"""Start daily-usage for each day of a range, as the schedule would have done.

    python backfill.py 2026-02-01 2026-02-28           the days that have not been computed
    python backfill.py 2026-02-01 2026-02-28 --again   all of them

A start has the execution id of the slot, so a second run of this script starts nothing twice, whatever
became of the first one. The priority 5 lets the jobs of other workflows pass.
"""

from __future__ import annotations

import argparse
import os
from datetime import date, timedelta

from orchestrator.client import Client, StartOptions, StartRequest, StartResult

TIME_OF_THE_SLOT = "T011500Z"


def days_between(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def execution_id(day: date) -> str:
    """The id of the slot that computes a day: it is on the next day."""
    return f"daily-usage:{day + timedelta(days=1):%Y%m%d}{TIME_OF_THE_SLOT}"


def request(day: date, label: str, is_again: bool) -> StartRequest:
    options = StartOptions(
        conflict_policy="terminate_existing" if is_again else "use_existing",
        labels={"backfill": label},
        priority=5,
    )
    return StartRequest("daily-usage", {}, execution_id(day), options)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", type=date.fromisoformat)
    parser.add_argument("last", type=date.fromisoformat)
    parser.add_argument("--again", action="store_true", help="also the days that have been computed")
    chosen = parser.parse_args(arguments)
    label = f"{chosen.first}..{chosen.last}"
    days = days_between(chosen.first, chosen.last)
    client = Client(os.environ.get("ORCHESTRATOR_REDIS_URL", "redis://localhost:6379/0"))
    sent = client.send_starts([request(day, label, chosen.again) for day in days])
    replies = client.wait_for_starts([one for one in sent if isinstance(one, str)], timeout_s=60)
    errors = [one for one in [*sent, *replies] if isinstance(one, Exception)]
    started = sum(isinstance(one, StartResult) and not one.existing for one in replies)
    print(f"{started} of {len(days)} days started, {len(errors)} failed")
    for error in errors:
        print(f"  {error}")
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
