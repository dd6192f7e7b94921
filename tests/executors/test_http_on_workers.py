"""The executor `http` in workflows, on a real Redis: a coordinator, and a worker of either kind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.convert import convert
from processes import PatientClient, Stack, stack, wait_until
from servers.web import Asked, Reply, Site, said, site

pytestmark = pytest.mark.slow

Json = dict[str, Any]
TOKEN = "tok-3n-of-the-worker"
PATIENCE_S = 180.0


class Shop:
    """A web server that fails twice, and requires the token."""

    def __init__(self) -> None:
        self.failures = 2
        self.lock = threading.Lock()

    def __call__(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Reply(401, f"not with {asked.headers.get('authorization')}".encode())
        if asked.method == "GET":
            return said({"article": asked.path.rpartition("/")[2], "price": 17})
        with self.lock:
            self.failures -= 1
            if self.failures >= 0:
                return said({"error": "come back later"}, status=503)
        return said({"paid": asked.json["amount"]}, status=201)


@pytest.fixture
def shop() -> Iterator[Site]:
    with site(Shop()) as made:
        yield made


@pytest.fixture
def processes(redis_url: str, tmp_path: Path, shop: Site) -> Iterator[Stack]:
    environment = {
        "ORCHESTRATOR_HTTP_HOSTS": f"127.0.0.1:{shop.port}",
        "ORCHESTRATOR_ENV_VARIABLES": "SHOP_TOKEN",
        "SHOP_TOKEN": TOKEN,
    }
    with stack(redis_url, "", tmp_path, **environment) as made:
        made.coordinator()
        yield made


def document(url: str, variable: str = "SHOP_TOKEN") -> Json:
    token = {"var": f"sources.worker.{variable}"}
    return {
        "sources": {
            "worker": {"type": "env", "configuration": {"vars": [variable]}},
            "shop": {"type": "http", "configuration": {"base_url": url, "auth": {"bearer": token}}},
        },
        "steps": [
            {
                "id": "look",
                "source": "shop",
                "input": {"path": {"cat": ["articles/", {"var": "input.article"}]}},
            },
            {
                "id": "pay",
                "source": "shop",
                "input": {
                    "path": "payments",
                    "method": "POST",
                    "json": {"amount": {"var": "steps.look.output.json.price"}},
                },
                "retry": {"max_retries": 3, "initial_delay_ms": 20},
            },
        ],
        "outputs": {
            "paid": {"var": "steps.pay.output.json.paid"},
            "status": {"var": "steps.pay.output.status"},
        },
    }


@pytest.mark.parametrize("options", [(), ("--concurrency", "8")], ids=["forking", "concurrent"])
def test_an_article_is_found_and_paid_although_the_shop_fails_twice(
    processes: Stack, redis_url: str, shop: Site, options: tuple[str, ...]
) -> None:
    processes.worker("default", *options)
    client = PatientClient(redis_url)

    execution = client.start(document(shop.url), {"article": "a-1"}).execution_id
    ended = client.wait(execution, PATIENCE_S)

    assert ended == Complete({"paid": 17, "status": 201}), processes.log()
    look, *pays = shop.asked
    assert (look.method, look.path) == ("GET", "/articles/a-1")
    assert [(one.method, one.path, one.json) for one in pays] == 3 * [("POST", "/payments", {"amount": 17})]
    keys = {one.headers["idempotency-key"] for one in pays}
    assert len(keys) == 1, "every attempt has the same key"
    errors = [one["error"]["message"] for one in client.history(execution) if one.get("error")]
    assert errors == 2 * ['127.0.0.1 answered 503: {"error": "come back later"}']


def test_many_calls_wait_at_once_in_one_process(processes: Stack, redis_url: str) -> None:
    everybody = threading.Barrier(20)

    def answer(asked: Asked) -> Reply:
        everybody.wait(PATIENCE_S)
        return said(1)

    with site(answer) as web:
        processes.environment["ORCHESTRATOR_HTTP_HOSTS"] = f"127.0.0.1:{web.port}"
        processes.worker("default", "--concurrency", "20")
        client = PatientClient(redis_url)
        steps = [{"id": f"s{n}", "fn": "http", "input": {"url": web.url}} for n in range(20)]

        ended = client.wait(client.start({"steps": steps}).execution_id, PATIENCE_S)

    assert isinstance(ended, Complete), processes.log()


def test_a_rejected_host_is_in_the_message_and_a_repeated_token_is_not(
    processes: Stack, redis_url: str, shop: Site
) -> None:
    processes.worker()
    client = PatientClient(redis_url)
    refused = {"steps": [{"id": "a", "fn": "http", "input": {"url": "http://127.0.0.1:1/"}}]}
    wrong = {**document(shop.url)}
    wrong["sources"]["shop"]["configuration"]["auth"] = {
        "bearer": {"cat": ["x-", {"var": "sources.worker.SHOP_TOKEN"}]}
    }

    first = client.wait(client.start(refused).execution_id, PATIENCE_S)
    rejected = client.start(wrong, {"article": "a-1"}).execution_id
    second = client.wait(rejected, PATIENCE_S)

    assert isinstance(first, Failed)
    assert "may not call 127.0.0.1 at port 1: add it to ORCHESTRATOR_HTTP_HOSTS" in str(first)
    assert isinstance(second, Failed)
    assert "127.0.0.1 answered 401: not with <redacted>" in str(second)
    wait_until(lambda: len(shop.asked) == 1)
    assert TOKEN not in str(client.history(rejected))
    assert TOKEN not in processes.log()


def test_a_flow_that_was_written_for_flowtoy_runs(processes: Stack, redis_url: str, shop: Site) -> None:
    made = convert(f"""
sources:
  worker: {{type: env, configuration: {{vars: [SHOP_TOKEN]}}}}
  articles:
    type: rest
    configuration:
      url: "{shop.url}/articles"
      headers: {{Authorization: "Bearer {{{{ sources.worker.SHOP_TOKEN }}}}"}}
      input_mode: parameter
flow:
  - name: look
    source: articles
    input: "a-7"
    output: [{{name: price, type: jmespath, value: price}}]
  - name: look_again
    source: articles
    input: "{{{{ flows.look.price }}}}"
    output: [{{name: article, type: jmespath, value: article}}]
""")
    processes.worker()
    client = PatientClient(redis_url)

    execution = client.start(
        {**made.document, "outputs": {"found": {"var": "steps.look_again.output.article"}}}
    )

    assert client.wait(execution.execution_id, PATIENCE_S) == Complete({"found": "articles?id=17"}), (
        processes.log()
    )
    assert [asked.path for asked in shop.asked] == ["/articles?id=a-7", "/articles?id=17"]
