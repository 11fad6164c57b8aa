"""Admission follows the configuration, one snapshot for one review."""

from __future__ import annotations

from typing import Any

import pytest

from virt_api.admission.causes import Denied
from virt_api.admission.defaults.devices import pod_network
from virt_api.admission.rules import networks
from virt_api.admission.rules.base import Check
from virt_api.live import LiveAdmitters
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.clusterconfig import ClusterConfig


def test_the_checks_are_made_anew_when_the_configuration_changes_and_only_then() -> None:
    now = [ClusterConfig(cpu_model="a")]
    made: list[str] = []

    def make(config: ClusterConfig) -> dict[str, Any]:
        made.append(config.cpu_model)
        return {"/x": lambda _: [{"model": config.cpu_model}]}

    admit = LiveAdmitters(make, lambda: now[0]).by_path()["/x"]
    request = AdmissionRequest(uid="1")
    assert admit(request) == [{"model": "a"}]
    assert admit(request) == [{"model": "a"}]
    now[0] = ClusterConfig(cpu_model="b")
    assert admit(request) == [{"model": "b"}]
    assert made == ["a", "b"]


def test_a_default_network_that_no_longer_exists_is_refused_not_replaced() -> None:
    spec = VirtualMachineInstanceSpec()
    pod_network(spec, ClusterConfig(default_network_interface="slirp"))
    assert spec.domain.devices.interfaces[0].slirp is not None
    causes = list(networks.interface_bindings(Check(spec, ClusterConfig())))
    assert any(cause.field.startswith("spec.domain.devices.interfaces[0]") for cause in causes)


def test_nothing_is_admitted_by_a_configuration_that_was_never_read() -> None:
    ready = [False]
    live = LiveAdmitters(lambda _: {"/x": lambda _: []}, ClusterConfig, lambda: ready[0])
    admit = live.by_path()["/x"]
    with pytest.raises(Denied) as caught:
        admit(AdmissionRequest(uid="1"))
    assert caught.value.code == 503
    ready[0] = True
    assert admit(AdmissionRequest(uid="1")) == []
