"""flowtoy's documents: what becomes of each part, and that the result runs."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Backend, Complete, Workflow
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.validation import load_spec
from orchestrator.convert import ConversionResult, convert
from orchestrator.convert.wrapped_results import flowtoy_branches


def converted(text: str) -> ConversionResult:
    """The conversion of a document, without the branches that only reject failures of providers."""
    made = convert(text)
    assert load_spec(made.text).document == made.document
    for one in made.document["steps"]:
        if one.get("branch") == flowtoy_branches({}, {}):
            del one["branch"]
    return made


def step(text: str, n: int = -1) -> dict[str, Any]:
    """Convert a flow without notes and return its last step."""
    made = converted(text)
    assert made.notes == ()
    found: dict[str, Any] = made.document["steps"][n]
    return found


def lines(made: ConversionResult) -> list[str]:
    return [f"{note.kind} {note}" for note in made.notes]


# ---- steps


def test_a_flow_becomes_steps_under_the_same_names() -> None:
    made = converted("""
flow:
  - {name: users, source: {type: slack}}
  - {name: orders, source: {type: slack}, depends_on: [users], on_error: Continue}
runner: {max_workers: 4, on_error: SKIP}
name: reports
description: daily
x-owner: ada
""")

    assert made.notes == ()
    assert made.document == {
        "steps": [
            {"id": "users", "source": {"type": "slack"}},
            {"id": "orders", "source": {"type": "slack"}, "depends_on": ["users"], "on_error": "continue"},
        ],
        "runner": {"max_workers": 4, "on_error": "skip"},
        "name": "reports",
        "description": "daily",
        "x-owner": "ada",
    }


def test_a_name_that_is_not_an_id_is_kept_and_every_reference_follows() -> None:
    made = converted("""
flow:
  - {name: fetch users!, source: {type: slack}}
  - {name: fetch_users, source: {type: slack}}
  - name: use
    source: {type: slack}
    depends_on: ["fetch users!"]
    input: {a: "{{ flows['fetch users!'].x }}", b: "{{ flows.fetch_users.x }}"}
""")

    first, second, third = made.document["steps"]
    assert (first["id"], first["name"], second["id"]) == ("fetch_users", "fetch users!", "fetch_users_2")
    assert third["depends_on"] == ["fetch_users"]
    assert third["input"] == {
        "a": {"var": "steps.fetch_users.output.x"},
        "b": {"var": "steps.fetch_users_2.output.x"},
    }
    assert [note.path for note in made.notes] == ["flow[0].name", "flow[1].name"]
    assert made.is_complete


def test_keys_of_our_own_language_pass() -> None:
    found = step("""
flow: [{name: a, source: {type: slack}, timeout: 30s, retry: 2, description: text, x-note: 1}]
""")

    assert found == {
        "id": "a",
        "source": {"type": "slack"},
        "timeout": "30s",
        "retry": 2,
        "description": "text",
        "x-note": 1,
    }


@pytest.mark.parametrize(
    ("flow", "steps", "expected"),
    [
        ("[{source: {type: a}}]", [], "lost flow[0]: flowtoy does not run a step without a name; left out"),
        ("[text]", [], "lost flow[0]: flowtoy does not run a step without a name; left out"),
        (
            "[{name: a, source: {type: x}}, {name: a, source: {type: y}}]",
            [{"id": "a", "source": {"type": "y"}}],
            "lost flow[0]: flowtoy runs only the last step with the name 'a'; left out",
        ),
        (
            "[{name: a, source: {type: x}, colour: red}]",
            [{"id": "a", "source": {"type": "x"}}],
            "lost flow[0].colour: flowtoy ignores this key; left out",
        ),
        (
            "[{name: a, source: {type: x}, depends_on: b}]",
            [{"id": "a", "source": {"type": "x"}}],
            "lost flow[0].depends_on: flowtoy ignores this key; left out",
        ),
        (
            "[{name: a, source: {type: x}, on_error: ignore}]",
            [{"id": "a", "source": {"type": "x"}, "on_error": "fail"}],
            "lost flow[0].on_error: is not fail, skip or continue, so flowtoy uses fail; fail is used",
        ),
        (
            "[{name: a, id: b, source: {type: x}}]",
            [{"id": "a", "source": {"type": "x"}}],
            "lost flow[0].id: flowtoy ignores this key; left out",
        ),
    ],
)
def test_what_flowtoy_ignores_gets_a_note(flow: str, steps: list[Any], expected: str) -> None:
    made = converted(f"flow: {flow}")

    assert made.document == {"steps": steps}
    assert lines(made) == [expected]


def test_unknown_settings_get_notes() -> None:
    made = converted("flow: []\nrunner: {threads: 3}\ncolour: red\nsteps: []")

    assert made.document == {"steps": [], "runner": {}}
    assert [note.path for note in made.notes] == ["runner.threads", "colour", "steps"]
    assert not made.is_complete


def test_a_flow_that_is_not_a_list_gets_a_note() -> None:
    made = convert("flow: 5", "flowtoy")

    assert [note.path for note in made.notes] == ["flow"]
    assert made.document == {"steps": []}


# ---- sources


def test_sources_keep_their_shape_and_rest_is_called_http() -> None:
    made = converted("""
