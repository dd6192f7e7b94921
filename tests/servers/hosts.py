"""Hosts on one network: namespaces of Linux, joined by a bridge in a namespace of its own.

    with own_network("one", "two") as network:
        network["one"].address      # 10.214.N.1
        network.cut("one")          # takes its link down: packets are lost, connections stay open
        network.heal("one")

The test itself is on the network too, at `network.address`. Needs root and the command `ip`. A link that is
up loses no packets and delays none: that would need netem, which many kernels lack. torture/proxy.py delays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from processes import Stack

PREFIX = "10.214"
"""The first half of the addresses. The third part depends on our pid, so that two runs do not conflict."""


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def require_namespaces() -> None:
    """Skip the test where no network namespace and no pair of interfaces can be made."""
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip: install iproute2")
    name = f"o{os.getpid() % 100_000}-try"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "br0", "type", "bridge")
        ip("-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    finally:
        _delete(name)


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    namespace: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """Put before a command, it runs on this host, as the same process."""
        return ("ip", "netns", "exec", self.namespace)


@dataclass
class Network:
    """A bridge, and the hosts at it."""

    names: tuple[str, ...]
    hosts: dict[str, Host] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @property
    def address(self) -> str:
        """The address of the test."""
        return f"{self._subnet}.254"

    @property
    def _subnet(self) -> str:
        return f"{PREFIX}.{os.getpid() % 250}"

    @property
    def _name(self) -> str:
        return f"o{os.getpid() % 100_000}"

    @property
    def _bridge(self) -> str:
        return f"{self._name}-net"

    def set_up(self) -> None:
        ip("netns", "add", self._bridge)
        ip("-n", self._bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self._bridge, "link", "set", "br0", "up")
        own = f"{self._name}-own"
        ip("link", "add", own, "type", "veth", "peer", "name", "own", "netns", self._bridge)
        ip("addr", "add", f"{self.address}/24", "dev", own)
        ip("link", "set", own, "up")
        self._plug_in("own")
        for number, name in enumerate(self.names, start=1):
            self.hosts[name] = self._add(Host(name, f"{self._name}-{name}", f"{self._subnet}.{number}"))

    def _add(self, host: Host) -> Host:
        ip("netns", "add", host.namespace)
        pair = ("type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        ip("-n", self._bridge, "link", "add", host.name, *pair)
        ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            ip("-n", host.namespace, "link", "set", interface, "up")
        self._plug_in(host.name)
        return host

    def _plug_in(self, port: str) -> None:
        ip("-n", self._bridge, "link", "set", port, "master", "br0", "up")

    def cut(self, name: str) -> None:
        ip("-n", self._bridge, "link", "set", name, "down")

    def heal(self, name: str) -> None:
        ip("-n", self._bridge, "link", "set", name, "up")

    def tear_down(self) -> None:
        """Delete the namespaces, and with them all interfaces."""
        for name in (*self.names, "net"):
            _delete(f"{self._name}-{name}")


@contextmanager
def own_network(*names: str) -> Iterator[Network]:
    require_namespaces()
    network = Network(names)
    with ExitStack() as contexts:
        contexts.callback(network.tear_down)
        network.set_up()
        yield network


@dataclass
class HostStack(Stack):
    """Processes on one host. Each is a new interpreter."""

    prefix: tuple[str, ...] = ()

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        return super()._spawn(*self.prefix, *command)


@contextmanager
def host_stack(host: Host, url: str, folder: Path, **environment: str) -> Iterator[HostStack]:
    made = HostStack(url, "step_functions", folder, environment, prefix=host.prefix)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield made
    finally:
        made.end()


def _delete(namespace: str) -> None:
    with suppress(subprocess.CalledProcessError):
        ip("netns", "del", namespace)
