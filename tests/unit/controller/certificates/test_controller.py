"""The controller against an API server: real certificates, real Secrets, a clock that the test moves."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.waiting import eventually, running

from virt_controller.certificates.bundles import identify, parse
from virt_controller.certificates.controller import KEY, CertificateController
from virt_controller.certificates.model import Policy
from virt_core.kube.errors import ApiError, Conflict
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.keypair import EXPIRY
from virt_core.runtime.x509 import is_authority, issued_by, load_pair, names_of

NS = "/api/v1/namespaces/virtpod/secrets"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io"
OLD_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha3.subresources.kubevirt.io"
LEAVES = ("virt-api-serving", "virt-api-client")
SHARED = "/api/v1/namespaces/virtpod/configmaps/virtpod-ca-bundle"
POLICY = Policy(timedelta(seconds=600), timedelta(seconds=120))
OURS = {"namespace": "virtpod", "name": "virt-api"}


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube, self.clock = kube, FakeClock()
        for path in (SERVICE, OLD_SERVICE):
            kube.put(path, {"spec": {"service": OURS, "group": "g", "x-unknown": 1}})
        self.controller = self.make()

    def make(self, policy: Policy = POLICY, **options: Any) -> CertificateController:
        return CertificateController(self.kube.client(), "virtpod", policy, self.clock, **options)

    def work(self, after_s: float = 0.0) -> float:
        """One reconciliation; returns in how many seconds it wants the next one."""
        self.clock.step(after_s)
        result = self.controller.reconcile(KEY)
        assert result is not None
        return result.requeue_after_s

    def secret(self, name: str) -> dict[str, bytes]:
        return {k: base64.b64decode(v) for k, v in self.kube.objects[f"{NS}/{name}"]["data"].items()}

    def leaf(self, name: str) -> x509.Certificate:
        return load_pair(self.secret(name)["tls.crt"], self.secret(name)["tls.key"]).certificate

    def shared(self, file: str) -> bytes:
        """What nodes read."""
        return str(self.kube.objects[SHARED]["data"][file]).encode()

    def trusted(self) -> list[str]:
        return [identify(found) for found in parse(self.shared("ca.crt"))]

    def bundle(self, name: str) -> list[str]:
        return [identify(found) for found in parse(self.secret(name)["ca.crt"])]

    def injected(self, path: str = SERVICE) -> list[str]:
        text = self.kube.objects[path]["spec"].get("caBundle", "")
        return [identify(found) for found in parse(base64.b64decode(text))]

    def writes(self) -> list[tuple[str, str]]:
        return self.kube.methods("POST", "PUT", "PATCH", "DELETE")

    def believed(self) -> bool:
        """Everybody's certificate is signed by a CA in everybody's bundle."""
        bundle = parse(self.shared("ca.crt"))
        return all(any(issued_by(self.leaf(name), ca) for ca in bundle) for name in LEAVES)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with fake_kube() as kube:
        yield Rig(kube)


def test_it_is_ready_once_everybody_can_check_everybody(rig: Rig) -> None:
    """`helm install --wait` waits for this: the next request may be one that needs a webhook."""
    assert "not in place yet" in str(rig.controller.ready())
    rig.kube.on_request = lambda method, path, *_: failure(500, "InternalError", "no") if path == SERVICE else None
    with pytest.raises(ApiError):
        rig.work()
    assert rig.controller.ready() is not None
    rig.kube.on_request = None
    rig.work()
    assert rig.controller.ready() is None
    assert rig.injected()


def test_a_new_system_gets_everything_at_once(rig: Rig) -> None:
    assert rig.work() == pytest.approx(80, abs=2)
    assert names_of(rig.leaf("virt-api-client")) == {"virt-api.virtpod.internal"}
    assert names_of(rig.leaf("virt-api-serving")) == {
        "virt-api",
        "virt-api.virtpod",
        "virt-api.virtpod.svc",
        "virt-api.virtpod.svc.cluster.local",
    }
    ca = load_pair(rig.secret("virtpod-ca")["tls.crt"], rig.secret("virtpod-ca")["tls.key"]).certificate
    assert is_authority(ca)
    assert all(issued_by(rig.leaf(name), ca) for name in LEAVES)
    expected = [identify(ca)]
    assert [rig.bundle(name) for name in ("virtpod-ca", *LEAVES)] == [expected] * 3
    assert rig.trusted() == expected
    assert rig.shared("signer.crt") == rig.secret("virtpod-ca")["tls.crt"]
    assert rig.injected(SERVICE) == rig.injected(OLD_SERVICE) == expected


def test_certificates_begin_in_the_past_and_end_in_time(rig: Rig) -> None:
    """A peer whose clock is behind believes them; none outlives its CA."""
    rig.work()
    leaf = rig.leaf("virt-api-serving")
    assert rig.clock.now() - leaf.not_valid_before_utc >= timedelta(minutes=5)
    assert (leaf.not_valid_after_utc - rig.clock.now()).total_seconds() == pytest.approx(120, abs=1)


def test_secrets_say_whose_they_are(rig: Rig) -> None:
    rig.work()
    for name in ("virtpod-ca", *LEAVES):
        obj = rig.kube.objects[f"{NS}/{name}"]
        assert obj["type"] == "kubernetes.io/tls"
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "virt-controller"


def test_nothing_else_in_an_api_service_is_touched(rig: Rig) -> None:
    rig.kube.put(OLD_SERVICE, {"spec": {"service": {**OURS, "name": "else"}}})
    rig.work()
    assert "caBundle" not in rig.kube.objects[OLD_SERVICE]["spec"], "another one's"
    assert rig.kube.objects[SERVICE]["spec"]["x-unknown"] == 1
    (patch,) = [body for method, path, _, body in rig.kube.requests if (method, path) == ("PATCH", SERVICE)]
    assert [operation["op"] for operation in patch] == ["test", "add"]


def test_an_idle_system_writes_nothing(rig: Rig) -> None:
    rig.work()
    before = rig.writes()
    for _ in range(7):
        rig.work(10)
    assert rig.writes() == before


def test_a_whole_rotation(rig: Rig) -> None:
    """Trusted before it signs, signing before the old one is forgotten; every certificate believed all the time."""
    rig.work()
    first = rig.bundle("virtpod-ca")
    seen = [first]
    for _ in range(65):
        rig.work(10)
        assert rig.believed()
        bundle = rig.bundle("virtpod-ca")
        assert rig.injected(SERVICE) == rig.injected(OLD_SERVICE) == rig.bundle("virt-api-client") == bundle
        assert rig.trusted() == bundle
        assert rig.shared("signer.crt") == rig.secret("virtpod-ca")["tls.crt"]
        if bundle != seen[-1]:
            seen.append(bundle)
    assert len(seen) == 3
    assert seen[0] == first
    assert seen[1][:1] == first
    assert seen[2] == seen[1][1:]


def test_a_promotion_drops_the_old_key(rig: Rig) -> None:
    rig.work()
    old_key = rig.secret("virtpod-ca")["tls.key"]
    for _ in range(55):
        rig.work(10)
    secret = rig.secret("virtpod-ca")
    assert secret["tls.key"] != old_key
    assert all(old_key not in content for content in secret.values())


@pytest.mark.parametrize("name", LEAVES)
def test_a_deleted_secret_is_made_again_by_the_same_ca(rig: Rig, name: str) -> None:
    rig.work()
    ca = rig.bundle("virtpod-ca")
    rig.kube.remove(f"{NS}/{name}")
    rig.work(1)
    assert rig.believed()
    assert rig.bundle("virtpod-ca") == ca


@pytest.mark.parametrize("field", ["tls.crt", "tls.key", "ca.crt"])
def test_a_corrupted_secret_is_repaired(rig: Rig, field: str) -> None:
    rig.work()
    obj = rig.kube.objects[f"{NS}/virt-api-client"]
    rig.kube.put(f"{NS}/virt-api-client", {**obj, "data": {**obj["data"], field: "Z2FyYmFnZQ=="}})
    rig.work(1)
    assert rig.believed()
    assert rig.bundle("virt-api-client") == rig.bundle("virtpod-ca")


@pytest.mark.parametrize("field", ["ca.crt", "signer.crt"])
def test_a_changed_bundle_of_the_nodes_is_repaired(rig: Rig, field: str) -> None:
    """Whoever could add a CA there could speak to the nodes as virt-api."""
    rig.work()
    obj = rig.kube.objects[SHARED]
    good = dict(obj["data"])
    rig.kube.put(SHARED, {**obj, "data": {**good, field: good[field] + good[field]}})
    rig.work(1)
    assert rig.kube.objects[SHARED]["data"] == good
    rig.kube.remove(SHARED)
    rig.work(1)
    assert rig.kube.objects[SHARED]["data"] == good


def test_where_others_make_the_serving_certificate_it_is_left_alone(rig: Rig) -> None:
    """cert-manager: neither its Secret nor what the API server trusts is ours; the rest is made as ever."""
    rig.controller = rig.make(serving=False)
    rig.work()
    assert f"{NS}/virt-api-serving" not in rig.kube.objects
    assert rig.injected(SERVICE) == rig.injected(OLD_SERVICE) == []
    assert rig.bundle("virt-api-client") == rig.trusted() == rig.bundle("virtpod-ca") != []
    asked = {path for _, path in rig.kube.methods()}
    assert not [path for path in asked if "virt-api-serving" in path or "apiservices" in path]


@pytest.mark.parametrize("how", ["deleted", "garbage", "foreign key"])
def test_a_lost_ca_is_replaced_with_overlap(rig: Rig, how: str) -> None:
    """What it has signed stays believed until the new one is trusted everywhere."""
    rig.work()
    (old,) = rig.bundle("virt-api-client")
    path = f"{NS}/virtpod-ca"
    if how == "deleted":
        rig.kube.remove(path)
    else:
        obj = rig.kube.objects[path]
        key = rig.kube.objects[f"{NS}/virt-api-client"]["data"]["tls.key"] if how == "foreign key" else "!"
        rig.kube.put(path, {**obj, "data": {**obj["data"], "tls.key": key}})
    rig.work(1)
    assert rig.believed()
    bundle = rig.trusted()
    assert bundle[0] == old
    assert len(bundle) == 2
    assert rig.injected() == bundle
    for _ in range(40):
        rig.work(5)
        assert rig.believed()
    assert rig.trusted() == bundle[1:]


def test_a_ca_that_expired_while_nobody_led(rig: Rig) -> None:
    rig.work()
    before = rig.bundle("virtpod-ca")
    rig.work(10_000)
    assert rig.believed()
    assert rig.bundle("virtpod-ca") != before
    assert len(rig.bundle("virtpod-ca")) == 1


def test_a_new_leader_goes_on_where_the_old_one_was(rig: Rig) -> None:
    """The marks are in the Secret: changing leaders in every moment of a rotation makes no difference."""
    rig.work()
    bundles = set()
    for _ in range(65):
        rig.controller = rig.make()
        rig.work(10)
        assert rig.believed()
        bundles.add(tuple(rig.bundle("virtpod-ca")))
    assert len(bundles) == 3


def test_a_bundle_that_somebody_removed_is_injected_again(rig: Rig) -> None:
    """`helm upgrade`, or somebody's `kubectl replace`."""
    with running(*(informer.run for informer in rig.controller.informers), rig.controller.run):
        eventually(lambda: rig.controller.ready() is None)
        assert rig.injected()
        assert rig.believed()
        rig.kube.put(SERVICE, {"spec": {"service": OURS}})
        eventually(lambda: rig.injected() == rig.trusted())