sources:
  secrets: {type: env, configuration: {vars: [KEY, BASE]}}
  api:
    type: rest
    configuration:
      url: "{{ sources.secrets.BASE }}/users"
      headers: {Authorization: "Bearer {{ sources.secrets.KEY }}", Accept: text}
      tries: [1, "{{ sources.secrets.KEY }}"]
flow:
  - {name: by_name, source: api}
  - {name: by_type, source: process}
  - {name: inline, source: {type: rest, configuration: {url: "{{ sources.secrets.BASE }}"}}}
  - {name: seed_style, source: {base: api, override: {url: "https://example.org"}}}
  - {name: bare_base, source: {base: api}}
""")

    base, key = {"var": "sources.secrets.BASE"}, {"var": "sources.secrets.KEY"}
    assert made.notes == ()
    assert made.document["sources"] == {
        "secrets": {"type": "env", "configuration": {"vars": ["KEY", "BASE"]}},
        "api": {
            "type": "http",
            "configuration": {
                "url": {"cat": [base, "/users"]},
                "headers": {"Authorization": {"cat": ["Bearer ", key]}, "Accept": "text"},
                "tries": [1, key],
                "returns": "body",
            },
        },
    }
    assert [found["source"] for found in made.document["steps"]] == [
        "api",
        {"type": "process"},
        {"type": "http", "configuration": {"url": base, "returns": "body"}},
        {"base": "api", "override": {"url": "https://example.org"}},
        {"base": "api"},
    ]


def test_a_step_may_have_the_name_of_its_source() -> None:
    assert step("sources: {api: {type: x}}\nflow: [{name: api, source: api, description: api, id: api}]") == {
        "id": "api",
        "source": "api",
        "description": "api",
    }


def test_a_base_that_is_not_a_name_is_left_to_the_check() -> None:
    made = convert("flow: [{name: a, source: {base: [b], override: {configuration: {x: 1}}}}]")

    assert [note.path for note in made.notes] == ["steps[0].source.base"]


def test_an_override_that_flowtoy_does_not_merge_gets_a_note() -> None:
    made = converted("""
sources: {api: {type: rest, configuration: {url: a, headers: {x: y}}}}
flow: [{name: a, source: {base: api, override: {configuration: {url: b}}}}]
""")

    assert lines(made) == [
        "changed flow[0].source.override: flowtoy replaces the whole configuration of the base; "
        "here the two are merged; kept from the base: headers"
    ]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ flows.a.x }}", "a configuration cannot read the outputs of steps"),
        ("{{ sources.api.url }}", "only sources of type env can be read here"),
        ("{{ sources[0] }}", "only sources of type env can be read here"),
        ("{{ sources }}", "only sources of type env can be read here"),
        ("{{ json.url }}", "the variable json does not exist here"),
    ],
)
def test_a_configuration_reads_only_the_environment(template: str, reason: str) -> None:
    made = converted(f"""
sources: {{api: {{type: rest, configuration: {{url: "{template}"}}}}}}
flow: [{{name: a, source: api}}]
""")

    [note] = made.notes
    assert (note.path, note.kind) == ("sources.api.configuration.url", "lost")
    assert reason in note.message
    assert made.document["sources"]["api"]["configuration"]["url"] == {"$literal": template}


def test_a_source_of_another_file_is_assumed_to_be_the_environment() -> None:
    made = converted("flow: [{name: a, source: {type: x, configuration: {key: '{{ sources.auth.KEY }}'}}}]")

    assert made.document["steps"][0]["source"]["configuration"] == {"key": {"var": "sources.auth.KEY"}}
    assert made.document["sources"] == {"auth": {"type": "env", "configuration": {"vars": ["KEY"]}}}
    assert lines(made) == [
        "changed sources.auth: is not defined in this document, and is assumed to be a source of type env"
    ]


# ---- inputs


def test_a_mapping_is_converted_value_by_value_and_data_stays_data() -> None:
    found = step("""
