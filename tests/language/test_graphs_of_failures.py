"""What failures, skips and filters come to in whole graphs: a table written by hand from the rules."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from language.stage import Stage
from language.written import NO, branches
from worlds.documents import Json, document, step

# A word is a step: `a!` fails, `a?` is filtered, `a-` is skipped by its own branch. `:policy` is its
# on_error, `<b,c` are its parents, `~join` is how it joins them. `@policy` is the default of all. Results
# come in the order of the dispatches.
WORD = re.compile(r"(\w+)([!?-]?)(?::(\w+))?(?:<([\w,]+))?(?:~(\w+))?")
GRAPHS = [
    # a diamond, of which one arm fails or is not taken
    ("a b!:continue<a c<a d<b,c", "complete failed complete complete", "complete"),
    ("a b!:skip<a c<a d<b,c", "complete skipped complete skipped", "complete"),
    ("a b!<a c<a d<b,c", "complete failed cancelled skipped", "failed"),
    ("a b?<a c<a d<b,c", "complete filtered complete complete", "complete"),
    ("a b?<a c?<a d<b,c e<d", "complete filtered filtered filtered filtered", "complete"),
    ("a b?<a c!:continue<a d<b,c", "complete filtered failed complete", "complete"),
    ("a b?<a c!:skip<a d<b,c e:continue<d", "complete filtered skipped skipped skipped", "complete"),
    ("a?:fail b<a c d<b,c", "filtered filtered complete complete", "complete"),
    # what a dependent wrote is about itself, and not about what is below
    ("p!:skip d:continue<p e<p f<d,e g<d", "skipped complete skipped skipped complete", "complete"),
    (
        "p! d:continue<p e:skip<p f<e g<d h<f,g",
        "failed complete skipped skipped complete skipped",
        "failed",
    ),
    ("p!:fail d:continue<p e:continue<p q", "failed skipped skipped cancelled", "failed"),
    ("p! q! d:continue<p,q", "failed failed complete", "failed"),
    ("p!:continue d!<p e:continue<d f<e", "failed failed complete complete", "failed"),
    # where a stop reaches
    ("a b<a c!<a d<b", "complete complete failed cancelled", "failed"),
    ("a b<a c!:continue<a d<b", "complete complete failed complete", "complete"),
    ("a! b c<b d<c e<a", "failed cancelled skipped skipped skipped", "failed"),
    # defaults are not written
    ("@continue a! b<a c!:skip<b d<c e:fail<c", "failed complete skipped skipped skipped", "complete"),
    ("@skip p! d<p e:continue<p f:fail<e", "skipped skipped complete complete", "complete"),
    # joins
    ("a!:skip b!:continue c j<a,b,c~any k<j", "skipped failed complete complete complete", "complete"),
    ("a!:skip b? c- j<a,b,c~done k<j", "skipped filtered skipped complete complete", "complete"),
    ("a! j:continue<a~done", "failed complete", "failed"),
    (
        "a b!:continue c? d!:skip j<a,b,c,d~2 k<j",
        "complete failed filtered skipped complete complete",
        "complete",
    ),
    (
        "a b? c!:skip d j<a,b,c,d~3 k<j",
        "complete filtered skipped complete skipped skipped",
        "complete",
    ),
    # a step that was skipped without an error skips whatever its dependents wrote
    ("s- d:continue<s e:continue<d f<s~done g<f", "skipped skipped skipped complete complete", "complete"),
    (
        "a b!:continue c!:skip d? e- j<a,b,c,d,e k<a,b,d l<a,b,c,d~any m<d n:continue<a,c",
        "complete failed skipped filtered skipped skipped complete complete filtered complete",
        "complete",
    ),
]


class Graph(NamedTuple):
    document: Json
    failing: set[str]


def graph_of(text: str) -> Graph:
    steps, failing, keys = [], set[str](), Json()
    for word in text.split():
        if word.startswith("@"):
            keys["defaults"] = {"on_error": word[1:]}
            continue
        found = WORD.fullmatch(word)
        assert found is not None, word
        name, fate, policy, parents, join = found.groups()
        written = {} if policy is None else {"on_error": policy}
        written |= {} if join is None else {"join": int(join) if join.isdecimal() else join}
        written |= {"!": {}, "?": {"when": NO}, "-": branches(True, "skip"), "": {}}[fate]
        steps.append(step(name, (parents or "").replace(",", " "), **written))
        failing |= {name} if fate == "!" else set()
    return Graph(document(*steps, **keys), failing)


@pytest.mark.parametrize(("text", "states", "end"), GRAPHS, ids=[text for text, _, _ in GRAPHS])
def test_a_graph_ends_as_the_table_says(stage: Stage, text: str, states: str, end: str) -> None:
    graph = graph_of(text)
    stage.start(graph.document)

    while stage.out:
        name = next(job.step_id for job in stage.jobs if job.step_id in stage.out)
        stage.fail(name) if name in graph.failing else stage.finish(name, {})

    assert " ".join(stage.statuses.values()) == states
    assert stage.status == end
    unexplained = [
        name
        for name, one in stage.record.steps.items()
        if one.status in ("skipped", "filtered", "cancelled") and not one.reason
    ]
    assert unexplained == []
