"""Each rule has a manifest that breaks it, and nothing else."""
# ruff: noqa: E501  (a row of the table is read as one row)

from __future__ import annotations

from typing import Any

import pytest
from unit.api.reviews import create, vmi

INV, REQ, DUP = "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate"
NOT_SUP, NOT_FOUND, FORBIDDEN = "FieldValueNotSupported", "FieldValueNotFound", "FieldValueForbidden"
CLAIM = {"name": "c", "resourceClaimName": "r"}
EFI = {"efi": {"secureBoot": False}}

Parts = dict[str, Any]
Causes = list[tuple[str, str]]

CPU_AND_MEMORY: list[tuple[Parts, Causes]] = [
    ({"domain.cpu": {"sockets": 3, "maxSockets": 2}}, [("domain.cpu.sockets", INV)]),
    ({"domain.cpu": {"features": [{"name": "x", "policy": "maybe"}]}}, [("domain.cpu.features[0].policy", NOT_SUP)]),
    ({"domain.cpu": {"cores": 1, "realtime": {}}},
     [("domain.cpu.dedicatedCpuPlacement", REQ), ("domain.cpu.numa.guestMappingPassthrough", REQ)]),
    ({"domain.cpu": {"cores": 1, "realtime": {"mask": "0-"}, "numa": {"guestMappingPassthrough": {}}, "dedicatedCpuPlacement": True},
      "domain.memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}}, [("domain.cpu.realtime.mask", INV)]),
    ({"domain.cpu": {"cores": 1, "threads": 3, "dedicatedCpuPlacement": True}}, [("domain.cpu.dedicatedCpuPlacement", INV)]),
    ({"domain.cpu": {"cores": 1, "dedicatedCpuPlacement": True}, "domain.resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
     [("domain.cpu.dedicatedCpuPlacement", INV)]),
    ({"domain.cpu": {"cores": 1, "dedicatedCpuPlacement": True},
      "domain.resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}}}, [("domain.resources.requests.memory", INV)]),
    ({"domain.resources": {"requests": {"memory": "1k"}}}, [("domain.resources.requests.memory", INV)]),
    ({"domain.resources": {"limits": {"memory": "-1Mi"}}}, [("domain.resources.limits.memory", INV)]),
    ({"domain.resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, [("domain.resources.requests.cpu", INV)]),
    ({"domain.resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "-1"}}}, [("domain.resources.limits.cpu", INV)]),
    ({"domain.memory": {"guest": "128Mi", "hugepages": {"pageSize": "big"}}}, [("domain.memory.hugepages.pageSize", INV)]),
    ({"domain.memory": {"guest": "128Mi", "reservedOverhead": {}}}, [("domain.memory.reservedOverhead", INV)]),
]  # fmt: skip
MACHINE: list[tuple[Parts, Causes]] = [
    ({"domain.firmware": {"acpi": {}}}, [("acpi", INV)]),
    ({"domain.firmware": {"acpi": {"slicNameRef": "d0"}}}, [("acpi.slicNameRef", INV)]),
    ({"domain.features": {"hyperv": {"ipi": {}, "vpindex": {"enabled": False}}}}, [("domain.features.hyperv.ipi", INV)]),
    ({"domain.launchSecurity": {}}, [("launchSecurity", FORBIDDEN)]),
    ({"domain.launchSecurity": {"tdx": {}}, "domain.firmware": {"bootloader": EFI}}, [("launchSecurity", INV)]),
    ({"domain.launchSecurity": {"sev": {}}}, [("launchSecurity", INV)]),
    ({"domain.launchSecurity": {"sev": {"attestation": {}}}, "domain.firmware": {"bootloader": EFI}}, [("launchSecurity", INV)]),
    ({"domain.launchSecurity": {"snp": {}}, "domain.firmware": {"bootloader": {"efi": {"secureBoot": False, "persistent": True}}}},
     [("launchSecurity", INV)]),
    ({"domain.launchSecurity": {"sev": {}}, "architecture": "arm64"}, [("architecture", INV)]),
    ({"domain.devices.video": {"type": "quxl"}}, [("domain.devices.video.type", NOT_SUP)]),
    ({"domain.devices.video": {"type": "vga"}, "domain.devices.autoattachGraphicsDevice": False}, [("video", INV)]),
    ({"domain.devices.watchdog": {"name": "w", "diag288": {}}}, [("domain.devices.watchdog", NOT_SUP)]),
    ({"architecture": "arm64", "domain.cpu": {"model": "Haswell"}}, [("domain.cpu.model", NOT_SUP)]),
    ({"architecture": "arm64", "domain.firmware": {"bootloader": {"bios": {}}}}, [("domain.firmware.bootloader.bios", NOT_SUP)]),
    ({"architecture": "arm64", "domain.devices.sound": {"name": "s"}}, [("domain.devices.sound", NOT_SUP)]),
    ({"architecture": "arm64", "domain.cpu": {"cores": 1, "threads": 2, "dedicatedCpuPlacement": True}}, [("architecture", INV)]),
    ({"domain.rebootPolicy": "Explode"}, [("domain.rebootPolicy", INV)]),
    ({"domain.ioThreadsPolicy": "many"}, [("domain.ioThreadsPolicy", INV)]),
    ({"domain.ioThreadsPolicy": "supplementalPool"}, [("domain.ioThreads", INV)]),
]  # fmt: skip
DISKS: list[tuple[Parts, Causes]] = [
    ({"domain.devices.disks": [{"name": "d0"}, {"name": "d0"}]}, [("domain.devices.disks[1]", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "lun": {"bus": "scsi"}}]}, [("domain.devices.disks[0].lun", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "cdrom": {"bus": "virtio"}}]}, [("domain.devices.disks[0].cdrom.bus", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "disk": {"bus": "sata", "readonly": True}}]}, [("domain.devices.disks[0].disk.bus", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "disk": {"bus": "virtio", "pciAddress": "1:2"}}]},
     [("domain.devices.disks[0].disk.pciAddress", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "bootOrder": 0}]}, [("domain.devices.disks[0].bootOrder", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "errorPolicy": "cry"}]}, [("domain.devices.disks[0].errorPolicy", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "disk": {"bus": "virtio"}, "blockSize": {"custom": {"logical": 4096, "physical": 512}}}]},
     [("domain.devices.disks[0].blockSize.custom.logical", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "disk": {"bus": "sata"}, "blockSize": {"custom": {"logical": 1024, "physical": 1024}}}]},
     [("domain.devices.disks[0].blockSize.custom.logical", INV)]),
    ({"domain.devices.disks": [{"name": "d0", "disk": {"bus": "virtio"},
                                "blockSize": {"custom": {"logical": 1024, "physical": 1024, "discardGranularity": 1000}}}]},
     [("domain.devices.disks[0].blockSize.custom.discardGranularity", INV)]),
    ({"domain.devices.disks": [], "domain.devices.filesystems": [{"name": "d0", "virtiofs": {}}],
      "volumes": [{"name": "d0", "persistentVolumeClaim": {"claimName": "p"}}]}, [("domain.devices.filesystems", INV)]),
]  # fmt: skip
VOLUMES: list[tuple[Parts, Causes]] = [
    ({"volumes": [{"name": "d0", "emptyDisk": {"capacity": "1Mi"}}, {"name": "d0", "emptyDisk": {"capacity": "1Mi"}}]},
     [("volumes[1].name", INV)]),
    ({"volumes": [{"name": "d0", "containerDisk": {"image": "i:1", "imagePullPolicy": "Sometimes"}}]},
     [("volumes[0].containerDisk.imagePullPolicy", INV)]),
    ({"volumes": [{"name": "d0", "containerDisk": {"image": "i:1", "path": "/disk/../../etc"}}]}, [("volumes[0].containerDisk", INV)]),
    ({"volumes": [{"name": "d0", "hostDisk": {"type": "Disk"}}]}, [("volumes[0]", INV), ("volumes[0].hostDisk.path", NOT_FOUND)]),
    ({"volumes": [{"name": "d0", "serviceAccount": {"serviceAccountName": "a"}}, {"name": "e", "serviceAccount": {"serviceAccountName": "a"}}]},
     [("volumes", INV)]),
    ({"volumes": [{"name": "d0", "serviceAccount": {"serviceAccountName": "a"}}], "serviceAccountName": "b"}, [("serviceAccountName", INV)]),
    ({"volumes": [{"name": "d0", "cloudInitNoCloud": {}}]}, [("volumes[0].cloudInitNoCloud", INV)]),
    ({"utilityVolumes": [{"name": "u", "claimName": "c"}]}, [("utilityVolumes", INV)]),
]  # fmt: skip
NETWORKS: list[tuple[Parts, Causes]] = [
    ({"networks": [{"name": "default", "multus": {"networkName": "a", "default": True}}, {"name": "p", "pod": {}}],
      "domain.devices.interfaces": [{"name": "default", "bridge": {}}, {"name": "p", "masquerade": {}}]}, [("networks", INV)]),
    ({"networks": [{"name": "a", "multus": {"networkName": "a", "default": True}}, {"name": "b", "multus": {"networkName": "b", "default": True}}],
      "domain.devices.interfaces": [{"name": "a", "bridge": {}}, {"name": "b", "bridge": {}}]}, [("networks", INV)]),
    ({"networks": [{"name": "default", "pod": {"vmIPv6NetworkCIDR": "10.0.0.0/24"}}]}, [("networks[0].pod.vmIPv6NetworkCIDR", INV)]),
    ({"networks": [{"name": "a b", "pod": {}}], "domain.devices.interfaces": [{"name": "a b", "masquerade": {}}]},
     [("domain.devices.interfaces[0].name", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}}, {"name": "default", "masquerade": {}}]},
     [("domain.devices.interfaces[1].name", DUP)]),
    ({"domain.devices.interfaces": [{"name": "default"}]}, [("domain.devices.interfaces[0]", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "bridge": {}, "masquerade": {}}]}, [("domain.devices.interfaces[0]", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "slirp": {}}]}, [("domain.devices.interfaces[0].slirp", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "sriov": {}, "state": "up"}]},
     [("domain.devices.interfaces[0].name", INV), ("domain.devices.interfaces[0].state", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "sriov": {}}]}, [("domain.devices.interfaces[0].name", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "dhcpOptions": {"bootFileName": "x" * 256}}]},
     [("domain.devices.interfaces[0].dhcpOptions.bootFileName", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {},
      "dhcpOptions": {"privateOptions": [{"option": 224, "value": "x" * 256}]}}]},
     [("domain.devices.interfaces[0].dhcpOptions.privateOptions[0].value", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "macvtap": {}}]}, [("domain.devices.interfaces[0].macvtap", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "passt": {}}]}, [("domain.devices.interfaces[0].passt", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "binding": {"name": "smoke"}}]},
     [("domain.devices.interfaces[0].binding.name", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "passtBinding": {}, "dhcpOptions": {"bootFileName": "x"}}]},
     [("domain.devices.interfaces[0].dhcpOptions", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "passtBinding": {}, "bootOrder": 1}]},
     [("domain.devices.interfaces[0].bootOrder", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "passtBinding": {}, "state": "absent"}]},
     [("domain.devices.interfaces[0].state", INV), ("domain.devices.interfaces[0].state", INV)]),
    ({"networks": [{"name": "default", "multus": {"networkName": "a"}}],
      "domain.devices.interfaces": [{"name": "default", "passtBinding": {}}]}, [("domain.devices.interfaces[0].name", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "acpiIndex": -1}]},
     [("domain.devices.interfaces[0].acpiIndex", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "acpiIndex": 16384}]},
     [("domain.devices.interfaces[0].acpiIndex", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "pciAddress": "x"}]},
     [("domain.devices.interfaces[0].pciAddress", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "portRanges": [{"protocol": "TCP", "start": 1, "end": 2}]}]},
     [("domain.devices.interfaces[0].portRanges", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "macAddress": "02-00-00-00-00-00"}]},
     [("domain.devices.interfaces[0].macAddress", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 70000}]}]},
     [("domain.devices.interfaces[0].ports[0].port", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 1, "name": "Not_A_Name"}]}]},
     [("domain.devices.interfaces[0].ports[0].name", INV)]),
    ({"domain.devices.interfaces": [{"name": "default", "masquerade": {}, "dhcpOptions": {"privateOptions": [{"option": 9, "value": "x"}]}}]},
     [("", INV)]),
    ({"networks": [{"name": "default", "resourceClaim": {"claimName": "no", "requestName": ""}}],
      "domain.devices.interfaces": [{"name": "default", "sriov": {}}]},
     [("networks", INV), ("networks[0].resourceClaim.claimName", NOT_FOUND), ("networks[0].resourceClaim.requestName", REQ)]),
]  # fmt: skip
OTHERS: list[tuple[Parts, Causes]] = [
    ({"subdomain": "A.b"}, [("subdomain", INV)]),
    ({"serviceAccountName": "Not A Name"}, [("serviceAccountName", INV)]),
    ({"readinessProbe": {"exec": {}, "guestAgentPing": {}}}, [("readinessProbe", INV)]),
    ({"readinessProbe": {"tcpSocket": {"port": 1}}, "networks": [], "domain.devices.interfaces": [],
      "domain.devices.autoattachPodInterface": False}, [("readinessProbe", INV)]),
    ({"dnsPolicy": "Guess"}, [("dnsPolicy", NOT_SUP)]),
    ({"dnsPolicy": "None"}, [("dnsConfig", REQ)]),
    ({"dnsPolicy": "None", "dnsConfig": {}}, [("dnsConfig.nameservers", REQ)]),
    ({"accessCredentials": [{}]}, [("accessCredentials[0]", INV)]),
    ({"accessCredentials": [{"sshPublicKey": {"source": {}, "propagationMethod": {"qemuGuestAgent": {"users": ["u"]}}}}]},
     [("accessCredentials[0].sshPublicKey.source", INV)]),
    ({"accessCredentials": [{"userPassword": {"source": {}, "propagationMethod": {"qemuGuestAgent": {}}}}]},
     [("accessCredentials[0].userPassword.source", INV)]),
    ({"resourceClaims": [{"name": "c"}]}, [("resourceClaims[0]", INV)]),
    ({"resourceClaims": [CLAIM, CLAIM]}, [("resourceClaims[1].name", DUP)]),
    ({"domain.devices.gpus": [{"name": "g"}]}, [("domain.devices.gpus[0]", REQ)]),
    ({"domain.devices.gpus": [{"name": "g", "claimName": "c", "requestName": "r"}]}, [("domain.devices.gpus[0].claimName", NOT_FOUND)]),
    ({"domain.devices.gpus": [{"name": "g", "claimName": "c", "requestName": "r"}] * 2, "resourceClaims": [CLAIM]},
     [("domain.devices.gpus[1]", DUP)]),
    ({"domain.devices.hostDevices": [{"name": "h", "deviceName": "x/y"}]}, [("HostDevices", INV)]),
    ({"domain.devices.autoattachVSOCK": True}, [("domain.devices.autoattachVSOCK", INV)]),
    ({"domain.devices.inputs": [{"name": "i", "type": "tablet", "bus": "ps2"}]}, [("domain.devices.inputs[0].bus", INV)]),
    ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
     [("affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey", REQ)]),
    ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
     [("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", REQ)]),
    ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 101, "preference": {"matchExpressions": [{"key": "k", "operator": "In"}]}}]}}},
     [("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values", REQ),
      ("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight", INV)]),
]  # fmt: skip


