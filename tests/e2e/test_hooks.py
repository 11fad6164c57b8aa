"""Hook sidecars: the guest is what they made of it, and a bad one is the reason why there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Configure, Space, admitted
from .engine import eventually
from .manifests import kernel_boot, vmi, with_user_data

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

ANNOTATION = "hooks.kubevirt.io/hookSidecars"
#: What the launcher's image has of languages.
HEAD = "#!/usr/bin/python3\nimport json, sys\nargs = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
SCRIPTS = {
    "board": "board = '<baseBoard><entry name=\"manufacturer\">Radical Edward</entry></baseBoard></sysinfo>'\n"
    "print(args['--domain'].replace('</sysinfo>', board))",
    "seed": "data = json.loads(args['--cloud-init'])\n"
    "data['UserData'] += 'echo hooked-$(hostname) > /run/hooked\\n'\nprint(json.dumps(data))",
    "nonsense": "print('<domain><name>another</name></domain>')",
    "failing": "sys.exit('there is no such card')",
}


@pytest.fixture
def opened(space: Space, configure: Configure) -> Space:
    """The gate is open, and the scripts are in a ConfigMap."""
    data = {name: HEAD + text + "\n" for name, text in SCRIPTS.items()}
    space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": data})
    manifest = hooked(vmi("gate"), board="onDefineDomain")
    assert "needs the feature gate Sidecar" in space.refuse(manifest)
    configure({"developerConfiguration": {"featureGates": ["Sidecar"]}})
    eventually(lambda: admitted(space, manifest), within_s=10, what="the gate is open")
    return space


def hooked(manifest: dict[str, Any], **scripts: str) -> dict[str, Any]:
    """With a sidecar for each script, at the point that is named."""
    wanted = [
        {
            "args": ["--version", "v1alpha3"],
            "configMap": {"name": "scripts", "key": key, "hookPath": f"/usr/bin/{point}"},
        }
        for key, point in scripts.items()
    ]
    manifest["metadata"]["annotations"] = {ANNOTATION: json.dumps(wanted)}
    return manifest


def test_scripts_out_of_a_config_map_change_the_guest(opened: Space) -> None:
    """Its board by the domain, its first boot by the seed; and with the machine they end."""
    space = opened
    manifest = with_user_data(vmi("changed"), "#!/bin/sh\n")
    space.boot(hooked(manifest, board="onDefineDomain", seed="preCloudInitIso"))
    with space.console("changed") as console:
        console.prompt()
        assert "Radical Edward" in console.shell("cat /sys/class/dmi/id/board_vendor")
        # The seed's script runs once the network is there.
        eventually(lambda: "hooked-changed" in console.shell("cat /run/hooked"), within_s=60, what="the changed seed")
        console.send("poweroff")
        console.expect("Power down")
    space.phase("changed", "Succeeded", within_s=90)

    def ended() -> bool:
        (pod,) = space.engine.get("-n", space.namespace, "pod")["items"]
        return all("terminated" in status["state"] for status in pod["status"]["containerStatuses"])

    eventually(ended, within_s=30, what="the sidecars ended with the machine")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("nonsense", "changes who the machine is"),
        ("failing", "there is no such card"),
    ],
)
def test_a_bad_sidecar_is_the_reason(opened: Space, script: str, why: str) -> None:
    space = opened
    space.apply(hooked(kernel_boot("refused"), **{script: "onDefineDomain"}))
    space.phase("refused", "Failed", within_s=90)
    told = space.virtctl("explain", "vmi", "refused")
    assert "hook-sidecar-0" in told
    assert why in told