flow:
  - {name: a, source: {type: slack}}
  - name: b
    source: {type: slack}
    input:
      text: "Hi {{ flows.a.name }}"
      deep: {list: [1, "{{ flows.a.n }}", plain]}
      max: 3
      rule: {in: [1, 2]}
      quoted: {$literal: 1}
      flag: true
""")

    assert found["input"] == {
        "text": {"cat": ["Hi ", {"var": "steps.a.output.name"}]},
        "deep": {"list": [1, {"var": "steps.a.output.n"}, "plain"]},
        "max": 3,
        "rule": {"$literal": {"in": [1, 2]}},
        "quoted": {"$literal": {"$literal": 1}},
        "flag": True,
    }


@pytest.mark.parametrize(
    "given",
    [
        '"{{ flows.a.x }}"',
        '{template: "{{ flows.a.x }}"}',
        '{type: body, template: "{{ flows.a.x }}"}',
        '{type: parameter, value: "{{ flows.a.x }}"}',
    ],
)
def test_a_single_value_for_a_provider_is_the_payload(given: str) -> None:
    made = converted(f"""
flow:
  - {{name: a, source: {{type: slack}}}}
  - {{name: b, source: {{type: slack}}, input: {given}}}
  - {{name: c, source: {{type: slack}}, input: 5}}
""")

    _, second, third = made.document["steps"]
    assert second["input"] == {"payload": {"var": "steps.a.output.x"}}
    assert third["input"] == {"payload": 5}
    [note] = made.notes  # only once
    assert (note.path.startswith("flow[1].input"), note.kind) == (True, "changed")


def test_a_mapping_with_a_value_alone_is_a_mapping() -> None:
    assert step("flow: [{name: a, source: {type: slack}, input: {value: x}}]")["input"] == {"value": "x"}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% set x = flows.a.l %}{{ x }}", "{% set %} has no equivalent"),
        ("{{ sources.env.KEY }}", "an input cannot read sources here"),
        ("{{ steps.a.x }}", "the variable steps does not exist here"),
        ("{{ flows[0] }}", "the variable flows does not exist here"),
        ("{{ flows.a.x | nonsense }}", "the filter nonsense has no equivalent"),
    ],
)
def test_what_cannot_be_converted_stays_plain_text(template: str, reason: str) -> None:
    made = converted(f"""
flow:
  - {{name: a, source: {{type: slack}}}}
  - {{name: b, source: {{type: slack}}, input: {{text: "{template}"}}}}
""")

    assert made.document["steps"][1]["input"] == {"text": {"$literal": template}}
    [note] = made.notes
    assert (note.path, note.instead, note.kind) == ("flow[1].input.text", "kept as plain text", "lost")
    assert reason in note.message


def test_a_step_still_waits_for_what_a_template_names_that_was_not_converted() -> None:
    made = converted("""
flow:
  - {name: a, source: {type: slack}}
  - {name: b, source: {type: slack}}
  - {name: c, source: {type: slack}}
  - name: d
    source: {type: slack}
    depends_on: [c]
    input:
      known: "{{ flows.a.x }}"
      left: "{% for x in flows.a.l %}{{ flows.b.y + flows.c.z + flows.d.z + flows.e.z }}{% endfor %}"
      plain: flows.b.x
""")

    assert made.document["steps"][3]["depends_on"] == ["c", "b"]
    assert list(made.document["steps"][3]["input"]) == ["known", "left", "plain"]


def test_all_flows_at_once_can_be_read() -> None:
    found = step('flow: [{name: a, source: {type: slack}, input: {n: "{{ flows | length }}"}, on_error: ""}]')

    assert found["input"] == {"n": {"list.length": {"var": "flows"}}}
    assert "on_error" not in found


def test_a_template_inside_what_would_be_an_expression_gets_a_note() -> None:
    made = converted("""
flow: [{name: a, source: {type: slack}, input: {rule: {in: "{{ flows.b.x }}"}}}]
""")

    assert made.document["steps"][0]["input"] == {"rule": {"$literal": {"in": "{{ flows.b.x }}"}}}
    [note] = made.notes
    assert (note.path, note.kind) == ("flow[0].input.rule", "lost")


def test_what_means_something_else_gets_a_note_at_its_path() -> None:
    made = converted("""
flow:
  - {name: a, source: {type: slack}}
  - {name: b, source: {type: slack}, input: {n: "{{ flows.a.x + flows.a.y }}"}}
