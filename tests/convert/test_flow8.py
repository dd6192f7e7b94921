"""flow8's documents: flowlets, filters with their expressions, and Go's own ways to write values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.validation import load_spec
from orchestrator.convert import ConversionResult, convert
from orchestrator.convert.cel import CelTranslator, convert_expression
from orchestrator.convert.flow8_values import convert_duration
from orchestrator.convert.notes import CannotConvert


def converted(document: dict[str, Any]) -> ConversionResult:
    """The conversion of a document, without the outputs and the branches that every conversion has."""
    made = convert(json.dumps(document))
    assert load_spec(made.text).document == made.document
    steps = [{key: value for key, value in one.items() if key != "branch"} for one in made.document["steps"]]
    rest = {key: value for key, value in made.document.items() if key != "outputs"}
    return replace(made, document={**rest, "steps": steps})


def flowlet(**keys: Any) -> ConversionResult:
    """A flow of one flowlet of these keys."""
    return converted({"Flowlets": [{"Name": "a", "ModuleRef": "m", **keys}]})


def step(**keys: Any) -> dict[str, Any]:
    """Convert a flowlet with these keys, without notes, and return its step."""
    made = flowlet(**keys)
    assert made.notes == ()
    [found] = made.document["steps"]
    return {key: value for key, value in found.items() if key not in ("id", "fn")}


# ---- expressions

DATA = {
    "input": {
        "emails": ["a@x", "b@x"],
        "n": 5,
        "name": "Ada",
        "deep": {"list": [1, 2]},
        "flag": True,
        "ns": [1, 2, 3],
        "empty": [],
        "people": [{"name": "Ada", "age": 36, "tags": ["x"]}, {"name": "Bob", "age": 7, "tags": []}],
    },
    "kv": {
        "flow": {"status": "approved", "score": 0.95, "user": {"id": 7}, "a.b": 1},
        "global": {"request": "r-1", "user": {"id": 8}},
        "flow_group": {"total": 12},
        "user": {"id": 7},
    },
    "ctx": {"now": "2026-03-01T10:30:05.008Z"},
}

PAIRS: list[tuple[str, Any, Any]] = [
    ("len(input.emails) > 0", {">": [{"list.length": {"var": "input.emails"}}, 0]}, True),
    ("size(input.emails)", {"list.length": {"var": "input.emails"}}, 2),
    ("input.emails.size() == 2", {"===": [{"list.length": {"var": "input.emails"}}, 2]}, True),
    (
        "timestamp.now().hour >= 9 && timestamp.now().hour < 17",
        {"and": [{">=": [{"time.hour": []}, 9]}, {"<": [{"time.hour": []}, 17]}]},
        True,
    ),
    ("timestamp.now()", {"time.now": []}, "2026-03-01T10:30:05.008Z"),
    ("kv['status'] == 'approved'", {"==": [{"kv.get": "status"}, "approved"]}, True),
    ('kv["score"] > 0.9', {">": [{"kv.get": "score"}, 0.9]}, True),
    ("kv.score", {"kv.get": "score"}, 0.95),
    ('kv["global:request"]', {"kv.get": "global:request"}, "r-1"),
    ('kv["flow_group:total"] <= 12', {"<=": [{"kv.get": "flow_group:total"}, 12]}, True),
    ('kv["user"].id', {"var": "kv.user.id"}, 7),
    ('kv["global:user"].id', {"var": "kv.global.user.id"}, 8),
    ('kv["a.b"]', {"kv.get": "a.b"}, 1),
    ("has(input.name)", {"!==": [{"var": "input.name"}, None]}, True),
    ("has(input.missing)", {"!==": [{"var": "input.missing"}, None]}, False),
    ("!has(kv['missing'])", {"!": {"!==": [{"kv.get": "missing"}, None]}}, True),
    ("input.n == 5", {"===": [{"var": "input.n"}, 5]}, True),
    ("input.n != null", {"!==": [{"var": "input.n"}, None]}, True),
    ("input.flag == true", {"===": [{"var": "input.flag"}, True]}, True),
    ("input.n in [1, 5]", {"in": [{"var": "input.n"}, [1, 5]]}, True),
    ("input['name']", {"var": "input.name"}, "Ada"),
    ("input.deep.list[1]", {"var": "input.deep.list.1"}, 2),
    ("input.name.startsWith('A')", {"str.starts_with": [{"var": "input.name"}, "A"]}, True),
    ("input.name.endsWith('x')", {"str.ends_with": [{"var": "input.name"}, "x"]}, False),
    ("input.name.contains('d')", {"str.contains": [{"var": "input.name"}, "d"]}, True),
    ("input.name.matches('^A')", {"str.matches": [{"var": "input.name"}, "^A"]}, True),
    ("input.n > 3 ? 'big' : 'small'", {"if": [{">": [{"var": "input.n"}, 3]}, "big", "small"]}, "big"),
    ("(input.n + 1) * 2 - 3", None, 9),
    ("'Dear ' + input.name", {"cat": ["Dear ", {"var": "input.name"}]}, "Dear Ada"),
    ("-input.n < 0", {"<": [{"-": {"var": "input.n"}}, 0]}, True),
    ("!input.flag || input.n % 2 == 1", None, True),
    ("input.n == 5 || input.x && input.y", None, True),
    # macros
    ("input.ns.exists(n, n > 2)", {"some": [{"var": "input.ns"}, {">": [{"var": ""}, 2]}]}, True),
    ("input.ns.exists(n, n > 9)", None, False),
    ("input.none.exists(n, n > 9)", None, False),
    ("input.empty.exists(n, true)", None, False),
    (
        "input.ns.all(n, n > 2)",
        {
            "and": [
                {"!==": [{"var": "input.ns"}, None]},
                {"none": [{"var": "input.ns"}, {"!": {">": [{"var": ""}, 2]}}]},
            ]
        },
        False,
    ),
    ("input.ns.all(n, n > 0)", None, True),
    ("input.empty.all(n, n > 0)", None, True),
    ("input.none.all(n, n > 0)", None, False),
    ("input.ns.exists_one(n, n == 3)", None, True),
    ("input.ns.exists_one(n, n > 1)", None, False),
    ("input.ns.map(n, n * 2)", {"map": [{"var": "input.ns"}, {"*": [{"var": ""}, 2]}]}, [2, 4, 6]),
    ("input.ns.map(n, n > 1, n * 2)", None, [4, 6]),
    ("input.ns.filter(n, n != 2)", None, [1, 3]),
    ("input.people.filter(p, p.age >= 18).map(p, p.name)", None, ["Ada"]),
    ("size(input.people.filter(p, has(p.age)))", None, 2),
    ("input.people.exists(p, p.tags.exists(t, t == 'x'))", None, True),
    ("input.people.exists(p, p.age > kv['score'])", None, True),
    ("input.people.exists(p, p.age == kv['user'].id)", None, True),
    # conversions
    ("int('12') == 12", None, True),
    ("int(3.7)", None, 3),
    ("int(-3.7)", None, -3),
    ("int(-3)", None, -3),
    ("int(input.n) + 1", None, 6),
    ("double('1.5')", {"+": "1.5"}, 1.5),
    ("string(input.n) + string(input.flag)", None, "5true"),
    ("string(input.name)", None, "Ada"),
    ("string(1.5) == '1.5'", None, True),
    # the time
    ("timestamp.now().getHours()", {"time.hour": []}, 10),
    ("timestamp.now().getMinutes()", None, 30),
    ("timestamp.now().getSeconds()", None, 5),
    ("timestamp.now().getMilliseconds()", None, 8),
    ("timestamp.now().getFullYear()", None, 2026),
    ("timestamp.now().getMonth()", None, 2),
    ("timestamp.now().getDate()", None, 1),
    ("timestamp.now().getDayOfMonth()", None, 0),
    ("timestamp.now().getDayOfWeek()", None, 0),
    ("timestamp.now().minute", None, 30),
    ("timestamp.now().second", None, 5),
    ("timestamp.now().year", None, 2026),
    ("timestamp.now().month", None, 3),
    ("timestamp.now().day", None, 1),
    ("timestamp.now().weekday", None, 0),
]


@pytest.mark.parametrize(("text", "expected", "value"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_an_expression_becomes_one_of_the_same_value(text: str, expected: Any, value: Any) -> None:
    rule = convert_expression(text, CelTranslator())

    assert expected is None or rule == expected
    assert evaluate(rule, DATA) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the expression is empty"),
        ("input.n >", "expected a value, found the end"),
        ("input.n = 5", "expected the end, found ="),
        ("output.x == 1", "the variable output does not exist here"),
        ("kv == 1", "the variable kv does not exist here"),
        ("kv[0] == 1", "the variable kv does not exist here"),
        ("timestamp.now().nanosecond == 1", "a string has no 'nanosecond'"),
        ("timestamp.now().getHours('Europe/Berlin')", "a time zone has no equivalent"),
        ("timestamp.now().getDayOfYear()", "this function call has no equivalent"),
        ("timestamp('2026-01-01T00:00:00Z')", "no equivalent: compute it in an executor"),
        ("unknown(input.n)", "this function call has no equivalent"),
        ("input.list.exists(x, x > input.n)", "input cannot be read inside of a macro here, only x and kv"),
        ("input.list.exists(x, x.l.exists(y, y > x.n))", "x cannot be read inside of a macro here, only y"),
        ("input.list.exists(x)", "exists takes a variable and an expression"),
        ("input.list.all(x, x, x)", "all takes a variable and an expression"),
        ("input.list.exists(1, true)", "this function call has no equivalent"),
        ("input.name.lower()", "this function call has no equivalent"),
        ("len(a=1)", "expected ,, found ="),
        ("input.n > 3 ? 1", "expected :, found the end"),
        ("input.emails | length", "expected the end, found |"),
        ("'a' * 3", "* of a string has no equivalent"),
        ("kv['a.b'].y[3]", "[3] of a computed value"),
    ],
)
def test_an_expression_without_an_equivalent_is_rejected(text: str, reason: str) -> None:
    with pytest.raises(CannotConvert) as error:
        convert_expression(text, CelTranslator())

    assert reason in str(error.value)


# ---- Go


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ("5m0s", "5m"),
        ("1m30s", "90s"),
        ("1h0m0s", "1h"),
        ("1.5s", "1500ms"),
        ("250ms", "250ms"),
        ("1us", "1ms"),
        ("0s", None),
        ("0", None),
        (0, None),
        (300_000_000_000, "5m"),
        (300_000_000_000.0, "5m"),
        (1_500_000, "2ms"),
        ("36h", "36h"),
    ],
)
def test_a_duration_of_go_becomes_one_of_ours(written: Any, ours: str | None) -> None:
    assert convert_duration(written) == ours


@pytest.mark.parametrize("written", ["soon", "5", -1, True, [1], "1.s", "9" * 200 + "s"])
def test_what_is_not_a_duration_is_rejected(written: Any) -> None:
    with pytest.raises(CannotConvert):
        convert_duration(written)


# ---- flowlets


def test_a_flow_becomes_steps() -> None:
    made = converted(
        {
            "ID": {"$oid": "64f0"},
            "Name": "ProcessInvoice",
            "CompanyID": "c1",
            "Metadata": {"team": "billing"},
            "CreatedAt": "2026-01-01T00:00:00Z",
            "Flowlets": [
                {"FlowletID": "f1", "FlowID": "64f0", "Name": "download", "ModuleRef": "http-request"},
                {"FlowletID": "f2", "Name": "Read it", "ModuleRef": "ocr", "DependsOn": ["f1"]},
                {"ID": {"$oid": "f3"}, "ModuleRef": "store", "DependsOn": [{"$oid": "f2"}, "download"]},
            ],
        }
    )

    assert made.notes == ()
    assert made.document == {
        "name": "ProcessInvoice",
        "x-metadata": {"team": "billing"},
        "kv": {"scopes": ["flow", "global", "flow_group"]},
        "steps": [
            {"id": "download", "fn": "http-request"},
            {"id": "Read_it", "name": "Read it", "fn": "ocr", "depends_on": ["download"]},
            {"id": "f3", "fn": "store", "depends_on": ["Read_it", "download"]},
        ],
    }


@pytest.mark.parametrize(
    "keys",
    [
        ["FlowletID", "Name", "ModuleRef", "DependsOn", "InputMapping", "DeferAfterMs", "SkipOutputMapping"],
        ["flowletId", "name", "moduleRef", "dependsOn", "inputMapping", "deferAfterMs", "skipOutputMapping"],
        [
            "flowlet_id",
            "name",
            "module_ref",
            "depends_on",
            "input_mapping",
            "defer_after_ms",
            "skip_output_mapping",
        ],
    ],
)
@pytest.mark.parametrize("flowlets", ["Flowlets", "flowlets", "Layers", "PlayLayers", "play_layers"])
def test_keys_may_be_spelled_in_any_way(keys: list[str], flowlets: str) -> None:
    values = ["f1", "a", "m", [], {"x": 1}, 500, True]

    made = converted({flowlets: [dict(zip(keys, values, strict=True))]})

    assert made.notes == ()
    assert made.document["steps"] == [
        {"id": "a", "fn": "m", "input": {"x": 1}, "defer_ms": 500, "skip_output_mapping": True}
    ]


@pytest.mark.parametrize("wrapper", ["Flow", "flow", "Play"])
def test_a_flow_may_be_wrapped(wrapper: str) -> None:
    made = converted({wrapper: {"Name": "w", "Flowlets": [{"Name": "a", "ModuleRef": "m"}]}})

    assert (made.document["name"], made.document["steps"]) == ("w", [{"id": "a", "fn": "m"}])


def test_layers_may_hold_flowlets() -> None:
    made = converted(
        {
            "Flow": {
                "Layers": [
                    {"Flowlets": [{"Name": "a", "ModuleRef": "m"}]},
                    {"Flowlets": [{"Name": "b", "ModuleRef": "m", "DependsOn": ["a"], "Colour": 1}]},
                ]
            }
        }
    )

    assert [found["id"] for found in made.document["steps"]] == ["a", "b"]
    assert [note.path for note in made.notes] == ["Flow.Layers[1].Flowlets[0].Colour"]


def test_a_record_of_a_play_gives_its_steps_without_its_history() -> None:
    made = converted(
        {
            "FlowID": "f",
            "Status": "DONE",
            "StartedAt": "x",
            "PlayLayers": [
                {
                    "FlowletID": "f1",
                    "FlowletName": "a",
                    "ModuleRef": "m",
                    "Status": "DONE",
                    "Input": {"url": "https://example.org"},
                    "Output": {"x": 1},
                    "RetryCount": 2,
                    "Logs": ["l"],
                    "KVUpdates": {"x": 1},
                }
            ],
        }
    )

    assert made.notes == ()
    assert made.document["steps"] == [{"id": "a", "fn": "m", "input": {"url": "https://example.org"}}]


def test_the_same_name_twice_gives_two_ids() -> None:
    made = converted(
        {
            "Flowlets": [
                {"FlowletID": "f1", "Name": "a", "ModuleRef": "m"},
                {"FlowletID": "f2", "Name": "a", "ModuleRef": "m", "DependsOn": ["f1"]},
                {"ModuleRef": "m", "DependsOn": ["f2"]},
            ]
        }
    )

    assert [(s["id"], s.get("depends_on")) for s in made.document["steps"]] == [
        ("a", None),
        ("a_2", ["a"]),
        ("step", ["a_2"]),
    ]


def test_an_order_is_kept_and_is_not_a_dependency() -> None:
    made = converted(
        {"Flowlets": [{"Name": name, "ModuleRef": "m", "Order": n} for name, n in (("b", 2), ("a", 1))]}
    )

    assert made.document["steps"] == [{"id": "a", "fn": "m"}, {"id": "b", "fn": "m"}]
    [note] = made.notes
    assert (note.path, note.kind) == ("Flowlets", "changed")
    assert "Order is not a dependency" in note.message


def test_retries_timeouts_and_policies_are_converted() -> None:
    policy = {
        "MaxRetries": 3,
        "InitialDelayMs": 1000.0,
        "MaxDelayMs": 30000,
        "BackoffMultiplier": 2.0,
        "JitterFraction": 0.1,
    }

    assert step(
        Timeout="1m30s", Retry=policy, OnError="Continue", DeferAfterMs=500.0, SkipOutputMapping=True
    ) == {
        "timeout": "90s",
        "retry": {
            "max_retries": 3,
            "initial_delay_ms": 1000,
            "max_delay_ms": 30000,
            "backoff_multiplier": 2.0,
            "jitter_fraction": 0.1,
        },
        "on_error": "continue",
        "defer_ms": 500,
        "skip_output_mapping": True,
    }


def test_what_go_leaves_at_zero_is_left_out() -> None:
    retry = {
        "MaxRetries": 0,
        "InitialDelayMs": 0,
        "MaxDelayMs": 0,
        "BackoffMultiplier": 0,
        "JitterFraction": 0,
    }

    assert (
        step(
            Timeout=0,
            Retry=retry,
            OnError="",
            DeferAfterMs=0,
            SkipOutputMapping=False,
            Filters=None,
            DependsOn=None,
            ComponentConfigIds={},
        )
        == {}
    )
    assert step(Retry={"MaxRetries": 2, "MaxDelayMs": 0}) == {"retry": {"max_retries": 2}}
    assert step(Retry=3) == {"retry": 3}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"Timeout": "soon"},
            'Timeout: is not a duration: write nanoseconds, or a text such as "5m0s"; the default',
        ),
        ({"OnError": "ignore"}, "OnError: is not continue, fail or skip; fail is used"),
        ({"ComponentConfigIds": {"ai": "x"}}, "ComponentConfigIds: components have no equivalent"),
        ({"Retry": {"MaxRetries": 1, "Forever": True}}, "Retry.Forever: has no equivalent; left out"),
        ({"Colour": "red"}, "Colour: has no equivalent; left out"),
        (
            {"Filters": {"Operator": "XOR", "Filters": []}},
            "Filters.Operator: is neither AND nor OR; AND is used",
        ),
        ({"Filters": {"Mode": "x", "Filters": []}}, "Filters.Mode: has no equivalent; left out"),
        ({"Filters": [{"Expression": "true", "Mode": 1}]}, "Filters[0].Mode: has no equivalent; left out"),
        ({"InputMapping": {"x": "kv['a'"}}, "InputMapping.x: this looks like an expression"),
        ({"InputMapping": {"x": "{{ .Input.x }}"}}, "InputMapping.x: this looks like an expression"),
    ],
)
def test_what_has_no_equivalent_gets_a_note(keys: dict[str, Any], expected: str) -> None:
    made = flowlet(**keys)

    [note] = made.notes
    assert str(note).startswith(f"Flowlets[0].{expected}")
    assert note.kind == "lost"


def test_a_timeout_that_looks_like_milliseconds_gets_a_note() -> None:
    made = flowlet(Timeout=30_000)

    [note] = made.notes
    assert (str(note), note.kind) == (
        "Flowlets[0].Timeout: a plain number means nanoseconds: this one is 1ms",
        "changed",
    )
    assert flowlet(Timeout="30ms").notes == flowlet(Timeout=15 * 10**8).notes == ()


def test_what_belongs_to_a_play_gets_a_note() -> None:
    made = converted(
        {
            "Flowlets": [],
            "WebhookURL": "https://example.org/hook",
            "IdempotencyRoot": "order-1",
            "FlowGroupID": "g1",
            "GlobalKV": {"x": 1},
            "Colour": "red",
        }
    )

    assert made.document["webhook"] == {"url": "https://example.org/hook"}
    assert [str(note) for note in made.notes] == [
        "IdempotencyRoot: pass this as idempotency_root when you start an execution; left out",
        "FlowGroupID: pass this as group when you start an execution; left out",
        "Colour: has no equivalent; left out",
    ]


def test_flowlets_that_are_not_a_list_get_a_note() -> None:
    made = convert("Flowlets: 5")

    assert [note.path for note in made.notes] == ["Flowlets"]


def test_a_step_that_is_not_a_mapping_gets_a_note_from_the_check() -> None:
    made = convert("Flowlets: [text]")

    assert [note.path for note in made.notes] == ["steps[0]"]


# ---- inputs


def test_inputs_are_data_with_expressions() -> None:
    given = {
        "file": 'kv["file_path"]',
        "url": "input.url",
        "text": "Dear {{ input.name }}, {{ kv['count'] + 1 }} more",
        "plain": "the kvass is in put",
        "number": 5,
        "deep": {"list": ["input.x", 1]},
        "rule": {"in": [1]},
    }

    assert step(InputMapping=given)["input"] == {
        "file": {"kv.get": "file_path"},
        "url": {"var": "input.url"},
        "text": {"cat": ["Dear ", {"var": "input.name"}, ", ", {"+": [{"kv.get": "count"}, 1]}, " more"]},
        "plain": "the kvass is in put",
        "number": 5,
        "deep": {"list": [{"var": "input.x"}, 1]},
        "rule": {"$literal": {"in": [1]}},
    }


def test_an_input_that_cannot_be_converted_stays_plain_text() -> None:
    made = flowlet(InputMapping={"x": "input.a.shout()"})

    assert made.document["steps"][0]["input"] == {"x": {"$literal": "input.a.shout()"}}


# ---- filters


def test_filters_keep_their_groups() -> None:
    group = {
        "Operator": "or",
        "Filters": [
            {"Expression": "len(input.emails) > 0", "Value": None},
            {"expression": "kv['mode']", "value": "fast"},
            {"operator": "AND", "filters": [{"expression": "true"}]},
        ],
    }

    assert step(Filters=group)["filters"] == {
        "operator": "OR",
        "filters": [
            {"expression": {">": [{"list.length": {"var": "input.emails"}}, 0]}},
            {"expression": {"kv.get": "mode"}, "value": "fast"},
            {"operator": "AND", "filters": [{"expression": True}]},
        ],
    }


def test_a_list_of_filters_must_all_hold() -> None:
    assert step(Filters=["input.n > 1"])["filters"] == {
        "operator": "AND",
        "filters": [{"expression": {">": [{"var": "input.n"}, 1]}}],
    }


@pytest.mark.parametrize("expression", ["shout(input.n)", "'always'", "", None, 5])
def test_a_filter_that_cannot_be_converted_holds_the_step_back(expression: Any) -> None:
    made = flowlet(Filters={"Filters": [{"Expression": expression}]})

    [filters] = made.document["steps"][0]["filters"]["filters"]
    assert filters == {"expression": False, "x-expression": expression}
    [note] = made.notes
    assert note.path.startswith("Flowlets[0].Filters.Filters[0]")
    assert (note.kind, "replaced with false: the step does not run" in note.instead) == ("lost", True)


def test_the_input_in_a_filter_means_the_step_before_the_play() -> None:
    made = flowlet(
        InputMapping={"mails": "kv['mails']", "n": "input.n"},
        Filters=["len(input.mails) > 0 && input.n > 1 && input.other == 'x'"],
    )

    [found] = made.document["steps"][0]["filters"]["filters"]
    assert found["expression"] == {
        "and": [
            {">": [{"list.length": {"kv.get": "mails"}}, 0]},
            {">": [{"var": "input.n"}, 1]},
            {"==": [{"var": "input.other"}, "x"]},
        ]
    }
    [note] = made.notes
    assert (note.kind, "input.mails is read from" in note.message) == ("changed", True)


def test_the_hour_of_the_day_gets_a_note_about_utc() -> None:
    made = flowlet(Filters=["timestamp.now().hour >= 9"])

    [note] = made.notes
    assert (note.kind, note.message) == ("changed", "the hour is in UTC here")


# ---- results of modules, and what a play ends with

FLOW: dict[str, Any] = {
    "Flowlets": [
        {"Name": "get", "ModuleRef": "get", "Retry": {"MaxRetries": 2, "InitialDelayMs": 0}},
        {
            "Name": "read it",
            "ModuleRef": "read",
            "DependsOn": ["get"],
            "OnError": "continue",
            "InputMapping": {"file": "kv['file_path']", "request": "kv['global:request_id']"},
        },
    ]
}


def play(*results: Any, flow: dict[str, Any] = FLOW, **inputs: Any) -> tuple[Workflow, list[dict[str, Any]]]:
    """Run a converted flow whose modules return these results; return it, and what they were called with."""
    left, calls = list(results), []

    def execute(fn: str, inputs: dict[str, Any]) -> Any:
        calls.append(inputs)
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    workflow = Workflow.from_yaml(convert(json.dumps(flow)).text, Backend(executor=execute), inputs=inputs)
    workflow.run()
    return workflow, calls


def record_of(workflow: Workflow) -> WorkflowRecord:
    return workflow.backend.load(workflow.id)


def done(**output: Any) -> dict[str, Any]:
    return {"State": "DONE", "Output": output}


def test_the_output_of_a_module_goes_to_the_store() -> None:
    workflow, calls = play(done(file_path="/tmp/x"), done(text="Hi", **{"global:seen": True}))

    assert calls[1]["file"] == "/tmp/x"
    assert workflow.outcome == {
        "layers": {"get": {"file_path": "/tmp/x"}, "read it": {"text": "Hi", "global:seen": True}},
        "kv": {"file_path": "/tmp/x", "text": "Hi"},
        "global": {"request_id": None, "seen": True},
    }


def test_a_module_may_return_its_output_alone() -> None:
    workflow, calls = play({"file_path": "/tmp/x"}, {"text": "Hi"})

    assert calls[1]["file"] == "/tmp/x"
    assert workflow.outcome["layers"] == {"get": {"file_path": "/tmp/x"}, "read it": {"text": "Hi"}}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("no such file", "no such file"),
        ({"error": "no such file"}, '{"error": "no such file"}'),
        (None, "a branch rejected the result"),
    ],
)
def test_a_module_that_reports_a_failure_fails(output: Any, message: str) -> None:
    workflow, _ = play(done(), {"State": "FAIL", "Output": output})

    record = record_of(workflow).steps["read_it"]
    assert record.status.value == "failed"
    assert record.error == {"kind": "rejected", "message": message}


def test_a_module_that_reports_a_failure_is_retried() -> None:
    failed = {"State": "FAIL", "Output": "busy"}

    workflow, calls = play(failed, failed, done(file_path="x"), done())

    assert len(calls) == 4
    assert workflow.status.value == "complete"


def test_a_module_that_raises_keeps_its_error() -> None:
    workflow, _ = play(done(), ValueError("broken"))

    assert (record_of(workflow).steps["read_it"].error or {})["type"] == "ValueError"


def test_global_values_are_given_at_the_start() -> None:
    _, calls = play(done(), done(), **{"global": {"request_id": "r-1"}})

    assert calls[1]["request"] == "r-1"


@pytest.mark.parametrize(("given", "value"), [({}, "r-0"), ({"global": {"request_id": "r-1"}}, "r-1")])
def test_the_global_values_of_a_play_are_defaults(given: dict[str, Any], value: str) -> None:
    flow = {**FLOW, "GlobalKV": {"request_id": "r-0", "limits": {"rows": 10}, "var": {"var": "x"}}}

    workflow, calls = play(done(), done(), flow=flow, **given)

    assert calls[1]["request"] == value
    assert workflow.outcome["global"] == {"request_id": value, "limits": {"rows": 10}, "var": {"var": "x"}}


def test_a_global_value_that_a_path_reads_is_given_at_the_start_too() -> None:
    flowlet = {"Name": "a", "ModuleRef": "m", "InputMapping": {"x": "kv['global:user'].id"}}

    _, calls = play(done(), flow={"Flowlets": [flowlet]}, **{"global": {"user": {"id": 7}}})

    assert calls == [{"x": 7}]


def test_the_step_of_global_values_has_an_id_of_its_own() -> None:
    flow = {"GlobalKV": {"x": 1}, "Flowlets": [{"Name": "global_values", "ModuleRef": "m"}]}

    made = convert(json.dumps(flow))

    assert [one["id"] for one in made.document["steps"]] == ["global_values_2", "global_values"]
    assert made.document["steps"][1]["depends_on"] == ["global_values_2"]


def test_a_single_layer_with_the_name_of_an_operator_is_renamed_with_a_note() -> None:
    made = convert(json.dumps({"Flowlets": [{"Name": "map", "ModuleRef": "m"}]}))

    assert made.document["outputs"]["layers"] == {"map_": {"var": "steps.map.output"}}
    assert [note.kind for note in made.notes] == ["changed"]


@pytest.mark.parametrize(
    ("expression", "value", "rule"),
    [
        ("{{ kv['status'] }}", "approved", {"kv.get": "status"}),
        ("{{ input.n > 3 }}", None, {">": [{"var": "input.n"}, 3]}),
        ("{{ input.a }}-{{ input.b }}", "x-y", {"cat": [{"var": "input.a"}, "-", {"var": "input.b"}]}),
    ],
)
def test_a_template_in_a_filter_is_an_expression(expression: str, value: Any, rule: Any) -> None:
    written = {"Expression": expression, **({} if value is None else {"Value": value})}

    [found] = step(Filters={"Filters": [written]})["filters"]["filters"]

    assert found == {"expression": rule, **({} if value is None else {"value": value})}


@pytest.mark.parametrize(
    "expression", ["{{ }}", "{% if input.a %}x{% endif %}", "{{ input.a", "plain text", "{{ 'text' }}"]
)
def test_a_template_that_is_no_condition_is_rejected(expression: str) -> None:
    made = flowlet(Filters=[expression])

    assert [note.kind for note in made.notes] == ["lost"]
    assert made.document["steps"][0]["filters"]["filters"][0]["expression"] is False


def test_parts_of_the_time_get_a_note_on_what_they_mean() -> None:
    made = flowlet(Filters=["timestamp.now().getDayOfWeek() != 0 && timestamp.now().hour > 8"])

    assert [note.message for note in made.notes] == [
        "the weekday is in UTC here, and Sunday is 0",
        "the hour is in UTC here",
    ]


def test_braces_in_a_text_of_an_expression_are_quoted() -> None:
    assert step(InputMapping={"x": "{{ '{{' }}"})["input"] == {"x": {"$literal": "{{"}}
