"""An upgrade of the chart brings running machines to the new launcher and loses none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from framework.helm import CHART, helm

from tests.cluster import Cluster
from tests.e2e.conftest import Space
from tests.e2e.engine import ROOT, eventually
from tests.e2e.test_evacuation import assert_lives, boot_with_word

from .test_certificates import deployed

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

ARCHIVE = ROOT / ".build" / "images" / "virt-launcher.tar"
NEXT = "virt-launcher-next"
#: Another test may have patched a Deployment by hand and put it back: Helm asks before it takes such a field over.
WHERE = ("--namespace", "virtpod", "--wait", "--timeout", "4m", "--force-conflicts")
GUESTS = ("moved0", "moved1", "moved2")


@pytest.fixture
def upgrade(owned: Cluster) -> Iterator[Callable[[], None]]:
    """To a release with the same launcher under another name, which is another image; afterwards as it was."""
    if not ARCHIVE.exists():
        pytest.skip("needs .build/images/virt-launcher.tar: run `make images`")
    owned.load(ARCHIVE, name=f"virtpod.internal/{NEXT}:test")
    before = deployed(owned)
    changed = (
        f"images.virtLauncher.repository={NEXT}",
        "kubevirt.workloadUpdateStrategy.workloadUpdateMethods={LiveMigrate}",
    )

    def change() -> None:
        values = [word for each in changed for word in ("--set", each)]
        helm(
            "upgrade", "virtpod", str(CHART), "--reuse-values", *values, *WHERE, env=owned.environment(), timeout_s=300
        )

    yield change
    helm("rollback", "virtpod", before, *WHERE, env=owned.environment(), timeout_s=300)


def outdated(cluster: Cluster) -> Any:
    return cluster.get("-n", "virtpod", "kubevirt", "kubevirt")["status"].get("outdatedVirtualMachineInstanceWorkloads")


@pytest.mark.timeout(600)
def test_machines_follow_an_upgrade(owned: Cluster, space: Space, upgrade: Callable[[], None]) -> None:
    for name in GUESTS:
        boot_with_word(space, name)
    before = {name: space.vmi(name)["status"] for name in GUESTS}
    upgrade()
    for name in GUESTS:
        eventually(lambda name=name: is_new(space, name), within_s=240, what=f"the new launcher of {name}")
    for name in GUESTS:
        assert_lives(space, name)
        assert space.vmi(name)["status"]["nodeName"] != before[name]["nodeName"]
    eventually(lambda: outdated(owned) == 0, within_s=30, what="no machine with an old launcher")


def is_new(space: Space, name: str) -> bool:
    found = space.vmi(name)
    image = found["status"].get("launcherContainerImageVersion", "")
    return NEXT in image and "kubevirt.io/outdatedLauncherImage" not in found["metadata"]["labels"]
