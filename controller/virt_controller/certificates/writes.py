"""Carries out the steps of a plan: each one is a single write that fails if somebody else was faster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from virt_controller.certificates.authorities import NEXT_TRUSTED_SINCE, SETTLED_SINCE, Authorities
from virt_controller.certificates.bundles import encoded, render
from virt_controller.certificates.model import AUTHORITY_STEPS, Issue, Plan, Policy, Publish, Step
from virt_controller.certificates.snapshot import Snapshot, shared_data
from virt_controller.certificates.targets import TARGETS
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.names import CERTS_BUNDLE, CERTS_CA, LABEL_APP, TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE
from virt_core.kube.client import KubeClient
from virt_core.kube.patch import op, pointer
from virt_core.kube.writes import write_operations
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter
from virt_core.runtime.x509 import Leaf as Role
from virt_core.runtime.x509 import make_leaf

log = get_logger(__name__)

ISSUED = Counter("virt_certificates_issued_total", "Certificates and CAs that were made.", ("certificate",))

LABELS = {LABEL_APP: "", "app.kubernetes.io/managed-by": "virt-controller", "app.kubernetes.io/part-of": "virtpod"}
SECRET_TYPE = "kubernetes.io/tls"  # noqa: S105 - a kind of Secret, not a secret
_STAMPS = (NEXT_TRUSTED_SINCE, SETTLED_SINCE)


class Writer:
    def __init__(self, client: KubeClient, namespace: str, roles: dict[str, Role], policy: Policy) -> None:
        self._client, self._namespace, self._roles, self._policy = client, namespace, roles, policy

    def authorities(self, seen: Snapshot, plan: Plan, now: datetime) -> None:
        """All steps that change the authorities, in one write. Raises ApiError."""
        changed = seen.authorities
        for step in plan.steps:
            if isinstance(step, AUTHORITY_STEPS):
                changed = changed.after(step, now, self._policy.ca_life)
                log.info("certificate authorities change", step=_words(step))
                ISSUED.inc(CERTS_CA, by=float(type(step).__name__ == "Make"))
        self._write_authorities(seen, changed)

    def carry_out(self, step: Step, seen: Snapshot, now: datetime) -> None:
        """A bundle or a certificate. Raises ApiError."""
        if isinstance(step, Issue):
            self._issue(step, seen, now)
        elif isinstance(step, Publish) and step.holder == CERTS_CA:
            self._write_authorities(seen, seen.authorities)
        elif isinstance(step, Publish):
            self._publish(step.holder, seen)

    def _write_authorities(self, seen: Snapshot, wanted: Authorities) -> None:
        self._write(seen.secrets[CERTS_CA], CERTS_CA, wanted.data(), wanted.annotations())

    def _issue(self, step: Issue, seen: Snapshot, now: datetime) -> None:
        signer = seen.authorities.signer(step.signer)
        pair = make_leaf(signer, self._roles[step.leaf], now, self._policy.leaf_life)
        files = {
            TLS_CERT_FILE: pair.cert_pem,
            TLS_KEY_FILE: pair.key_pem,
            TLS_CA_FILE: render(seen.authorities.trusted()),
        }
        self._write(seen.secrets[step.leaf], step.leaf, {name: encoded(data) for name, data in files.items()})
        ISSUED.inc(step.leaf)
        log.info("certificate issued", secret=step.leaf, ends=pair.certificate.not_valid_after_utc.isoformat())

    def _publish(self, holder: str, seen: Snapshot) -> None:
        if holder == CERTS_BUNDLE:
            self._share(seen)
            return
        bundle = encoded(render(seen.authorities.trusted()))
        secret = seen.secrets.get(holder)
        if secret is not None:
            write_operations(self._client, secret, [op.add(pointer("data", TLS_CA_FILE), bundle)])
            return
        target = next(target for target in TARGETS if target.key == holder)
        obj = seen.targets[holder]
        write_operations(self._client, obj, target.operations(obj, self._namespace, bundle))
        log.info("CA bundle injected", into=holder)

    def _share(self, seen: Snapshot) -> None:
        data, old = shared_data(seen.authorities), seen.shared
        if old is None:
            meta = ObjectMeta(name=CERTS_BUNDLE, namespace=self._namespace, labels=dict(LABELS))
            self._client.create(ConfigMap(metadata=meta, data=data))
        else:
            write_operations(self._client, old, [op.add("/data", data)])
        log.info("CA bundle shared with the nodes", config_map=CERTS_BUNDLE)

    def _write(self, old: Secret | None, name: str, data: dict[str, str], stamps: dict[str, str] | None = None) -> None:
        if old is None:
            meta = ObjectMeta(name=name, namespace=self._namespace, labels=dict(LABELS), annotations=stamps or {})
            self._client.create(Secret(metadata=meta, type=SECRET_TYPE, data=data))
            return
        operations: list[dict[str, Any]] = [op.add("/data", data)] if data != old.data else []
        if stamps is not None:
            operations += _stamp_operations(old.metadata.annotations, stamps)
        write_operations(self._client, old, operations)


def _stamp_operations(old: dict[str, str], wanted: dict[str, str]) -> list[dict[str, Any]]:
    kept = {name: value for name, value in old.items() if name not in _STAMPS} | wanted
    return [op.add("/metadata/annotations", kept)] if kept != old else []


def _words(step: Step) -> str:
    return " ".join([type(step).__name__.lower(), *(str(getattr(step, name)) for name in step.__dataclass_fields__)])