""")

    [note] = made.notes
    assert (note.path, note.kind) == ("flow[1].input.n", "changed")


# ---- outputs


def test_lists_of_outputs_become_mappings_of_expressions() -> None:
    found = step("""
flow:
  - name: a
    source: {type: slack}
    output:
      - {name: all}
      - {name: raw, type: raw}
      - {name: json, type: json}
      - {name: first, type: jmespath, value: "users[0].id"}
      - {name: names, type: jmespath, path: "users[*].name"}
      - {name: adults, type: jmespath, value: "users[?age > `18`].name"}
      - {name: pair, type: jmespath, value: "{id: id, name: name}"}
""")

    def outputs_of(base: str) -> dict[str, Any]:
        return {
            "all": {"var": base},
            "raw": {"var": base},
            "json": {"var": base},
            "first": {"var": f"{base}.users.0.id"},
            "names": {"vars": f"{base}.users[*].name"},
            "adults": {"vars": f"{base}.users[?(@.age > 18)].name"},
            "pair": {"id": {"var": f"{base}.id"}, "name": {"var": f"{base}.name"}},
        }

    assert found["branch"] == flowtoy_branches(outputs_of("output.data"), outputs_of("output"))


@pytest.mark.parametrize(
    ("outputs", "output", "expected"),
    [
        ("[{type: raw}]", None, "output[0]: flowtoy ignores an output without a name; left out"),
        (
            "[{name: x, type: xpath}]",
            {"x": {"var": "output"}},
            "output[0].type: is not raw, json or jmespath; the whole result is used",
        ),
        (
            '[{name: x, value: "{{ result.y }}"}]',
            {"x": {"var": "output"}},
            "output[0].value: flowtoy uses this only with type jmespath; the whole result is used",
        ),
        (
            "[{name: x, type: jmespath, value: 'max(a)'}]",
            {"x": {"var": "output"}},
            "output[0].value: this JMESPath cannot be converted: "
            "the function max with these arguments has no equivalent; the whole result is used",
        ),
        (
            "[{name: x, type: jmespath}]",
            {"x": {"var": "output"}},
            "output[0].value: this JMESPath cannot be converted: the path is empty; the whole result is used",
        ),
        (
            "{x: {var: result.y}}",
            {"x": {"var": "result.y"}},
            "output: is not a list, which flowtoy expects; kept unchanged",
        ),
    ],
)
def test_an_output_that_cannot_be_converted_gets_a_note(outputs: str, output: Any, expected: str) -> None:
    made = converted(f"flow: [{{name: a, source: {{type: slack}}, output: {outputs}}}]")

    [found] = made.document["steps"]
    assert found.get("output", found.get("branch", [{}])[-1].get("result_expr")) == output
    assert lines(made) == [f"lost flow[0].{expected}"]


def test_a_path_that_means_something_else_gets_a_note() -> None:
    made = converted("""
flow: [{name: a, source: {type: slack}, output: [{name: x, type: jmespath, value: "a[].b"}]}]
""")

    [note] = made.notes
    assert (note.path, note.kind) == ("flow[0].output[0].value", "changed")


# ---- the whole


def test_steps_with_templates_are_read_as_a_flow_too() -> None:
    made = converted("""
steps:
  - {id: a, source: {type: slack}}
  - {id: b, source: {type: slack}, input: {text: "{{ flows.a.x }}"}}
""")

    assert made.notes == ()
    assert made.document["steps"][1]["input"] == {"text": {"var": "steps.a.output.x"}}


def test_a_result_that_is_not_valid_gets_a_note() -> None:
    made = convert("""
flow:
  - {name: a, source: {type: slack}, input: {x: "{{ flows.missing.x }}"}, timeout: soon}
""")

    assert [(note.path, note.kind) for note in made.notes] == [
        ("steps[0].input.x.var", "lost"),
        ("steps[0].timeout", "lost"),
    ]
    assert "there is no step 'missing'" in made.notes[0].message


def test_a_source_that_is_not_a_source_is_left_to_the_check() -> None:
    made = convert("flow: [{name: a, source: 5}]")

    assert made.document == {"steps": [{"id": "a", "source": 5}]}
    assert [note.path for note in made.notes] == ["steps[0].source"]


FLOW = """
sources:
  directory: {type: directory, configuration: {url: "https://example.org"}}
