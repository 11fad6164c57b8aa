"""A preference fills in, and never contradicts."""

from __future__ import annotations

from typing import Any

import pytest
from framework.instancetypes import habit, spec

from virt_core.apis.base import to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.instancetype import apply


def applied(given: dict[str, Any], preference: dict[str, Any]) -> dict[str, Any]:
    target = spec(**given)
    assert apply(target, ObjectMeta(), None, habit(**preference)) == []
    plain: dict[str, Any] = to_plain(target)
    return plain


def devices(given: dict[str, Any], **preferred: Any) -> dict[str, Any]:
    plain: dict[str, Any] = applied({"domain": {"devices": given}}, {"devices": preferred})["domain"].get("devices", {})
    return plain


@pytest.mark.parametrize(
    ("field", "preferred"),
    [
        ("autoattachGraphicsDevice", "preferredAutoattachGraphicsDevice"),
        ("autoattachMemBalloon", "preferredAutoattachMemBalloon"),
        ("autoattachPodInterface", "preferredAutoattachPodInterface"),
        ("autoattachSerialConsole", "preferredAutoattachSerialConsole"),
        ("autoattachInputDevice", "preferredAutoattachInputDevice"),
        ("useVirtioTransitional", "preferredUseVirtioTransitional"),
        ("blockMultiQueue", "preferredBlockMultiQueue"),
        ("networkInterfaceMultiqueue", "preferredNetworkInterfaceMultiQueue"),
    ],
)
def test_switches(field: str, preferred: str) -> None:
    assert devices({}, **{preferred: False})[field] is False
    assert devices({field: True}, **{preferred: False})[field] is True
    assert field not in devices({}, preferredRng={})


def test_rng_tpm_sound_video_panic_and_hotplug() -> None:
    found = devices(
        {"sound": {"name": "s"}},
        preferredRng={},
        preferredTPM={"persistent": True},
        preferredSoundModel="ac97",
        preferredVideoType="virtio",
        preferredPanicDeviceModel="isa",
        preferredDisableHotplug=True,
    )
    assert found["rng"] == {}
    assert found["tpm"] == {"persistent": True}
    assert found["sound"]["model"] == "ac97"
    assert found["video"]["type"] == "virtio"
    assert found["panicDevices"] == [{"model": "isa"}]
    assert found["disableHotplug"] is True
    kept = devices({"panicDevices": [{"model": "hyperv"}, {}]}, preferredPanicDeviceModel="isa")
    assert kept["panicDevices"] == [{"model": "hyperv"}, {"model": "isa"}]
    assert "sound" not in devices({}, preferredSoundModel="ac97")


def test_disks() -> None:
    given = [
        {"name": "a"},
        {"name": "b", "disk": {"bus": "sata"}, "cache": "none"},
        {"name": "c", "cdrom": {}},
        {"name": "d", "lun": {}},
    ]
    found = devices(
        {"disks": given},
        preferredDiskBus="virtio",
        preferredCdromBus="usb",
        preferredLunBus="scsi",
        preferredDiskCache="writeback",
        preferredDiskIO="threads",
        preferredDiskDedicatedIoThread=True,
        preferredDiskBlockSize={"matchVolume": {}},
    )["disks"]
    assert found[0]["disk"] == {"bus": "virtio"}
    assert (found[0]["cache"], found[0]["io"], found[0]["dedicatedIOThread"]) == ("writeback", "threads", True)
    assert found[0]["blockSize"] == {"matchVolume": {}}
    assert (found[1]["disk"], found[1]["cache"]) == ({"bus": "sata"}, "none")
    assert "dedicatedIOThread" not in found[1]  # Only virtio disks can have one.
    assert found[2] == {"name": "c", "cdrom": {"bus": "usb"}}
    assert found[3] == {"name": "d", "lun": {"bus": "scsi"}}


def test_interfaces() -> None:
    given = {
        "domain": {
            "devices": {
                "interfaces": [{"name": "a"}, {"name": "b", "bridge": {}, "model": "igb"}, {"name": "c"}],
            }
        },
        "networks": [{"name": "a", "pod": {}}, {"name": "b", "pod": {}}, {"name": "c", "multus": {"networkName": "n"}}],
    }
    preferred = {"devices": {"preferredInterfaceModel": "e1000", "preferredInterfaceMasquerade": {}}}
    a, b, c = applied(given, preferred)["domain"]["devices"]["interfaces"]
    assert a == {"name": "a", "model": "e1000", "masquerade": {}}
    assert b == {"name": "b", "model": "igb", "bridge": {}}
    assert c == {"name": "c", "model": "e1000"}  # Only on the Pod network.


def test_inputs_and_gpus() -> None:
    found = devices(
        {
            "inputs": [{"name": "i", "type": ""}, {"name": "j", "type": "keyboard", "bus": "usb"}],
            "gpus": [{"name": "g"}],
        },
        preferredInputBus="virtio",
        preferredInputType="tablet",
        preferredVirtualGPUOptions={"display": {"enabled": True}},
    )
    assert found["inputs"][0] == {"name": "i", "type": "tablet", "bus": "virtio"}
    assert found["inputs"][1] == {"name": "j", "type": "keyboard", "bus": "usb"}
    assert found["gpus"][0]["virtualGPUOptions"]["display"]["enabled"] is True


