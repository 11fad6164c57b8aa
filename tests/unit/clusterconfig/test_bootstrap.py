"""The first KubeVirt object of a virt-local instance, and what its webhook says."""

from __future__ import annotations

from typing import Any

import msgspec
from framework.fake_kube import fake_kube

from virt_api.admission.kubevirt import KubeVirtValidator
from virt_api.admission.review import Accepted
from virt_core.apis.admission import AdmissionRequest
from virt_core.kube.clusterconfig import effective
from virt_local.up.bootstrap import apply_all
from virt_local.up.manifests import default_configuration

PATH = "/apis/kubevirt.io/v1/namespaces/virtpod/kubevirts/kubevirt"


def test_it_is_written_once_and_then_belongs_to_its_owner() -> None:
    with fake_kube() as kube:
        assert apply_all(kube.client(), [default_configuration()]) == 1
        written = kube.objects[PATH]
        assert effective(written["spec"]["configuration"]).use_emulation
        kube.put(PATH, written | {"spec": {"configuration": {"cpuModel": "Nehalem"}}})
        assert apply_all(kube.client(), [default_configuration()]) == 0
        assert kube.objects[PATH]["spec"] == {"configuration": {"cpuModel": "Nehalem"}}


def test_gates_without_effect_are_warned_of() -> None:
    developer = {"featureGates": ["NUMA", "HostDisk", "Typo"]}
    obj = {"metadata": {"name": "kubevirt"}, "spec": {"configuration": {"developerConfiguration": developer}}}
    nobody: Any = None
    raw = msgspec.Raw(msgspec.json.encode(obj))
    answer = KubeVirtValidator(nobody)(AdmissionRequest(uid="1", operation="UPDATE", object=raw))
    assert isinstance(answer, Accepted)
    assert [line.split()[2] for line in answer.warnings] == ["NUMA", "Typo"]