runner: {max_workers: 2}
flow:
  - name: fetch_users
    source: directory
    output:
      - {name: names, type: jmespath, value: "users[?age > `18`].name"}
      - {name: first, type: jmespath, value: "users[0].name"}
  - name: fetch_rooms
    source: {type: rooms}
    output: [{name: count, type: jmespath, value: "length(rooms)"}]
  - name: report
    source: {type: printer}
    input: |
      Dear {{ flows.fetch_users.first | default("nobody") | upper }},
      {% if flows.fetch_rooms.count > 1 -%}
        {{ flows.fetch_users.names | join(" and ") }} can have {{ flows.fetch_rooms.count }} rooms.
      {%- else -%}
        no room is free.
      {%- endif %}
    output: [{name: text, type: jmespath, value: printed}]
"""


def test_a_converted_flow_runs_as_flowtoy_would_run_it() -> None:
    made = converted(FLOW)
    printed: list[str] = []

    def execute(fn: str, inputs: dict[str, Any], configuration: dict[str, Any]) -> dict[str, Any]:
        if fn == "directory":
            assert configuration == {"url": "https://example.org"}
            return {
                "users": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 8}, {"name": "Cid", "age": 50}]
            }
        if fn == "rooms":
            return {"rooms": ["north", "south"]}
        printed.append(inputs["payload"])
        return {"printed": inputs["payload"]}

    workflow = Workflow.from_yaml(made.text, Backend(executor=execute))
    ended = workflow.run()

    assert isinstance(ended, Complete)
    assert printed == ["Dear ADA,\nAda and Cid can have 2 rooms."]
    assert [status.value for status in workflow.step_statuses.values()] == ["complete"] * 3
    assert [note.kind for note in made.notes] == ["changed"]  # of the payload


# ---- providers: what an executor would reject is converted, or gets a note


def rest(configuration: str, step_: str = "", source: str = "api") -> ConversionResult:
    """A flow of one step that calls a source of type rest."""
    return converted(f"""
sources: {{api: {{type: rest, configuration: {configuration}}}}}
flow: [{{name: a, source: {source}, {step_}}}]
""")


@pytest.mark.parametrize("source", ["api", "{base: api}", "{type: rest, configuration: {url: a}}", "rest"])
def test_outputs_of_rest_read_the_body_of_a_response(source: str) -> None:
    made = rest(
        "{url: a}", 'output: [{name: all}, {name: first, type: jmespath, value: "[0].id"}]', source=source
    )

    assert made.document["steps"][0]["output"] == {
        "all": {"var": "result.value"},
        "first": {"var": "result.value.0.id"},
    }


@pytest.mark.parametrize("override", ["{type: slack}", "{type: slack, configuration: {x: 1}}"])
def test_a_step_that_overrides_the_type_reads_what_that_gives(override: str) -> None:
    made = rest("{}", "output: [{name: whole}]", source=f"{{base: api, override: {override}}}")

    assert made.document["steps"][0]["branch"][-1]["result_expr"] == {"whole": {"var": "output"}}


def test_all_outputs_of_steps_are_outputs_of_the_document_by_the_names_of_flowtoy() -> None:
    made = converted("""
flow:
  - {name: my step, source: {type: slack}, output: [{name: x}]}
  - {name: silent, source: {type: slack}}