def broken(parts: Parts) -> dict[str, Any]:
    obj = vmi()
    for path, value in parts.items():
        *parents, last = path.split(".")
        node = obj["spec"]
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return obj


@pytest.mark.parametrize(("parts", "causes"), CPU_AND_MEMORY + MACHINE + DISKS + VOLUMES + NETWORKS + OTHERS)
def test_a_broken_rule_names_its_field(parts: Parts, causes: Causes) -> None:
    verdict = create(broken(parts))
    expected = [(f"spec.{field}" if field else "spec", type_) for field, type_ in causes]
    assert (verdict.code, sorted(verdict.causes)) == (422, sorted(expected)), verdict.message


def test_only_a_cdrom_drive_may_lack_its_volume() -> None:
    drive = {"name": "cd", "cdrom": {"bus": "sata"}}
    assert create(broken({"domain.devices.disks": [{"name": "d0", "disk": {}}, drive]})).causes == []
    lost = create(broken({"domain.devices.disks": [{"name": "d0", "disk": {}}, {"name": "cd", "disk": {}}]}))
    assert lost.causes == [("spec.domain.devices.disks[1].name", INV)]


@pytest.mark.parametrize(
    ("text", "code"), [("0", 200), ("31", 200), ("32", 422), ("-1", 422), ("four", 422), ("", 422)]
)
def test_the_number_of_ports_for_network_cards(text: str, code: int) -> None:
    obj = broken({})
    obj["metadata"]["annotations"] = {"kubevirt.io/pci-interface-slot-count": text}
    verdict = create(obj)
    assert verdict.causes == ([] if code == 200 else [("metadata.annotations", INV)])
