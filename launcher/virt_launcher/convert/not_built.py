"""What a manifest may ask for and virt-launcher cannot make. Made by `make generate`; do not edit."""

from __future__ import annotations

#: path below the spec, what is said of it
NOT_BUILT: tuple[tuple[str, str], ...] = (
    (
        "domain.devices.disks[].changedBlockTracking",
        "changed block tracking by disk is not built yet; choose VMs by changedBlockTrackingLabelSelectors",
    ),
)
