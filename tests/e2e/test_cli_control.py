"""Commands that list and control executions, on a real Redis with a coordinator: output and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running

TWO = document(step("a"), step("b", after="a"), name="order")
WAIT = document({"id": "w", "wait": {"signal": "go"}}, name="approval")


class Console:
    """A user's shell, with a Redis URL and a running coordinator."""

    def __init__(self, url: str, world: RedisWorld) -> None:
        self.url, self.world, self.client = url, world, Client(world.connect())

    def run(self, *words: str, typed: str = "", **environment: str) -> Result:
        known = {"ORCHESTRATOR_REDIS_URL": self.url, "LOGNAME": "ada", **environment}
        found = CliRunner().invoke(main, words, input=typed, env=known, prog_name="orchestrator")
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
        return found

    def json(self, *words: str) -> Any:
        found = self.run(*words, "--json")
        assert found.stderr == ""
        return json.loads(found.stdout)

    def start(self, *names: str, **options: Any) -> None:
        for name in names:
            self.client.start(TWO, execution_id=name, **options)

    def full(self, name: str) -> str:
        return self.client.store.full_id(name)

    def control_of(self, name: str) -> dict[str, Any]:
        """What the history says of the last control."""
        [*_, last] = [one for one in self.client.history(name) if "control" in one]
        return {key: value for key, value in last.items() if key not in ("at", "cause")}


@pytest.fixture
def console(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.chdir(tmp_path)
    world = RedisWorld(lambda: connect(redis_url))
    with running(world.coordinator("one", world.connect(), block_ms=20, sweep_every_s=0.1)):
        yield Console(redis_url, world)
    world.close()


def ended(found: Result) -> tuple[int, str, str]:
    return found.exit_code, found.stdout, found.stderr


# ---- a start under a root


def test_a_root_is_remembered_for_as_long_as_its_window(console: Console, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(WAIT))
    started = ["start", "order.json", "--idempotency-root", "r", "--idempotency-window", "90m"]

    first, second = console.json(*started), console.json(*started)

    assert (first["execution_id"], second["existing"]) == (second["execution_id"], True)
    ttl = int(console.world.client.ttl(console.world.keys.idempotency("r")))
    assert 80 * 60 < ttl <= 90 * 60


# ---- what is followed


Prepare = Callable[[Console], object]
NOTHING: Prepare = lambda console: None  # noqa: E731
ACCEPTED: dict[str, tuple[Prepare, list[str], str, dict[str, Any]]] = {
    "cancel": (NOTHING, ["cancel", "x"], "x: cancelled", {"status": "cancelled"}),
    "cancel again": (
        lambda console: console.client.cancel("x"),
        ["cancel", "x"],
        "x: already cancelled",
        {"status": "cancelled", "changed": False},
    ),
    "pause": (NOTHING, ["pause", "x"], "x: paused", {"status": "paused"}),
    "unpause": (
        lambda console: console.client.pause("x"),
        ["unpause", "x"],
        "x: in progress",
        {"status": "in_progress"},
    ),
    "hold": (NOTHING, ["hold-step", "x", "b"], "x: step 'b' is on hold", {"status": "in_progress"}),
    "hold again": (
        lambda console: console.client.hold("x", "b"),
        ["hold-step", "x", "b"],
        "x: step 'b' is already on hold",
        {"status": "in_progress", "changed": False},
    ),
    "release": (
        lambda console: console.client.hold("x", "b"),
        ["release-step", "x", "b"],
        "x: step 'b' is released",
        {"status": "in_progress"},
    ),
    "retry": (
        lambda console: console.client.cancel("x"),
        ["retry", "x"],
        "x: in progress",
        {"status": "in_progress"},
    ),
    "rerun": (
        lambda console: console.client.cancel("x"),
        ["rerun-steps", "x", "--from", "b"],
        "x: in progress",
        {"status": "in_progress"},
    ),
    "delete": (
        lambda console: console.client.cancel("x"),
        ["delete", "x"],
        "x: deleted",
        {"status": "deleted"},
    ),
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_an_accepted_control_is_printed_and_exits_with_0(console: Console, what: str) -> None:
    prepare, words, text, _ = ACCEPTED[what]
    console.start("x")
    prepare(console)

    assert ended(console.run(*words)) == (0, f"{text}\n", "")


@pytest.mark.parametrize("what", ACCEPTED)
def test_an_accepted_control_has_json_output(console: Console, what: str) -> None:
    prepare, words, _, told = ACCEPTED[what]
    console.start("x")
    prepare(console)

    assert console.json(*words) == {"execution_id": "x", "ok": True, "changed": True, **told}


def test_an_execution_may_be_named_by_its_full_id(console: Console) -> None:
    console.start("x")

    assert console.run("pause", console.full("x")).stdout == f"{console.full('x')}: paused\n"


def test_a_deleted_execution_is_unknown(console: Console) -> None:
    console.start("x")
    console.client.cancel("x")
    console.run("delete", "x")

    code, out, err = ended(console.run("delete", "x"))
    assert (code, out, err) == (2, "", "x: no execution has the id 'x'\n")
    assert console.run("show", "x").exit_code == 2


# ---- the requester and the reason


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reason", "a duplicate"], {"by": "ada", "reason": "a duplicate"}),
        (["--by", "grace"], {"by": "grace"}),
        (["--by", ""], {}),
        ([], {"by": "ada"}),
    ],
)
def test_the_history_has_the_requester_and_the_reason(console: Console, words: list[str], said: Any) -> None:
    console.start("x")

    console.run("cancel", "x", *words)

    assert console.control_of("x") == {"control": "cancel", **said}


