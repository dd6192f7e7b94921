"""Dead letters are listed, shown, replayed and dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.application.spec.validation import check_spec
from orchestrator.cli import main
from orchestrator.redis_rq import dead_letters
from orchestrator.redis_rq.dead_letters import DeadLetterNotFound, DeadLetters, LetterPage
from orchestrator.redis_rq.letter_limits import MAX_LETTER_BYTES, MAX_LETTER_FIELD_CHARS
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ORDER = document(step("a"), name="order")


def dead(redis_url: str, *arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["--redis-url", redis_url, "dead", *arguments], input=answer)


def refused(world: RedisWorld, **fields: str) -> str:
    """An event that is refused; returns the entry of its letter."""
    one = world.coordinator()
    stream = world.keys.starts if "inputs" in fields else world.keys.events(0)
    world.send(stream, fields)
    world.settle(one)
    newest: Any = world.client.xrevrange(world.keys.dead_letters, count=1)
    return str(newest[0][0])


@pytest.fixture
def letters(world: RedisWorld) -> DeadLetters:
    return DeadLetters(world.client, world.keys)


# ---- reading and sending again


def test_letters_have_pages(world: RedisWorld, letters: DeadLetters) -> None:
    entries = [
        str(world.client.xadd(world.keys.dead_letters, {"reason": f"{'odd' if n % 2 else 'even'} {n}"}))
        for n in range(240)
    ]

    found: list[list[str]] = []
    after = None
    while True:
        page = letters.page("ODD", 50, after)
        found.append([one.entry for one in page.letters])
        after = page.cursor
        if after is None:
            break

    assert [len(one) for one in found] == [50, 50, 20]
    assert [entry for one in found for entry in one] == entries[::-2]
    assert letters.count() == 240


def test_a_full_page_that_is_the_last_has_no_cursor(world: RedisWorld, letters: DeadLetters) -> None:
    for _ in range(3):
        world.client.xadd(world.keys.dead_letters, {"reason": "r"})

    assert (len(letters.page("", 3).letters), letters.page("", 3).cursor) == (3, None)
    assert letters.page("", 2).cursor is not None
    assert letters.page("other") == LetterPage([])


def test_a_page_of_letters_ends_early_if_few_have_the_reason(
    world: RedisWorld, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_LETTERS_READ", 60)
    wanted = str(world.client.xadd(world.keys.dead_letters, {"reason": "wanted"}))
    for _ in range(100):
        world.client.xadd(world.keys.dead_letters, {"reason": "other"})

    first = letters.page("wanted")
    second = letters.page("wanted", after=first.cursor)

    assert (first.letters, second.cursor) == ([], None)
    assert [one.entry for one in second.letters] == [wanted]


def test_the_newest_comes_first(world: RedisWorld, letters: DeadLetters) -> None:
    first = refused(world, type="nonsense")
    second = refused(world, workflow="unknown", inputs="{}")

    found = list(letters.newest())

    assert [one.entry for one in found] == [second, first]
    assert [one.stream for one in found] == [world.keys.starts, world.keys.events(0)]
    assert found[1].fields == {"type": "nonsense"}
    assert [one.entry for one in letters.newest("UNKNOWN event")] == [first]


def test_there_may_be_more_of_them_than_are_read_at_once(world: RedisWorld, letters: DeadLetters) -> None:
    for n in range(1_201):
        world.send(world.keys.dead_letters, {"reason": f"r{n}", "event": "{}"})

    assert [one.reason for one in letters.newest()] == [f"r{n}" for n in reversed(range(1_201))]


def test_a_start_that_was_refused_is_sent_again_when_its_workflow_is_there(
    world: RedisWorld, letters: DeadLetters
) -> None:
    entry = refused(world, workflow="order", inputs="{}", execution_id="o1")
    world.store.register("order", check_spec(ORDER))
    letter = letters.get(entry)

    sent = letters.replay(letter)

    assert sent is not None
    world.settle(world.coordinator())
    assert world.answer(sent)["execution_id"] == "o1"
    assert world.record("o1").is_final
    assert world.dead() == []
    assert letters.replay(letter) is None, "it is gone"


def test_a_letter_is_sent_whole_or_not_at_all(world: RedisWorld, letters: DeadLetters) -> None:
    entry = refused(world, workflow="unknown", inputs="{}")
    letter = letters.get(entry)
    world.client.delete(world.keys.starts)
    world.client.set(world.keys.starts, "no stream")

    with pytest.raises(Exception, match="WRONGTYPE"):
        letters.replay(letter)

    assert letters.get(entry) == letter


def test_an_event_of_which_a_part_was_cut_cannot_be_sent_again(
    world: RedisWorld, letters: DeadLetters
) -> None:
    entry = refused(world, spec="x" * MAX_LETTER_BYTES, inputs="{}")

    letter = letters.get(entry)

    assert letter.truncated_fields == ["spec"]
    assert len(letter.fields["spec"]) == MAX_LETTER_FIELD_CHARS
    assert "only the beginning of spec was kept" in str(letters.problem(letter))


def test_an_event_that_fits_is_kept_whole_and_sent_again(world: RedisWorld, letters: DeadLetters) -> None:
    inputs = json.dumps({"text": "ü" * 50_000}, ensure_ascii=False)
    entry = refused(world, workflow="order", inputs=inputs, execution_id="o1")
    world.store.register("order", check_spec(ORDER))
    letter = letters.get(entry)
    assert (letter.fields["inputs"], letter.truncated_fields, letters.problem(letter)) == (inputs, [], None)

    sent = letters.replay(letter)

    assert sent is not None
    world.settle(world.coordinator())
    assert world.record("o1").inputs == {"text": "ü" * 50_000}


HOSTILE = {
    "many fields": {f"f{n}": "x" * 10_000 for n in range(500)},
    "many small fields": {f"f{n}": "" for n in range(50_000)},
    "a long name": {"n" * 5_000_000: "x"},
    "characters of four bytes": {f"f{n}": "\U0001f600" * 10_000 for n in range(30)},
    "characters that are escaped": {f"f{n}": "\x01" * 9_000 for n in range(30)},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_a_letter_is_limited_as_a_whole_and_says_so(
    world: RedisWorld, letters: DeadLetters, redis_url: str, fields: dict[str, str]
) -> None:
    entry = refused(world, type="nonsense", **fields)

    found: Any = world.client.xrange(world.keys.dead_letters, entry, entry)
    [(_, stored)] = found
    assert sum(len(name.encode()) + len(text.encode()) for name, text in stored.items()) < 150_000
    letter = letters.get(entry)
    assert 0 < len(letter.truncated_fields) <= 21
    replayed = dead(redis_url, "replay", entry)
    assert (replayed.exit_code, "publish the event again" in replayed.stderr) == (2, True)
    assert letters.get(entry) == letter


def test_a_letter_of_an_earlier_release_was_cut_if_a_field_has_the_maximum_length(
    world: RedisWorld, letters: DeadLetters
) -> None:
    for spec, cut in (("x" * MAX_LETTER_FIELD_CHARS, ["spec"]), ("x" * 9_999, [])):
        event = json.dumps({"spec": spec, "inputs": "{}"})
        entry = world.send(world.keys.dead_letters, {"event": event, "stream": world.keys.starts})

        assert letters.get(entry).truncated_fields == cut


@pytest.mark.parametrize("cut", ["", "7", "{"])
def test_a_letter_whose_cut_cannot_be_read_is_not_sent_again(
    world: RedisWorld, letters: DeadLetters, cut: str
) -> None:
    letter = {"event": '{"workflow": "order"}', "stream": world.keys.starts, "cut": cut}
    entry = world.send(world.keys.dead_letters, letter)

    assert "only the beginning of its fields was kept" in str(letters.problem(letters.get(entry)))


def test_a_letter_with_too_many_fields_is_not_sent_again(world: RedisWorld, letters: DeadLetters) -> None:
    event = json.dumps({f"f{n}": "" for n in range(5_000)})
    entry = world.send(world.keys.dead_letters, {"event": event, "stream": world.keys.starts, "cut": "[]"})

    assert "it has 5,000 fields" in str(letters.problem(letters.get(entry)))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"reason": "by hand"}, "missing or unreadable"),
        ({"event": "no JSON"}, "missing or unreadable"),
        ({"event": "[1]"}, "missing or unreadable"),
        ({"event": '{"type": "signal"}', "stream": "elsewhere"}, "no coordinator reads"),
    ],
)
def test_a_letter_that_was_written_by_hand_is_read_as_far_as_possible(
    world: RedisWorld, letters: DeadLetters, fields: dict[str, str], problem: str
) -> None:
    entry = world.send(world.keys.dead_letters, fields)

    assert problem in str(letters.problem(letters.get(entry)))


@pytest.mark.parametrize("entry", ["1-1", "nonsense"])
def test_a_letter_that_is_not_there_is_refused(letters: DeadLetters, entry: str) -> None:
    with pytest.raises(DeadLetterNotFound, match=entry):
        letters.get(entry)


# ---- the command


def test_a_list_shows_what_was_refused_and_why(world: RedisWorld, redis_url: str) -> None:
    entry = refused(world, workflow="unknown", inputs="{}", execution_id="o1")
    refused(world, type="nonsense", execution="o2")

    shown = dead(redis_url, "list", "--reason", "unknown'")
    data = json.loads(dead(redis_url, "list", "--limit", "1", "--json").stdout)

    [line] = shown.stdout.splitlines()
    assert line.startswith(f"{entry}  start o1  ")
    assert "unknown" in line
    assert [one["event"]["execution"] for one in data] == ["o2"]
    assert (
        dead(redis_url, "list", "--reason", "no such reason").stderr == "no dead letters with this reason\n"
    )


def test_a_letter_is_shown_with_its_event(world: RedisWorld, redis_url: str) -> None:
    entry = refused(world, workflow="unknown", inputs='{"n": 1}')

    shown = dead(redis_url, "show", entry)

    assert '  inputs: {"n": 1}' in shown.stdout.splitlines()
    assert shown.stdout.splitlines()[-1] == f"orchestrator dead-letters replay {entry}"
    assert json.loads(dead(redis_url, "show", entry, "--json").stdout)["problem"] is None
    missing = dead(redis_url, "show", "1-1")
    assert (missing.exit_code, missing.stderr) == (2, "Error: there is no dead letter '1-1'\n")


def test_letters_are_sent_again_and_what_cannot_be_is_told(world: RedisWorld, redis_url: str) -> None:
    entry = refused(world, workflow="unknown", inputs="{}")
    cut = refused(world, spec="x" * MAX_LETTER_BYTES, inputs="{}")

    sent = dead(redis_url, "replay", entry)
    rest = dead(redis_url, "replay", "--all", "--json")

    assert sent.exit_code == 0
    assert sent.stdout.startswith(f"{entry} replayed as ")
    assert sent.stdout.strip().endswith(f" in {world.keys.starts}")
    [told] = json.loads(rest.stdout)
    assert (rest.exit_code, told["entry"], told["sent"]) == (2, cut, None)
    assert "only the beginning" in dead(redis_url, "replay", cut).stderr
    last_line = dead(redis_url, "show", cut).stdout.splitlines()[-1]
    assert last_line.startswith("cannot be replayed: only the beginning of spec")


def test_letters_are_dropped_after_a_confirmation(world: RedisWorld, redis_url: str) -> None:
    entries = [refused(world, type=f"nonsense{n}") for n in range(3)]

    asked = dead(redis_url, "drop", entries[0], answer="n\n")
    dropped = dead(redis_url, "drop", entries[0], answer="y\n")
    others = dead(redis_url, "drop", "--all", "--reason", "nonsense2", "--yes", "--json")

    assert (asked.exit_code, dropped.exit_code) == (1, 0)
    assert "Permanently delete 1 dead letter?" in asked.stderr
    assert dropped.stdout == "1 dead letter dropped\n"
    assert json.loads(others.stdout) == [entries[2]]
    assert len(world.dead()) == 1


@pytest.mark.parametrize("command", ["replay", "drop"])
@pytest.mark.parametrize("words", [[], ["--all", "1-1"], ["1-1", "--reason", "x"]])
def test_letters_must_be_named_or_all_selected(redis_url: str, command: str, words: list[Any]) -> None:
    assert dead(redis_url, command, *words).exit_code == 2
