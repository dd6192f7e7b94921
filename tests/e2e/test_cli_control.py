"""Commands that list and control executions, on a real Redis with a coordinator: output and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.cli import main
from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running
from worlds.waiting import wait_until

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
    (tmp_path / "order.json").write_text(json.dumps({**WAIT, "timeout": "1d"}))
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
        ["delete", "x", "--yes"],
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
    console.run("delete", "x", "--yes")

    code, out, err = ended(console.run("delete", "x", "--yes"))
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


def test_a_pause_is_shown_with_its_requester_and_its_reason(console: Console) -> None:
    console.start("x")

    console.run("pause", "x", "--reason", "the supplier is closed", "--by", "grace")

    said = {"by": "grace", "reason": "the supplier is closed"}
    assert console.control_of("x") == {"control": "pause", **said}
    shown, [listed] = console.json("show", "x"), console.json("list")["executions"]
    assert said.items() <= shown["paused"].items()
    assert listed["paused"] == shown["paused"]
    assert ", by grace: the supplier is closed\n" in console.run("show", "x").stdout
    explained = console.run("explain", "x").stdout
    assert re.search(r"has been paused for .* by grace \(the supplier is closed\): no step", explained)
    console.run("unpause", "x")
    assert console.json("show", "x")["paused"] is None
    assert "paused" not in console.json("list")["executions"][0]


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
    "delete": (["delete", "x", "--yes"], "workflow '{id}' cannot be deleted: it is in_progress"),
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
        ["cancel", "--text", ""],
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
    assert (code, out) == (0, "1 retried, 1 rejected\n")
    assert err == f"retry 2 executions\n{console.full('x')}: {reason}\n"
    console.client.cancel("y")
    as_json = console.run("retry", "--name", "order", "--yes", "--json")
    assert as_json.stderr == "retry 2 executions\n"
    assert json.loads(as_json.stdout) == {
        "done": [console.full("y")],
        "refused": {console.full("x"): reason},
    }


def test_a_filter_that_finds_nothing_needs_no_confirmation(console: Console) -> None:
    console.start("x")

    assert ended(console.run("cancel", "--status", "failed")) == (0, "0 cancelled, 0 rejected\n", "")
    assert ended(console.run("cancel", "--name", "")) == (0, "0 cancelled, 0 rejected\n", "")
    assert console.client.status("x") == "in_progress"


# ---- deletion


def test_a_deletion_needs_a_terminal_or_a_yes(console: Console) -> None:
    console.start("x", "y")
    console.client.cancel("x")
    console.client.cancel("y")

    for words in (["x", "y"], ["--name", "order"]):
        refused = console.run("delete", *words, typed="y\n")
        assert refused.exit_code == 2
        assert (
            "this would permanently delete 2 executions; to delete without being asked, pass --yes"
            in refused.stderr
        )
    assert [console.client.status(name) for name in "xy"] == ["cancelled", "cancelled"]


@pytest.mark.parametrize(("typed", "left"), [("n\n", 2), ("y\n", 0)])
@pytest.mark.parametrize("words", [["x", "y"], ["--status", "cancelled"]])
def test_on_a_terminal_a_deletion_asks_and_says_how_many(
    console: Console, monkeypatch: pytest.MonkeyPatch, typed: str, left: int, words: list[str]
) -> None:
    monkeypatch.setattr("orchestrator.cli.controls.has_terminal", lambda: True)
    console.start("x", "y")
    console.client.cancel("x")
    console.client.cancel("y")

    asked = console.run("delete", *words, typed=typed)

    assert asked.stderr.startswith("permanently delete 2 executions? [y/N]: ")
    assert asked.exit_code == (1 if left else 0)
    assert len(list(console.client.list_all())) == left


def test_all_that_a_filter_finds_is_deleted_and_open_executions_are_not(console: Console) -> None:
    console.start("x", "y")
    console.client.cancel("x")

    code, out, err = ended(console.run("delete", "--name", "order", "--yes"))

    assert (code, out) == (0, "1 deleted, 1 rejected\n")
    assert err.startswith(f"delete 2 executions\n{console.full('y')}: workflow ")
    assert [one.execution_id for one in console.client.list_all()] == ["y"]


# ---- failures


LATER = {"max_retries": 1, "initial_delay_ms": 3_600_000}
PAY = document(step("pay", input={"price": {"var": "input.price"}}), name="order")
PAY_TWICE = document(step("pay", input={"price": {"var": "input.price"}}, retry=LATER), name="order")


def pay(inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(f"the price {inputs['price']} is wrong")


def fail(console: Console, spec: Any, *names: str) -> None:
    """Start executions of which the step `pay` fails, and wait until it has."""
    for n, name in enumerate(names):
        console.client.start(spec, {"price": n}, execution_id=name)

    def have_failed() -> bool:
        console.world.work({"pay": pay})
        return all(console.client.record(name).steps["pay"].error is not None for name in names)

    wait_until(have_failed)


def test_failures_are_grouped_and_a_group_is_retried_cancelled_or_deleted(console: Console) -> None:
    fail(console, PAY, "x1", "x2", "x3")
    fail(console, PAY_TWICE, "y1", "y2")
    console.client.start(WAIT, execution_id="z")

    [group] = console.json("failures")["failures"]
    table = console.run("failures", "--name", "order").stdout.splitlines()
    retried = console.run("retry", "--failure", group["failure"], "--label", "no=one", "--yes")
    cancelled = console.run("cancel", "--failure", group["failure"], "--yes", "--by", "ada")
    deleted = console.run("delete", "--failure", group["failure"], "--until", "0s", "--yes")

    assert {name: group[name] for name in ("workflow", "step", "kind", "type", "message")} == {
        "workflow": "order",
        "step": "pay",
        "kind": "exception",
        "type": "ValueError",
        "message": "the price <n> is wrong",
    }
    assert (group["failed"], group["retrying"], len(group["examples"])) == (3, 2, 3)
    columns = "FAILURE WORKFLOW STEP FAILED RETRYING FIRST (UTC) LAST (UTC) EXAMPLES CAUSE"
    assert " ".join(table[0].split()) == columns
    assert re.fullmatch(
        rf"{group['failure']} +order +pay +3 +2 +.* +x3, x2, x1 +ValueError: the price <n> is wrong", table[1]
    )
    assert ended(retried)[:2] == (0, "0 retried, 0 rejected\n")
    assert ended(cancelled) == (0, "2 cancelled, 0 rejected\n", "cancel 2 executions\n")
    assert ended(deleted) == (0, "3 deleted, 0 rejected\n", "delete 3 executions\n")
    assert sorted(one.execution_id for one in console.client.list_all()) == ["y1", "y2", "z"]
    assert [console.client.status(name) for name in ("y1", "y2", "z")] == [
        "cancelled",
        "cancelled",
        "in_progress",
    ]


def test_a_retried_group_runs_again_after_its_number_was_said(console: Console) -> None:
    fail(console, PAY, "x1", "x2")
    [group] = console.json("failures")["failures"]

    asked = console.run("retry", "--failure", group["failure"], typed="y\n")

    assert asked.stderr.startswith("retry 2 executions? [y/N]: ")
    assert asked.stdout == "2 retried, 0 rejected\n"
    assert [console.client.status(name) for name in ("x1", "x2")] == ["in_progress", "in_progress"]


@pytest.mark.parametrize("command", ["retry", "cancel", "delete"])
def test_a_failure_that_no_execution_has_changes_nothing(console: Console, command: str) -> None:
    fail(console, PAY, "x1")
    [group] = console.json("failures")["failures"]

    unknown = console.run(command, "--failure", "0123456789", "--yes")
    both = console.run(command, "x1", "--failure", group["failure"], "--yes")

    assert unknown.stdout.startswith("0 ")
    assert "execution has the failure '0123456789'" in unknown.stderr
    assert (both.exit_code, both.stdout) == (2, "")
    assert console.client.status("x1") == "failed"


def test_groups_that_are_not_shown_are_counted(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(console, PAY, "x1")
    fail(console, {**PAY, "name": "bill"}, "x2")
    monkeypatch.setattr("orchestrator.redis_rq.queries.failures.MAX_EXECUTIONS", 2)
    monkeypatch.setattr("orchestrator.redis_rq.queries.failures.MAX_CAUSES", 2)

    two = console.run("failures", "--limit", "1")
    fail(console, {**PAY, "name": "more"}, "x3")
    three = console.run("failures")
    as_json = console.json("failures")
    monkeypatch.setattr("orchestrator.redis_rq.queries.failures.MAX_CAUSES", 1)

    assert two.stderr == "and 1 group more; --limit shows more\n"
    assert three.stderr == "only the newest 2 executions were read; use --since, --until or a filter\n"
    assert (as_json["groups"], as_json["checked"], as_json["complete"]) == (2, 2, False)
    assert console.run("failures").stderr.startswith("1 execution with still other causes; use a filter\n")


def test_a_bulk_control_has_a_limit_and_says_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.client.bulk.MAX_BULK_EXECUTIONS", 2)
    console.start("x", "y", "z")

    found = console.run("cancel", "--name", "order", "--yes")

    assert found.stderr == "cancel the newest 2 executions; run the command again for the others\n"
    assert found.stdout == "2 cancelled, 0 rejected\n"
    assert [console.client.status(name) for name in "xyz"] == ["in_progress", "cancelled", "cancelled"]


def test_what_is_created_after_the_question_is_not_changed(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.start("x")

    def confirm(*words: Any, **keys: Any) -> bool:
        console.start("y")
        return True

    monkeypatch.setattr("click.confirm", confirm)

    assert console.run("cancel", "--name", "order").stdout == "1 cancelled, 0 rejected\n"
    assert console.client.status("y") == "in_progress"


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
    columns = r"EXECUTION +NAME +STATUS +BEGAN \(UTC\) +ENDED \(UTC\) +TOOK +GROUP +LABELS +STEP +ERROR"
    assert re.fullmatch(columns, head)
    return [line.split()[0] for line in lines]


def test_a_list_shows_the_newest_first(console: Console) -> None:
    console.start("x", labels={"customer": "acme", "kind": "big"}, group="march")
    console.start("y")
    console.client.cancel("y")

    found = console.run("list")

    assert listed(found) == ["y", "x"]
    _, y, x = found.stdout.splitlines()
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    took = r"[0-9.]+ m?s"
    assert re.fullmatch(rf"y +order +cancelled +{time} +{time} +{took} *", y)
    assert re.fullmatch(
        rf"x +order +in progress +{time} +{took} +march +customer=acme, kind=big +a \(queued\)", x
    )
    assert found.stderr == ""


def test_a_list_shows_the_failed_step_its_error_and_how_long_it_took(console: Console) -> None:
    def reject(inputs: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("the token tok-17 is wrong\nand more")

    console.client.start(PAY, {"price": 1, "api_token": "tok-17"}, execution_id="x")
    wait_until(lambda: (console.world.work({"pay": reject}), console.client.status("x") == "failed")[1])

    line = console.run("list").stdout.splitlines()[1]
    [one] = console.json("list")["executions"]

    assert re.search(
        r"^x +order +failed .* [0-9.]+ m?s +pay +ValueError: the token <redacted> is wrong$", line
    )
    record = console.client.record("x")
    took_ms = ms_between(record.created_at, record.ended_at)
    assert one["error"] == {
        "kind": "exception",
        "type": "ValueError",
        "message": "the token <redacted> is wrong\nand more",
        "step": "pay",
    }
    assert (one["duration_ms"], "steps" in one) == (took_ms, False)


def ms_between(first: str, last: str | None) -> int:
    return parse_iso_ms(last or "") - parse_iso_ms(first)


def test_a_list_shows_where_open_executions_are(console: Console) -> None:
    many = document(*(step(f"s{n}") for n in range(5)), {"id": "w", "wait": {"signal": "go"}}, name="many")
    console.client.start(many, {}, execution_id="x")

    line = console.run("list").stdout.splitlines()[1]
    [one] = console.json("list")["executions"]

    assert line.endswith("s0 (queued), s1 (queued), s2 (queued) and 3 more")
    assert one["steps"] == {**{f"s{n}": "queued" for n in range(5)}, "w": "waiting"}
    assert one["status"] == "in_progress"


def test_a_list_does_not_load_large_records(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.redis_rq.queries.execution_details.MAX_FIELDS", 5)
    console.start("x")
    console.client.cancel("x")
    console.start("y")

    found = console.json("list")["executions"]

    assert [(one["execution_id"], "steps" in one) for one in found] == [("y", False), ("x", False)]


def test_a_list_has_json_output(console: Console) -> None:
    console.start("x", labels={"customer": "ümlaut"}, group="march")

    told = console.json("list")

    [one] = told["executions"]
    assert told["cursor"] is None
    assert one.pop("duration_ms") >= 0
    assert one == {
        "execution_id": "x",
        "workflow_execution_id": console.full("x"),
        "name": "order",
        "status": "in_progress",
        "created_at": console.client.record("x").created_at,
        "group": "march",
        "labels": {"customer": "ümlaut"},
        "steps": {"a": "queued"},
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
    "--text ORD": "yx",
    "--text customer=": "yx",
    "--text mar": "x",
    "--text z --status in_progress": "z",
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
