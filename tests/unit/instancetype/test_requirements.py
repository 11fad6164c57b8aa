"""What a preference demands."""

from __future__ import annotations

from typing import Any

import pytest
from framework.instancetypes import habit, size, spec

from virt_core.instancetype import unmet_requirements

CPU = "spec.template.spec.domain.cpu"


def needs(topology: str = "sockets", across: str = "SocketsCores", **requirements: Any) -> Any:
    return habit(cpu={"preferredCPUTopology": topology, "spreadOptions": {"across": across}}, requirements=requirements)


def machine(**cpu: int) -> Any:
    return spec(domain={"devices": {}, "cpu": cpu})


def test_nothing_is_demanded_without_requirements() -> None:
    assert unmet_requirements(spec(), None, None) == []
    assert unmet_requirements(spec(), None, habit()) == []


@pytest.mark.parametrize(("vcpus", "memory", "fields"), [(4, "4Gi", 0), (2, "4Gi", 1), (4, "2Gi", 1), (2, "2Gi", 2)])
def test_the_instance_type_must_reach_it(vcpus: int, memory: str, fields: int) -> None:
    found = unmet_requirements(spec(), size(vcpus, memory), needs(cpu={"guest": 4}, memory={"guest": "4Gi"}))
    assert [conflict.field for conflict in found] == ["spec.instancetype"] * fields
    assert all(conflict.unmet for conflict in found)
    assert all(conflict.message.startswith("failure checking preference requirements: ") for conflict in found)


@pytest.mark.parametrize(
    ("topology", "across", "cpu", "fields"),
    [
        ("sockets", "", {"sockets": 4}, []),
        ("sockets", "", {"sockets": 2, "cores": 2}, ["sockets"]),
        ("cores", "", {"cores": 4}, []),
        ("cores", "", {"sockets": 4}, ["cores"]),
        ("preferThreads", "", {"threads": 2}, ["threads"]),
        ("any", "", {"sockets": 2, "cores": 2, "threads": 1}, []),
        ("any", "", {"sockets": 1, "cores": 2, "threads": 1}, ["cores", "sockets", "threads"]),
        ("spread", "SocketsCores", {"sockets": 2, "cores": 2}, []),
        ("spread", "SocketsCores", {"sockets": 1, "cores": 2}, ["sockets", "cores"]),
        ("spread", "CoresThreads", {"cores": 2, "threads": 1}, ["cores", "threads"]),
        ("spread", "SocketsCoresThreads", {"sockets": 1, "cores": 2, "threads": 2}, []),
    ],
)
def test_the_vm_itself_must_reach_it(topology: str, across: str, cpu: dict[str, int], fields: list[str]) -> None:
    found = unmet_requirements(machine(**cpu), None, needs(topology, across, cpu={"guest": 4}))
    assert [conflict.field for conflict in found] == [f"{CPU}.{name}" for name in fields]


def test_a_vm_that_names_no_cpu() -> None:
    found = unmet_requirements(spec(), None, needs(cpu={"guest": 2}))
    assert [conflict.field for conflict in found] == [CPU]


def test_memory_of_the_vm() -> None:
    wanted = needs(memory={"guest": "1Gi"})
    small = spec(domain={"devices": {}, "memory": {"guest": "512Mi"}})
    big = spec(domain={"devices": {}, "memory": {"guest": "1024Mi"}})
    (found,) = unmet_requirements(small, None, wanted)
    assert found.field == "spec.template.spec.domain.memory"
    told = "insufficient Memory resources of 512Mi provided by VirtualMachine, preference requires 1Gi"
    assert found.message == f"failure checking preference requirements: {told}"
    assert unmet_requirements(big, None, wanted) == []
    assert unmet_requirements(spec(), None, wanted) == []


def test_architecture() -> None:
    wanted = needs(architecture="arm64")
    assert unmet_requirements(spec(architecture="arm64"), size(), wanted) == []
    found = unmet_requirements(spec(architecture="amd64"), size(), wanted)
    assert [conflict.field for conflict in found] == ["spec.template.spec.architecture"]