""")

    assert made.document["outputs"] == {"my step": {"var": "steps.my_step.output"}}


def test_outputs_that_are_written_stay() -> None:
    made = converted("flow: [{name: a, source: {type: slack}, output: [{name: x}]}]\noutputs: {y: 1}")

    assert made.document["outputs"] == {"y": 1}


def test_a_mapping_is_the_body_of_a_call_where_the_source_says_so() -> None:
    made = rest("{url: a, method: POST, input_mode: body}", "input: {name: Ada, url: b}")

    assert made.document["steps"][0]["input"] == {"payload": {"name": "Ada", "url": "b"}}
    assert made.notes == ()


def test_a_mapping_is_the_query_of_a_call_where_the_source_wants_a_parameter() -> None:
    made = rest("{url: a, input_mode: parameter}", "input: {user: 1}")

    assert made.document["steps"][0]["input"] == {"query": {"user": 1}}
    assert lines(made) == [
        "changed flow[0].input: each key becomes a parameter here; "
        "flowtoy sends the keys without their values"
    ]


def test_what_a_call_does_not_send_gets_a_note() -> None:
    made = rest("{}", "input: {url: a, user: 1}")
    text = rest("{url: a}", "input: text")

    assert made.document["steps"][0]["input"] == {"url": "a"}
    assert lines(made) == [
        "lost flow[0].input.user: flowtoy does not send this: the source has no input_mode; left out"
    ]
    assert "input" not in text.document["steps"][0]
    assert lines(text) == [
        "lost flow[0].input: flowtoy does not send this: the source has no input_mode; left out"
    ]


@pytest.mark.parametrize(
    ("source", "becomes"),
    [
        ("api", {"base": "api", "override": {"configuration": {"url": "b"}}}),
        ("{base: api}", {"base": "api", "override": {"configuration": {"url": "b"}}}),
        (
            "{base: api, override: {configuration: {method: PUT}}}",
            {"base": "api", "override": {"configuration": {"method": "PUT", "url": "b"}}},
        ),
        ("{base: api, override: {method: PUT}}", {"base": "api", "override": {"method": "PUT", "url": "b"}}),
        (
            "{type: rest, configuration: {headers: {Accept: x}}}",
            {"type": "http", "configuration": {"headers": {"Accept": "x"}, "returns": "body", "url": "b"}},
        ),
    ],
)
def test_a_url_beside_headers_of_a_source_becomes_its_own(source: str, becomes: Any) -> None:
    made = rest("{headers: {Accept: x}}", "input: {url: b}", source=source)

    assert made.document["steps"][0]["source"] == becomes
    assert "input" not in made.document["steps"][0]


def test_what_else_such_a_step_gives_stays_an_input() -> None:
    made = rest("{headers: {Accept: x}}", "input: {url: b, method: PUT}")
    without = rest("{headers: {Accept: x}}", "input: {method: PUT}")

    assert made.document["steps"][0]["input"] == {"method": "PUT"}
    assert without.document["steps"][0]["source"] == "api"


def test_a_url_that_is_computed_beside_headers_of_a_source_gets_a_note() -> None:
    made = converted("""
sources: {api: {type: rest, configuration: {headers: {Accept: x}}}}
flow:
  - {name: a, source: {type: slack}}
  - {name: b, source: api, input: {url: "http://x/{{ flows.a.id }}"}}
""")

    [note] = made.notes
    assert (note.path, note.kind) == ("flow[1].input.url", "lost")
    assert "give the source a base_url" in note.message


def process(configuration: str, given: str) -> tuple[Any, list[str]]:
    """Convert the input of a step that runs a program. Return the input and the notes."""
    made = converted(f"""
sources: {{run: {{type: process, configuration: {configuration}}}}}
flow: [{{name: a, source: run, input: {given}}}]
""")
    return made.document["steps"][0].get("input"), lines(made)


@pytest.mark.parametrize(
    ("configuration", "given", "becomes", "expected"),
    [
        ("{}", "{command: [ls, -l], stdin: x}", {"command": ["ls", "-l"], "stdin": "x"}, ""),
        ("{command: [ls]}", "{stdin: x}", {"stdin": "x"}, ""),
        ("{command: [ls]}", "{command: [ls, -l, /x]}", {"args": ["-l", "/x"]}, ""),
        (
            "{command: [ls]}",
            "{command: [rm, /x]}",
            None,
            "lost flow[0].input.command: the source has a command",
        ),
        ("{command: ls}", "{command: [ls]}", None, "lost flow[0].input.command: the source has a command"),
        (
            "{command: [ls]}",
            "{command: [ls, a], args: [b]}",
            {"args": ["b"]},
            "lost flow[0].input.command: the source has a command",
        ),
        (
            "{command: [ls]}",
            "{user: 1}",
            {"payload": {"user": 1}},
            "changed flow[0].input: a mapping is passed",
        ),
        (
            "{}",
            "{command: [ls], shell: sh}",
            {"command": ["ls"]},
            "lost flow[0].input.shell: process has no such",
        ),
        (
            "{}",
            "{command: [./run]}",
            {"command": ["./run"]},
            "lost flow[0].input.command: './run' is neither a name",
        ),
        (
            "{}",
            "{command: bin/run x}",
            {"command": "bin/run x"},
            "lost flow[0].input.command: 'bin/run' is neither",
        ),
        ("{}", "{command: /bin/ls x}", {"command": "/bin/ls x"}, ""),
        ("{}", '{command: "ls \'x"}', {"command": "ls 'x"}, ""),
        ("{}", "{command: []}", {"command": []}, ""),
    ],
)
def test_what_a_program_is_given(configuration: str, given: str, becomes: Any, expected: str) -> None:
    made, notes = process(configuration, given)

    assert made == becomes
    assert len(notes) == bool(expected)
    assert all(note.startswith(expected) for note in notes)


def test_the_environment_takes_no_input() -> None:
    for given in ("text", "{vars: [A]}"):
        made = converted(f"flow: [{{name: a, source: env, input: {given}}}]")

        assert made.document["steps"] == [{"id": "a", "source": {"type": "env"}}]
        assert lines(made) == ["lost flow[0].input: env takes no input in flowtoy; left out"]


def command(configuration: str) -> ConversionResult:
    return converted(f"""
