"""Certificates that live for a minute, on a real cluster: a real API server admits, aggregates and streams through two
new CAs, and no request fails."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from framework.helm import CHART, helm
from framework.waiting import running

from tests.cluster import Cluster
from tests.e2e.conftest import Space
from tests.e2e.engine import eventually
from tests.e2e.manifests import kernel_boot

pytestmark = pytest.mark.alone

NAMESPACE = "virtpod"
SECRETS = ("virtpod-ca", "virt-api-serving", "virt-api-client")
TARGETS = (
    ("apiservice", "v1.subresources.kubevirt.io", "{.spec.caBundle}"),
    ("apiservice", "v1alpha3.subresources.kubevirt.io", "{.spec.caBundle}"),
)
END = "-----END CERTIFICATE-----"


class Traffic:
    """Calls one thing again and again; keeps count, and every failure."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self.name, self._call, self.done = name, call, 0
        self.failures: list[str] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.1):
            try:
                self._call()
                self.done += 1
            except Exception as error:
                self.failures.append(f"{self.name} after {self.done}: {error}")


@contextmanager
def lifetimes(cluster: Cluster, ca: str, leaf: str) -> Iterator[None]:
    """As an administrator changes them; afterwards as it was."""
    changed = ("--reuse-values", "--set", f"certificates.caLifetime={ca}", "--set", f"certificates.leafLifetime={leaf}")
    common = {"env": cluster.environment(), "timeout_s": 300.0}
    # Another test may have patched a Deployment by hand and put it back: Helm asks before it takes such a field over.
    where = ("--namespace", NAMESPACE, "--wait", "--timeout", "4m", "--force-conflicts")
    before = deployed(cluster)
    try:
        helm("upgrade", "virtpod", str(CHART), *changed, *where, **common)  # type: ignore[arg-type]
        yield
    finally:
        helm("rollback", "virtpod", before, *where, **common)  # type: ignore[arg-type]


def deployed(cluster: Cluster) -> str:
    """The revision that is in force. The one before the last may be a failed one."""
    told = helm("history", "virtpod", "--namespace", NAMESPACE, "-o", "json", env=cluster.environment())
    return str(max(each["revision"] for each in json.loads(told) if each["status"] == "deployed"))


def trusted(cluster: Cluster) -> frozenset[str]:
    """The CAs that every API service trusts now; nothing while they differ."""
    found = {
        bundle
        for kind, name, path in TARGETS
        for bundle in cluster.kubectl("get", kind, name, "-o", f"jsonpath={path}").split()
    }
    if len(found) != 1:
        return frozenset()
    return frozenset(part.strip() for part in base64.b64decode(found.pop()).decode().split(END) if part.strip())


def admitted(cluster: Cluster, space: Space) -> Callable[[], object]:
    manifest = json.dumps(kernel_boot("dry"))
    apply = ("-n", space.namespace, "create", "--dry-run=server", "-o", "name", "-f", "-")
    return lambda: cluster.kubectl(*apply, stdin=manifest)


def aggregated(cluster: Cluster, space: Space) -> Callable[[], object]:
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{space.namespace}/virtualmachineinstances/steady/guestosinfo"

    def ask() -> None:
        # The guest has an agent or has none; either answer has gone all the way to its node.
        done = cluster.try_kubectl("get", "--raw", path)
        assert done.returncode == 0 or "agent" in done.stderr, done.stderr

    return ask


def talks(space: Space, stop: threading.Event, said: list[int]) -> None:
    """One console, open all the time."""
    with space.console("steady") as console:
        console.prompt()
        while not stop.wait(0.5):
            mark = f"round-{len(said)}"
            assert mark in console.shell(f"echo {mark}", within_s=30)
            said.append(len(said))


@pytest.mark.timeout(600)
def test_no_request_fails_while_everything_rotates(cluster: Cluster, space: Space) -> None:
    space.boot(kernel_boot("steady"))
    traffic = [Traffic("admission", admitted(cluster, space)), Traffic("aggregation", aggregated(cluster, space))]
    said: list[int] = []
    with (
        lifetimes(cluster, "60s", "30s"),
        running(*(each.run for each in traffic), lambda stop: talks(space, stop, said), within_s=60),
    ):
        first = eventually(lambda: trusted(cluster), within_s=60, what="one bundle everywhere")
        second = eventually(lambda: successor(cluster, first), within_s=150, what="another CA")
        eventually(lambda: successor(cluster, second), within_s=150, what="yet another CA")
    assert [failure for each in traffic for failure in each.failures] == []
    assert all(each.done > 20 for each in traffic), {each.name: each.done for each in traffic}
    assert len(said) > 20


def successor(cluster: Cluster, old: frozenset[str]) -> frozenset[str]:
    """The one CA that is trusted when none of the old ones is any more."""
    now = trusted(cluster)
    return now if len(now) == 1 and not now & old else frozenset()


def test_nobody_but_their_owner_reads_the_keys(cluster: Cluster) -> None:
    for account, allowed in (
        ("virt-api", {"virt-api-serving", "virt-api-client"}),
        ("virt-handler", set()),
        ("virt-controller", set(SECRETS)),
    ):
        who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        answers = {
            name: cluster.try_kubectl("auth", "can-i", "get", f"secret/{name}", "-n", NAMESPACE, who).stdout.strip()
            for name in SECRETS
        }
        assert {name for name, answer in answers.items() if answer == "yes"} == allowed, account


@pytest.mark.parametrize("name", SECRETS)
def test_a_deleted_secret_comes_back(cluster: Cluster, space: Space, name: str) -> None:
    """And everything goes on: the CA's too, since what it has signed stays believed."""
    admit = admitted(cluster, space)
    before = cluster.get("secret", name, "-n", NAMESPACE)["metadata"]["uid"]
    cluster.kubectl("-n", NAMESPACE, "delete", "secret", name)
    admit()

    def back() -> bool:
        found = cluster.try_kubectl("-n", NAMESPACE, "get", "secret", name, "-o", "jsonpath={.metadata.uid}")
        return found.returncode == 0 and found.stdout.strip() not in ("", before)

    eventually(back, within_s=30, what=f"another Secret {name}")
    admit()