def test_features_merge_one_by_one() -> None:
    given = {
        "domain": {"devices": {}, "features": {"acpi": {"enabled": False}, "hyperv": {"vapic": {"enabled": False}}}}
    }
    preferred = {
        "preferredAcpi": {},
        "preferredApic": {"endOfInterrupt": True},
        "preferredSmm": {},
        "preferredKvm": {"hidden": True},
        "preferredPvspinlock": {},
        "preferredHyperv": {"vapic": {}, "relaxed": {}},
    }
    found = applied(given, {"features": preferred})["domain"]["features"]
    assert found["acpi"] == {"enabled": False}
    assert found["apic"] == {"endOfInterrupt": True}
    assert found["kvm"] == {"hidden": True}
    assert found["smm"] == found["pvspinlock"] == {}
    assert found["hyperv"] == {"vapic": {"enabled": False}, "relaxed": {}}


@pytest.mark.parametrize(
    ("given", "preferred", "expected"),
    [
        ({}, {"preferredUseBios": True, "preferredUseBiosSerial": True}, {"bios": {"useSerial": True}}),
        ({}, {"preferredUseBios": False}, {}),
        ({}, {"preferredEfi": {"secureBoot": False}}, {"efi": {"secureBoot": False}}),
        ({}, {"preferredUseEfi": True, "preferredUseSecureBoot": True}, {"efi": {"secureBoot": True}}),
        ({"bios": {}}, {"preferredEfi": {}}, {"bios": {}}),
        ({"efi": {}}, {"preferredUseBios": True}, {"efi": {}}),
        ({"efi": {"secureBoot": False}}, {"preferredUseSecureBoot": True}, {"efi": {"secureBoot": False}}),
        ({"bios": {}}, {"preferredUseBiosSerial": True}, {"bios": {"useSerial": True}}),
        ({}, {"preferredEfi": {}, "preferredUseSecureBoot": True}, {"efi": {}}),
    ],
)
def test_firmware(given: dict[str, Any], preferred: dict[str, Any], expected: dict[str, Any]) -> None:
    start = {"domain": {"devices": {}, "firmware": {"bootloader": given}}}
    assert applied(start, {"firmware": preferred})["domain"]["firmware"]["bootloader"] == expected


def test_clock() -> None:
    preferred = {"clock": {"preferredClockOffset": {"timezone": "UTC"}, "preferredTimer": {"pit": {}}}}
    assert applied({}, preferred)["domain"]["clock"] == {"timezone": "UTC", "timer": {"pit": {}}}
    given = {"domain": {"devices": {}, "clock": {"utc": {}, "timer": {"rtc": {}}}}}
    assert applied(given, preferred)["domain"]["clock"] == {"utc": {}, "timer": {"rtc": {}}}


def test_cpu_features_are_added_to_those_of_the_author() -> None:
    given = {"domain": {"devices": {}, "cpu": {"features": [{"name": "a", "policy": "disable"}]}}}
    preferred = {"cpu": {"preferredCPUFeatures": [{"name": "a", "policy": "require"}, {"name": "b"}]}}
    found = applied(given, preferred)["domain"]["cpu"]["features"]
    assert found == [{"name": "a", "policy": "disable"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("given", "preferred", "field", "expected"),
    [
        ({}, {"preferredSubdomain": "x"}, "subdomain", "x"),
        ({"subdomain": "y"}, {"preferredSubdomain": "x"}, "subdomain", "y"),
        ({}, {"preferredTerminationGracePeriodSeconds": 7}, "terminationGracePeriodSeconds", 7),
        ({}, {"preferredArchitecture": "arm64"}, "architecture", "arm64"),
        ({"architecture": "amd64"}, {"preferredArchitecture": "arm64"}, "architecture", "amd64"),
    ],
)
def test_the_rest(given: dict[str, Any], preferred: dict[str, Any], field: str, expected: Any) -> None:
    assert applied(given, preferred)[field] == expected


def test_no_grace_is_a_grace_too() -> None:
    found = applied({"terminationGracePeriodSeconds": 0}, {"preferredTerminationGracePeriodSeconds": 7})
    assert found["terminationGracePeriodSeconds"] == 0


def test_machine_and_launch_security() -> None:
    preferred = {"machine": {"preferredMachineType": "pc-q35-7.2"}, "preferredLaunchSecurity": {"snp": {}}}
    found = applied({}, preferred)["domain"]
    assert found["machine"] == {"type": "pc-q35-7.2"}
    assert found["launchSecurity"] == {"snp": {}}
    given = {"domain": {"devices": {}, "machine": {"type": "q35"}, "launchSecurity": {"tdx": {}}}}
    kept = applied(given, preferred)["domain"]
    assert kept["machine"] == {"type": "q35"}
    assert kept["launchSecurity"] == {"tdx": {}}


def test_annotations_give_way() -> None:
    meta = ObjectMeta(annotations={"a": "mine"})
    apply(spec(), meta, None, habit(annotations={"a": "theirs", "b": "theirs"}))
    assert meta.annotations == {"a": "mine", "b": "theirs"}