sources: {{keys: {{type: env, configuration: {{vars: [K]}}}}}}
flow: [{{name: a, source: {{type: process, configuration: {configuration}}}}}]
""")


@pytest.mark.parametrize(
    ("word", "becomes", "expected"),
    [
        ("{{ raw }} {{ json.a.b }}{{input.0}}", "{{ raw }} {{ json.a.b }}{{input.0}}", None),
        ("{{ sources.keys.K }}", {"var": "sources.keys.K"}, None),
        (
            "{{ json.a | upper }}",
            {"$literal": "{{ json.a | upper }}"},
            "the variable json does not exist here",
        ),
        (
            "{% if json.a %}b{% endif %}",
            {"$literal": "{% if json.a %}b{% endif %}"},
            "the variable json does not exist here",
        ),
    ],
)
def test_a_template_that_the_executor_renders_is_kept(word: str, becomes: Any, expected: str | None) -> None:
    made = command(f'{{command: [echo, "{word}"], pass_to: template, template_strict: true}}')

    configuration = made.document["steps"][0]["source"]["configuration"]
    assert configuration == {"command": ["echo", becomes], "pass_to": "template"}
    assert [expected in note.message for note in made.notes if expected] == [True] * bool(expected)
    assert bool(made.notes) == bool(expected)


def test_a_command_that_the_executor_does_not_render_reads_only_the_environment() -> None:
    made = command('{command: [echo, "{{ raw }}"], template_strict: false}')

    assert [note.path for note in made.notes] == [
        "flow[0].source.configuration.command[1]",
        "flow[0].source.configuration.template_strict",
    ]
    assert not made.is_complete


@pytest.mark.parametrize(
    ("configuration", "places"),
    [
        ("{command: [curl, -u, 'me:pw'], redact_args: [2]}", ["command[2]"]),
        ("{command: [curl, -H, 'Bearer x'], redact_patterns: [Bearer, 5]}", ["command[2]"]),
        ("{command: [curl, '{{ sources.keys.K }}'], redact_args: [1], redact_patterns: curly}", []),
        ("{command: curl -u me, redact_args: [2]}", []),
        (
            "{headers: {Authorization: x, Cookie: '', Accept: y}, tries: [{password: z}]}",
            ["headers.Authorization", "tries[0].password"],
        ),
    ],
)
def test_a_secret_that_is_written_in_the_document_gets_a_note(configuration: str, places: list[str]) -> None:
    made = command(configuration)

    assert [note.path for note in made.notes] == [f"flow[0].source.configuration.{one}" for one in places]
    assert all("write {secret: NAME} instead" in note.instead for note in made.notes)
    assert made.is_complete


def test_data_that_would_be_read_as_a_secret_is_quoted() -> None:
    found = step("flow: [{name: a, source: {type: slack}, input: {x: {secret: y}}}]")

    assert found["input"] == {"x": {"$literal": {"secret": "y"}}}


# ---- providers of the user, which may wrap their results


WRAPPED = """
flow:
  - name: users
    source: {type: mine}
    RETRY
    output:
      - {name: names, type: jmespath, value: "[*].name"}
      - {name: all}
  - name: count
    source: {type: other}
    on_error: continue
    depends_on: [users]
    output: [{name: count, type: jmespath, value: "length(@)"}]
"""


def play(results: list[Any], flow: str = WRAPPED.replace("    RETRY\n", "")) -> Workflow:
    """Run a converted flow whose executors return or raise these results, one after the other."""
    left = list(results)

    def execute(fn: str, inputs: dict[str, Any]) -> Any:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    workflow = Workflow.from_yaml(convert(flow).text, Backend(executor=execute))
    workflow.run()
    return workflow


def record_of(workflow: Workflow) -> WorkflowRecord:
    return workflow.backend.load(workflow.id)


def envelope(success: Any, data: Any = None, **status: Any) -> dict[str, Any]:
    """A result as flowtoy's providers return it."""
    return {"status": {"success": success, "code": None, "notes": [], **status}, "data": data, "meta": {}}


def test_a_wrapped_result_is_unwrapped() -> None:
    workflow = play([envelope(True, [{"name": "Ada"}]), envelope(True, [1, 2])])

    assert workflow.outcome == {
        "users": {"names": ["Ada"], "all": [{"name": "Ada"}]},
        "count": {"count": 2},
    }


