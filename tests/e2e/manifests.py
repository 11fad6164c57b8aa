"""VMIs for the tests."""

from __future__ import annotations

from typing import Any

from .engine import GUEST_IMAGE


def vmi(name: str, **changes: Any) -> dict[str, Any]:
    """A VMI that boots the test guest from its disk, with one masqueraded NIC."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 20,
            "domain": {
                "memory": {"guest": "128Mi"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": GUEST_IMAGE}}],
            **changes,
        },
    }


def with_volume(manifest: dict[str, Any], name: str, source: dict[str, Any]) -> dict[str, Any]:
    manifest["spec"]["volumes"].append({"name": name, **source})
    manifest["spec"]["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": "virtio"}})
    return manifest


def with_user_data(manifest: dict[str, Any], user_data: str) -> dict[str, Any]:
    return with_volume(manifest, "cloudinit", {"cloudInitNoCloud": {"userData": user_data}})


def kernel_boot(
    name: str, kernel: str = "/boot/vmlinuz", initrd: str = "/boot/initrd.img", **changes: Any
) -> dict[str, Any]:
    """A VMI without any disk that boots kernel and RAM disk out of the image."""
    manifest = vmi(name, volumes=[], **changes)
    manifest["spec"]["domain"]["devices"]["disks"] = []
    container = {"image": GUEST_IMAGE, "kernelPath": kernel, "initrdPath": initrd}
    manifest["spec"]["domain"]["firmware"] = {
        "kernelBoot": {"kernelArgs": "console=ttyS0 quiet no_timer_check", "container": container}
    }
    return manifest
