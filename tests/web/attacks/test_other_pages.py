"""Attacks that only a browser prevents: frames, forms and scripts of other pages, and scripts within ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from browsers import Tabs
from servers.page_server import PageServer
from servers.redis_contents import snapshot
from servers.web import Reply
from servers.web import site as web_site
from worlds.page_executions import run_execution
from worlds.redis_world import RedisWorld

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
            add("a", {href: "javascript:void(document.title='taken over')", id: "link"});
            const image = "<img src=x onerror=\\"document.title='taken over'\\">";
            document.body.insertAdjacentHTML("beforeend", image);
            document.getElementById("link").click();
        }"""
    )
    page.wait_for_load_state("networkidle")

    assert page.title() != "taken over"
    tabs.errors.expect("Content Security Policy")
    tabs.errors.messages.clear()