def test_a_result_that_is_not_wrapped_is_the_data() -> None:
    workflow = play([{"a": {"name": "Ada"}, "status": "running"}, {"x": 1}])

    assert workflow.outcome["users"]["all"] == {"a": {"name": "Ada"}, "status": "running"}
    assert workflow.outcome["count"] == {"count": 1}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"notes": ["HTTP status 500", "try again"]}, "HTTP status 500; try again"),
        ({"notes": ["only one"]}, "only one"),
        ({"notes": [7]}, "7"),
        ({"notes": [], "code": 3}, "provider reported failure (code=3)"),
        ({"notes": None}, "provider reported failure (code=None)"),
        ({"notes": "text"}, "provider reported failure (code=None)"),
    ],
)
@pytest.mark.parametrize("success", [False, None, 0])
def test_a_wrapped_failure_fails_the_step_with_its_notes(
    success: Any, status: dict[str, Any], message: str
) -> None:
    workflow = play([envelope(True, []), envelope(success, **status)])

    record = record_of(workflow).steps["count"]
    assert record.status.value == "failed"
    assert record.error == {"kind": "rejected", "message": message}
    assert workflow.outcome["count"] == {"ok": False, "error": message}


def test_a_wrapped_failure_stops_the_workflow_by_default() -> None:
    workflow = play([envelope(False, notes=["no"])], WRAPPED.replace("RETRY", "on_error: fail"))

    assert workflow.status.value == "failed"
    assert [one.value for one in workflow.step_statuses.values()] == ["failed", "skipped"]


def test_a_wrapped_failure_is_retried() -> None:
    flow = WRAPPED.replace("RETRY", "max_attempts: 3")

    workflow = play([envelope(False), envelope(False), envelope(True, []), envelope(True, [])], flow)

    assert workflow.status.value == "complete"
    assert record_of(workflow).steps["users"].attempt == 3


def test_an_exception_stays_an_exception() -> None:
    workflow = play([envelope(True, []), ValueError("broken")])

    error = record_of(workflow).steps["count"].error or {}
    assert (error["kind"], error["type"], error["message"]) == ("exception", "ValueError", "broken")


def test_an_executor_that_returns_nothing_has_empty_outputs() -> None:
    assert play([None, envelope(True, [])]).outcome["users"] == {"names": [], "all": None}


@pytest.mark.parametrize("keys", ["branch: [{condition: true, action: complete}]", "map: {over: [1]}"])
def test_a_step_that_handles_its_results_is_left_alone(keys: str) -> None:
    made = convert(f"flow: [{{name: a, source: {{type: mine}}, output: [{{name: x}}], {keys}}}]")

    assert made.document["steps"][0]["output"] == {"x": {"var": "result"}}


@pytest.mark.parametrize("kind", ["rest", "process", "env"])
def test_the_providers_of_flowtoy_itself_are_not_unwrapped(kind: str) -> None:
    made = convert(f"flow: [{{name: a, source: {{type: {kind}}}, output: [{{name: x}}]}}]")

    assert "branch" not in made.document["steps"][0]


def test_braces_that_a_template_writes_are_quoted() -> None:
    """`'{{'` is a text in a template; in the document it would be a reference."""
    text = """
flow:
  - {name: a, fn: f}
  - {name: b, fn: f, input: {x: "{{ '{{' }} y }} {{ flows.a.x }}", z: "{{ '{{ flows.a.x }}' }}"}}
"""

    assert step(text)["input"] == {
        "x": {"cat": [{"$literal": "{{ y }} "}, {"var": "steps.a.output.x"}]},
        "z": {"$literal": "{{ flows.a.x }}"},
    }


def test_a_command_that_the_executor_renders_stays_as_it_is() -> None:
    text = """
flow:
  - name: a
    source: {type: process, configuration: {command: [echo, "{{ input.x }}"], pass_to: template}}
    input: {x: 1}
"""

    [made] = converted(text).document["steps"]

    assert made["source"]["configuration"]["command"] == ["echo", "{{ input.x }}"]


def test_a_setting_that_looks_like_a_variable_is_quoted() -> None:
    text = """
sources: {keys: {type: env, configuration: {vars: [KEY]}}}
flow: [{name: a, source: {type: mine, configuration: {text: "{{ '{{ sources.keys.KEY }}' }}"}}}]
"""

    assert step(text)["source"]["configuration"] == {"text": {"$literal": "{{ sources.keys.KEY }}"}}