def test_who_is_not_there_keeps_nobody_waiting(rig: Rig) -> None:
    for path in (SERVICE, OLD_SERVICE):
        rig.kube.remove(path)
    for _ in range(55):
        rig.work(10)
    assert rig.believed()
    assert len(rig.bundle("virtpod-ca")) == 1


def test_an_api_service_that_may_not_be_written_does_not_keep_the_certificates(rig: Rig) -> None:
    def refuse(method: str, path: str, *_: Any) -> Any:
        return failure(403, "Forbidden", "no") if (method, path) == ("PATCH", SERVICE) else None

    rig.kube.on_request = refuse
    with pytest.raises(ApiError, match="no"):
        rig.work()
    assert rig.believed()
    assert rig.injected(OLD_SERVICE) == rig.bundle("virtpod-ca")


def test_whoever_lost_the_lead_writes_no_more(rig: Rig) -> None:
    """In the middle of its steps."""
    stop = threading.Event()

    def lose(method: str, *_: Any) -> None:
        if method == "POST":
            stop.set()

    rig.kube.on_request = lose
    rig.controller.queue.add(KEY)
    with running(*(informer.run for informer in rig.controller.informers)):
        rig.controller.run(stop)
    assert rig.writes() == [("POST", NS)]


def test_of_two_leaders_one_gets_a_conflict(rig: Rig) -> None:
    """A leader that does not know yet that it is none any more cannot overwrite the new one's certificates."""
    rig.work()

    def overtake(method: str, path: str, *_: Any) -> None:
        if method == "PATCH" and path.startswith(NS):
            rig.kube.on_request = None
            obj = rig.kube.objects[path]
            rig.kube.put(path, {**obj, "metadata": {**obj["metadata"], "labels": {"new": "leader"}}})

    rig.kube.on_request = overtake
    rig.clock.step(81)
    with pytest.raises(Conflict):
        rig.controller.reconcile(KEY)


def test_the_ends_are_metrics(rig: Rig) -> None:
    rig.work()
    ends = rig.leaf("virt-api-serving").not_valid_after_utc.timestamp()
    assert EXPIRY.value("virt-api-serving") == ends
    assert EXPIRY.value("virtpod-ca") > ends


def test_nothing_secret_is_logged(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(65):
        rig.work(10)
    log = capsys.readouterr()
    assert "certificate issued" in log.err
    assert "PRIVATE" not in log.err + log.out
