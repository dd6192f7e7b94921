"""Redis behind TLS, with a certificate authority of our own and certificates of clients: for everybody alike.

The certificates are made by the commands of docs/security.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis.exceptions import ConnectionError

from orchestrator.application.errors import Unavailable
from orchestrator.application.records.decisions import Complete
from orchestrator.cli.main import main
from orchestrator.redis_rq.connection import connect
from processes import JSON_SERIALIZER, ROOT, PatientClient, Stack
from servers.ports import free_ports
from servers.redis_server import own_redis
from worlds.attacks import CREW, STOCK, WARM

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "security.md").read_text()
WITHOUT_TLS = ("Failed finding TLS support", "'tls-port \"")
"""What a server of Redis 7 or Valkey, and one of Redis 6.2, prints that is built without TLS."""
CLASS = "orchestrator.worker.step_job.StepJob"


@dataclass
class Tls:
    port: int
    folder: Path

    @property
    def url(self) -> str:
        """With the parameters that the page names."""
        [parameters] = re.findall(r"rediss://\S+?\?(\S+)\n", PAGE)
        return f"rediss://localhost:{self.port}/0?{parameters.replace('/etc/orchestrator', str(self.folder))}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    [commands] = re.findall(r"```sh\n(openssl .*?)```", PAGE, re.DOTALL)
    subprocess.run(["bash", "-euc", commands], cwd=folder, check=True, capture_output=True)
    [port] = free_ports(1)
    files = [
        ("--tls-cert-file", "redis.crt"),
        ("--tls-key-file", "redis.key"),
        ("--tls-ca-cert-file", "ca.crt"),
    ]
    words = [word for option, name in files for word in (option, str(folder / name))]
    words += ["--tls-auth-clients", "yes", "--bind", "127.0.0.1", "-::1"]
    with ExitStack() as stack:
        try:
            stack.enter_context(own_redis(folder, "--tls-port", str(port), *words))
        except RuntimeError as error:
            if any(text in str(error) for text in WITHOUT_TLS):
                pytest.skip("this redis-server is built without TLS")
            raise
        yield Tls(port, folder)


@pytest.mark.parametrize("kind", [STOCK, WARM, CREW])
def test_a_workflow_runs_behind_tls(tls: Tls, tmp_path: Path, kind: str) -> None:
    stack = Stack(tls.url, "step_functions", tmp_path)
    try:
        stack.coordinator()
        if kind == STOCK:
            rq = (sys.executable, "-m", "rq.cli", "worker", "--url", tls.url, *JSON_SERIALIZER)
            stack._spawn(*rq, "--job-class", CLASS, "orchestrator.default")
        else:
            stack.worker("default", *kind.split()[2:])
        client = PatientClient(tls.url)
        started = client.start({"steps": [{"op": "nothing"}]}, reply_timeout_s=180)
        assert isinstance(client.wait(started.execution_id, 180), Complete), stack.log()
        shown = CliRunner().invoke(main, ["--redis-url", tls.url, "show", started.execution_id])
        assert shown.exit_code == 0, shown.output
    finally:
        stack.end()


def test_who_has_no_certificate_is_not_let_in_and_who_knows_the_wrong_authority_does_not_go_in(
    tls: Tls,
) -> None:
    ca = f"ssl_ca_certs={tls.folder}/ca.crt"
    for parameters in (ca, "ssl_ca_certs=/etc/ssl/certs/ca-certificates.crt"):
        with pytest.raises(ConnectionError):
            connect(f"rediss://localhost:{tls.port}/0?{parameters}").ping()
    with pytest.raises(Unavailable):
        PatientClient(f"rediss://localhost:{tls.port}/0?{ca}").status("x")