def test_a_user_without_a_name_leaves_the_requester_empty(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", unknown)
    console.start("x")

    assert console.run("pause", "x").exit_code == 0
    assert console.control_of("x") == {"control": "pause"}


# ---- rejections


REJECTED: dict[str, tuple[list[str], str]] = {
    "unpause": (["unpause", "x"], "workflow '{id}' cannot be unpaused: it is in_progress"),
    "retry": (["retry", "x"], "workflow '{id}' cannot be retried: it is in_progress"),
    "rerun": (["rerun-steps", "x", "--from", "b"], "workflow '{id}' cannot be rerun: it is in_progress"),
    "delete": (["delete", "x"], "workflow '{id}' cannot be deleted: it is in_progress"),
    "hold": (["hold-step", "x", "a"], "step 'a' cannot be held: it is in_progress"),
    "release": (["release-step", "x", "b"], "step 'b' cannot be released: it is ready"),
    "an unknown step": (["hold-step", "x", "z"], "workflow '{id}' has no step 'z' to hold"),
    "an unknown execution": (["cancel", "y"], "no execution has the id 'y'"),
    "too long a reason": (
        ["cancel", "x", "--reason", "?" * 1_001],
        "field 'reason' has 1,001 characters; at most 1,000 are accepted",
    ),
}


@pytest.mark.parametrize("what", REJECTED)
def test_a_rejected_control_prints_the_reason_and_exits_with_2(console: Console, what: str) -> None:
    words, why = REJECTED[what]
    console.start("x")
    reason = why.replace("{id}", console.full("x"))

    assert ended(console.run(*words)) == (2, "", f"{words[1]}: {reason}\n")
    assert console.json(*words) == {"execution_id": words[1], "ok": False, "reason": reason}
    assert console.run(*words, "--json").exit_code == 2
    assert console.client.status("x") == "in_progress"


def test_after_a_rejection_the_other_executions_are_still_sent_to(console: Console) -> None:
    console.start("x", "y", "z")
    console.client.cancel("y")

    code, out, err = ended(console.run("pause", "x", "y", "missing", "z"))

    assert (code, out) == (2, "x: paused\nz: paused\n")
    assert err == (
        f"y: workflow {console.full('y')!r} cannot be paused: it is cancelled\n"
        "missing: no execution has the id 'missing'\n"
    )
    told = console.json("unpause", "x", "y", "z")
    assert [(row["execution_id"], row["ok"]) for row in told] == [("x", True), ("y", False), ("z", True)]


@pytest.mark.parametrize(
    "words",
    [
        ["cancel"],
        ["retry"],
        ["cancel", "x", "--status", "failed"],
        ["pause"],
        ["hold-step", "x"],
        ["rerun-steps", "x"],
        ["signal", "x"],
        ["delete"],
        ["cancel", "--status", "sleeping"],
        ["cancel", "--label", "customer"],
        ["cancel", "--since", "yesterday"],
        ["list", "--limit", "0"],
        ["list", "--limit", "1001"],
        ["list", "--until", "7"],
        ["list", "--cursor", "nonsense"],
        ["signal", "x", "go", "--payload", "{"],
        ["signal", "x", "go", "--payload", "NaN"],
        ["signal", "x", "go", "--payload", "1e999"],
        ["signal", "x", "go", "--payload", "[" * 100_000],
        ["signal", "x", "go", "--payload", "@nowhere.json"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_wrong_usage_exits_with_2_and_sends_nothing(console: Console, words: list[str]) -> None:
    console.start("x")

    found = console.run(*words)

    assert found.exit_code == 2
    assert found.stdout == ""
    assert "Error" in found.stderr
    assert console.client.status("x") == "in_progress"


@pytest.mark.slow
def test_without_a_coordinator_it_exits_with_1_and_prints_what_was_sent(redis_url: str) -> None:
    world = RedisWorld(lambda: connect(redis_url))
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        console = Console(redis_url, world)
        console.start("x", "y")

    code, out, err = ended(console.run("cancel", "x", "y", "--json"))

    assert (code, err) == (1, "")
    [told] = json.loads(out)
    assert told["reason"].startswith("no coordinator replied within 10 s; check that one is running")
    world.settle(world.coordinator())
    assert (console.client.status("x"), console.client.status("y")) == ("cancelled", "complete")
    world.close()


def test_without_redis_it_exits_with_1(tmp_path: Path) -> None:
    nowhere = {"ORCHESTRATOR_REDIS_URL": f"unix://{tmp_path}/nowhere.sock"}
    for words in (
        ["list"],
        ["cancel", "x"],
        ["cancel", "--status", "failed", "--yes"],
        ["signal", "x", "go"],
    ):
        found = CliRunner().invoke(main, words, env=nowhere)
        assert found.exit_code == 1
        assert "cannot use Redis at" in found.stderr


# ---- all that a filter finds


def test_all_that_a_filter_finds_is_cancelled_after_a_confirmation(console: Console) -> None:
    console.start("x", "y", labels={"customer": "acme"})
    console.start("z")
    words = ("cancel", "--label", "customer=acme", "--reason", "gone")

    no = console.run(*words, typed="n\n")
    assert (no.exit_code, no.stdout) == (1, "")
    assert no.stderr.startswith("cancel 2 executions? [y/N]: ")
    silent = console.run(*words)
    assert (silent.exit_code, silent.stdout) == (1, "")
    assert console.client.status("x") == "in_progress"

    yes = console.run(*words, typed="y\n")

    assert (yes.exit_code, yes.stdout) == (0, "2 cancelled, 0 rejected\n")
    assert [console.client.status(name) for name in "xyz"] == ["cancelled", "cancelled", "in_progress"]
    assert console.control_of("x") == {"control": "cancel", "by": "ada", "reason": "gone"}


def test_each_rejection_of_a_bulk_control_is_printed_with_its_reason(console: Console) -> None:
    console.start("x", "y")
    console.client.cancel("y")

    code, out, err = ended(console.run("retry", "--name", "order", "--yes"))

    reason = f"workflow {console.full('x')!r} cannot be retried: it is in_progress"
    assert (code, out, err) == (0, "1 retried, 1 rejected\n", f"{console.full('x')}: {reason}\n")
    console.client.cancel("y")
    told = console.json("retry", "--name", "order", "--yes")
    assert told == {"done": [console.full("y")], "refused": {console.full("x"): reason}}


def test_a_filter_that_finds_nothing_needs_no_confirmation(console: Console) -> None:
    console.start("x")

    assert ended(console.run("cancel", "--status", "failed")) == (0, "0 cancelled, 0 rejected\n", "")
    assert ended(console.run("cancel", "--name", "")) == (0, "0 cancelled, 0 rejected\n", "")
    assert console.client.status("x") == "in_progress"


# ---- signals


def test_a_signal_is_delivered_kept_or_rejected(console: Console, tmp_path: Path) -> None:
    console.client.start(WAIT, execution_id="x")

    kept = console.run("signal", "x", "other")
    assert ended(kept) == (0, "x: signal 'other' kept, no step waits for it yet\n", "")
    Path("said.json").write_text('{"by": "grace"}')
    taken = console.run("signal", "x", "go", "--payload", "@said.json")
    assert ended(taken) == (0, "x: signal 'go' delivered to a waiting step\n", "")
    assert console.client.record("x").steps["w"].output == {"by": "grace"}
    late = console.run("signal", "x", "go")
    assert late.exit_code == 2
    assert f"no step waits for a signal: workflow {console.full('x')!r} is complete" in late.stderr


def test_a_signal_has_json_output(console: Console) -> None:
    assert console.json("signal", "early", "go", "--payload", "[1]") == {
        "execution_id": "early",
        "signal": "go",
        "kept": True,
    }
    console.client.start(WAIT, execution_id="early")
    assert console.client.status("early") == "complete"


# ---- list


def listed(found: Result) -> list[str]:
    assert found.exit_code == 0
    head, *lines = found.stdout.splitlines()
    assert re.fullmatch(r"EXECUTION +NAME +STATUS +BEGAN \(UTC\) +ENDED \(UTC\) +GROUP +LABELS", head)
    return [line.split()[0] for line in lines]


def test_a_list_shows_the_newest_first(console: Console) -> None:
    console.start("x", labels={"customer": "acme", "kind": "big"}, group="march")
    console.start("y")
    console.client.cancel("y")

    found = console.run("list")

    assert listed(found) == ["y", "x"]
    _, y, x = found.stdout.splitlines()
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"y +order +cancelled +{time} +{time} *", y)
    assert re.fullmatch(rf"x +order +in progress +{time} +march +customer=acme, kind=big", x)
    assert found.stderr == ""


def test_a_list_has_json_output(console: Console) -> None:
    console.start("x", labels={"customer": "ümlaut"}, group="march")

    told = console.json("list")

    [one] = told["executions"]
    assert told["cursor"] is None
    assert one == {
        "execution_id": "x",
        "workflow_execution_id": console.full("x"),
        "name": "order",
        "status": "in_progress",
        "created_at": console.client.record("x").created_at,
        "group": "march",
        "labels": {"customer": "ümlaut"},
    }


def test_a_list_continues_at_a_cursor(console: Console) -> None:
    console.start(*(f"x{n}" for n in range(5)))
    found: list[str] = []
    words = ["list", "--limit", "2"]
    while True:
        page = console.run(*words)
        found += listed(page)
        more = re.fullmatch(r"More: --cursor '(.*)'\n", page.stderr)
        if more is None:
            break
        words = ["list", "--limit", "2", "--cursor", more[1]]

    assert found == ["x4", "x3", "x2", "x1", "x0"]


FILTERED = {
    "--status cancelled": "y",
    "--status cancelled --status in_progress": "zyx",
    "--name order": "yx",
    "--name approval": "z",
    "--name nothing": "",
    "--group march": "x",
    "--label customer=acme": "yx",
    "--label customer=acme --label kind=big": "y",
    "--label customer=acme --status in_progress": "x",
    "--since 1h": "zyx",
    "--until 1h": "",
    "--since 2000-01-01": "zyx",
    "--since 2100-01-01T00:00+01:00": "",
    "--until 2100-01-01": "zyx",
}


def test_a_list_shows_what_its_filters_find(console: Console) -> None:
    console.start("x", labels={"customer": "acme"}, group="march")
    console.start("y", labels={"customer": "acme", "kind": "big"})
    console.client.start(WAIT, execution_id="z")
    console.client.cancel("y")

    found = {words: "".join(listed(console.run("list", *words.split()))) for words in FILTERED}

    assert found == FILTERED


def test_an_empty_list_is_a_heading(console: Console) -> None:
    assert listed(console.run("list")) == []
    assert console.json("list") == {"executions": [], "cursor": None}
