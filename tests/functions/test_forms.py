"""map_each, switch, loop, waits, children and branches: what they write, and how it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from orchestrator import (
    Again,
    Backend,
    Workflow,
    child,
    executor,
    loop,
    map_each,
    op,
    sleep,
    step,
    step_of,
    switch,
    wait_for,
    wait_for_any,
    workflow,
)
from orchestrator.builder import complete, when
from orchestrator.builder.keyword_arguments import JobKeys, WorkKeys
from orchestrator.functions import WorkflowFunction
from orchestrator.functions.forms import ChildKeys
from orchestrator.functions.steps import TaskKeys


class Note(TypedDict):
    text: str
    size: int


@dataclass
class Receipt:
    text: str
    count: int = 0


@step
def write(text: str) -> Note:
    return {"text": text, "size": len(text)}


@step
def shout(text: str, times: int = 1) -> str:
    return text.upper() + "!" * times


@step
def grow(text: str, last: str | None = None) -> str | Again[str]:
    grown = (last or "") + text
    return grown if len(grown) >= 3 else Again(grown)


def steps_of(flow: WorkflowFunction[..., Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = flow.to_dict()["steps"]
    return steps


def outcome(flow: WorkflowFunction[..., Any], *args: Any, signals: dict[str, Any] | None = None) -> Any:
    inputs = flow.parameters.to_json(flow.parameters.bind(args, {}))
    execution = Workflow.from_dict(flow.to_dict(), Backend(flow.executors), inputs)
    for name, payload in (signals or {}).items():
        execution.signal(name, payload)
    execution.run()
    assert execution.status == "complete", execution.error
    return execution.outcome


def test_a_map_can_pass_the_index_and_other_values() -> None:
    @workflow
    def flow(words: list[str], end: str) -> dict[str, Any]:
        shouted = map_each(
            words, lambda word, n: shout.options(retry=2)(op.cat(word, end), times=n), id="all"
        )
        return {"all": shouted, "second": shouted[1], "count": op.length(shouted)}

    assert steps_of(flow) == [
        {
            "id": "all",
            "fn": "shout",
            "map": {"over": {"var": "input.words"}},
            "input": {"text": {"cat": [{"var": "item"}, {"var": "input.end"}]}, "times": {"var": "index"}},
            "retry": 2,
        }
    ]
    assert outcome(flow, ["a", "b"], "?") == {"all": ["A?", "B?!"], "second": "B?!", "count": 2}


def test_the_second_call_of_a_step_gets_a_number() -> None:
    @workflow
    def flow() -> dict[str, Any]:
        write("a"), write("b"), write("c")
        return {}

    assert [one.get("id", one.get("op")) for one in steps_of(flow)] == ["write", "write-2", "write-3"]


@pytest.mark.parametrize(
    ("kind", "inner", "expected"),
    [("a", "x", "AX!"), ("a", "y", "ay"), ("b", "x", "B!"), ("c", "x", None)],
)
def test_a_switch_may_stand_in_a_branch_of_another(kind: str, inner: str, expected: Any) -> None:
    @workflow
    def flow(kind: str, inner: str) -> dict[str, Any]:
        word = shout(kind, times=0)

        def nested() -> str | None:
            return switch(inner, {"x": lambda: keep(shout(op.cat(word, inner)))}, default=write_both)

        def write_both() -> str | None:
            first = write(op.cat(kind, inner))
            return keep(first["text"])

        chosen = switch(kind, {"a": nested, "b": lambda: keep(shout(word))}, default=lambda: keep(None))
        return {"chosen": chosen}

    assert outcome(flow, kind, inner) == {"chosen": expected}


@step
def keep(text: str | None) -> str | None:
    return text


def test_a_step_after_a_switch_waits_for_the_branch_that_runs() -> None:
    @workflow
    def flow(kind: str) -> dict[str, Any]:
        chosen = switch(kind, {"a": lambda: write("a")}, default=lambda: None, id="way")
        last = shout.options(after=chosen, id="last")("done")
        return {"last": last}

    assert steps_of(flow)[-1]["depends_on"] == ["way", "write"]
    assert outcome(flow, "a") == {"last": "DONE!"}
    assert outcome(flow, "b") == {"last": "DONE!"}


def test_a_loop_calls_a_step_until_it_is_done() -> None:
    @workflow
    def flow(text: str) -> dict[str, Any]:
        return {"grown": loop(lambda last: grow(text=text, last=last), max_iterations=5)}

    [written] = steps_of(flow)
    assert written["loop"] == {"max_iterations": 5}
    assert written["input"] == {"text": {"var": "input.text"}, "last": {"var": "ctx.loop.value.result"}}
    assert outcome(flow, "ab") == {"grown": "abab"}
    assert outcome(flow, "abc") == {"grown": "abc"}


def test_a_loop_needs_a_step_that_returns_again() -> None:
    @workflow
    def never() -> None:
        loop(lambda last: shout("a"))

    @workflow
    def without() -> None:
        grow("a")

    with pytest.raises(Exception, match="never returns Again"):
        never.load()
    with pytest.raises(Exception, match=r"must be called in loop\(\)"):
        without.load()


def test_waits_are_typed_and_named_after_their_signal() -> None:
    @workflow
    def flow() -> dict[str, Any]:
        first = wait_for("go", Note, timeout="1h", on_timeout="continue")
        pause = sleep("1ms", after=first)
        answer = wait_for_any(["yes", "no"], dict[str, Any], timeout="2h", id="answer", after=pause)
        return {"text": first["text"], "event": answer["event"], "status": step_of(first).status}

    assert steps_of(flow) == [
        {"id": "go", "wait": {"signal": "go", "timeout": "1h", "on_timeout": "continue"}},
        {"id": "sleep", "delay": "1ms", "depends_on": ["go"]},
        {
            "id": "answer",
            "wait": {"any": [{"signal": "yes"}, {"signal": "no"}, {"timeout": "2h"}]},
            "depends_on": ["sleep"],
        },
    ]
    signals = {"go": {"text": "hi", "size": 2}, "no": {"why": "late"}}
    assert outcome(flow, signals=signals) == {"text": "hi", "event": "no", "status": "complete"}


def test_a_workflow_is_a_child_of_another() -> None:
    @workflow
    def inner(text: str, times: int = 2) -> Receipt:
        return Receipt(text=shout(text, times), count=times)

    @workflow
    def word(text: str) -> str:
        return shout(text)

    @workflow
    def flow(text: str) -> Receipt:
        first = inner.options(id="first", retry=1)(text)
        return inner(text=op.cat(first.text, word(text=text)), times=first.count)

    assert [one.get("id") for one in steps_of(flow)] == ["first", "word", "inner"]
    assert steps_of(flow)[0]["workflow"] == inner.to_dict()
    assert flow.to_dict()["outputs"] == {
        "text": {"var": "steps.inner.output.text"},
        "count": {"var": "steps.inner.output.count"},
    }
    assert outcome(flow, "a") == {"text": "A!!A!!!", "count": 2}
    assert outcome(word, "a") == {"result": "A!"}


def test_a_registered_workflow_is_a_child_by_name() -> None:
    @workflow
    def flow(text: str) -> dict[str, Any]:
        return {"text": child("registered", Receipt, input={"text": text}, timeout="1h").text}

    assert steps_of(flow) == [
        {
            "id": "registered",
            "workflow": "registered",
            "input": {"text": {"var": "input.text"}},
            "timeout": "1h",
        }
    ]
    assert flow.to_dict()["outputs"] == {"text": {"var": "steps.registered.output.text"}}


def test_an_executor_that_is_no_function_is_a_step_too() -> None:
    echo = executor("echo", dict[str, Any], retry=1)
    fetch = executor({"type": "http", "configuration": {"method": "GET"}}, dict[str, Any])

    @workflow
    def flow(text: str) -> dict[str, Any]:
        return {"text": echo(text=text)["text"], "more": executor("echo", dict[str, Any])(n=1)["n"]}

    @workflow
    def fetching() -> None:
        fetch(url="http://example.org")

    assert steps_of(fetching)[0]["source"] == {"type": "http", "configuration": {"method": "GET"}}
    assert outcome(flow, "a") == {"text": "a", "more": 1}
    with pytest.raises(Exception, match="the executor 'echo' runs only in a workflow"):
        echo(text="a")


def test_branches_read_the_result() -> None:
    def decide(written: str) -> list[Any]:
        return [when(op.length(written) < 4).halt({"short": written}), complete()]

    @workflow
    def flow(text: str) -> dict[str, Any]:
        shout.options(branch=decide)(text)
        return {}

    assert steps_of(flow)[0]["branch"][0] == {
        "condition": {"<": [{"list.length": {"var": "output.result"}}, 4]},
        "action": "halt",
        "result_expr": {"short": {"var": "output.result"}},
    }
    assert flow.run("a").outcome == {"short": "A!"}
    assert flow.run("abcd").outcome == {}


def test_all_keys_of_a_step_are_options() -> None:
    reshaped = shout.options(
        output={"n": 5},
        kv_add={"total": 1},
        concurrency={"key": "k", "limit": 1},
        tags=["a"],
        x={"owner": "me"},
    )

    @workflow(kv={"scopes": ["flow"]}, schedule={"cron": "0 6 * * *"}, x={"team": "shop"})
    def flow(text: str = "a") -> dict[str, Any]:
        result: Any = reshaped.options(filters={"expression": True}, join="done", priority=1)(text)
        return {"n": result.n}

    [written] = steps_of(flow)
    assert {
        "output",
        "kv_add",
        "concurrency",
        "tags",
        "x-owner",
        "filters",
        "join",
        "priority",
    } < written.keys()
    assert flow.to_dict()["outputs"] == {"n": {"var": "steps.shout.output.n"}}
    assert flow.to_dict()["schedule"] == {"cron": "0 6 * * *"}


def test_a_decorated_function_takes_every_key_that_the_builder_takes() -> None:
    assert (
        TaskKeys.__annotations__.keys() | {"branch", "compensate", "input"} == JobKeys.__annotations__.keys()
    )
    assert ChildKeys.__annotations__.keys() | {"branch", "compensate", "input", "output"} == (
        WorkKeys.__annotations__.keys()
    )


def test_literals_that_look_like_expressions_are_quoted() -> None:
    @step
    def store(data: dict[str, Any]) -> dict[str, Any]:
        return {"data": data}

    @workflow
    def flow() -> dict[str, Any]:
        return {"data": store({"var": "input.x"})["data"]}

    assert steps_of(flow)[0]["input"] == {"data": {"$literal": {"var": "input.x"}}}
    assert outcome(flow) == {"data": {"var": "input.x"}}


def test_a_workflow_is_read_once_and_only_when_it_is_needed() -> None:
    calls: list[int] = []

    @workflow
    def flow() -> None:
        calls.append(1)

    assert calls == []
    flow.load(), flow.to_yaml(), flow.options(id="a").to_dict()
    assert calls == [1]


def test_names_and_descriptions_come_from_the_function_or_the_decorator() -> None:
    def flow(a: int | None = None, *, b: list[str], c: Note) -> None:
        """What it does."""

    plain, named = workflow(flow), workflow(name="n", description="d")(flow)

    assert plain.to_dict() == {
        "name": "flow",
        "description": "What it does.",
        "inputs": {
            "a": {"default": None},
            "b": {"type": "array", "required": True},
            "c": {"type": "object", "required": True},
        },
        "steps": [],
    }
    assert (named.to_dict()["name"], named.to_dict()["description"]) == ("n", "d")


@pytest.mark.parametrize("client", ["plain", "async"])
def test_a_client_starts_and_registers_it(client: str) -> None:
    @workflow
    def flow(text: str, priority: int = 1) -> None: ...

    class Recorder:
        def start(self, workflow: Any, inputs: Any, **options: Any) -> Any:
            return self._give((workflow.spec.name, inputs, options))

        def register(self, name: str, spec: Any) -> Any:
            return self._give((name, spec["name"]))

        def _give(self, value: Any) -> Any:
            async def later() -> Any:
                return value

            return later() if client == "async" else value

    def get(found: Any) -> Any:
        if client == "plain":
            return found
        import asyncio

        return asyncio.run(found)

    started = flow.start(Recorder(), "a", priority=2, execution_id="e", labels={"a": "b"})
    registered: Callable[..., Any] = flow.register

    assert get(started) == (
        "flow",
        {"text": "a", "priority": 2},
        {"execution_id": "e", "labels": {"a": "b"}},
    )
    assert get(registered(Recorder())) == ("flow", "flow")
    with pytest.raises(Exception, match=r"flow\(\) has no argument 'txt'; did you mean 'text'\?"):
        flow.start(Recorder(), txt="a")
