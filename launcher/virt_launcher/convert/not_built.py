"""What a manifest may ask for and virt-launcher cannot make. Made by `make generate`; do not edit."""

from __future__ import annotations

#: path below the spec, what is said of it
NOT_BUILT: tuple[tuple[str, str], ...] = (
    (
        "domain.cpu.numa",
        "NUMA in the guest is not built yet",
    ),
    (
        "domain.cpu.realtime",
        "real-time scheduling of vCPUs is not built yet",
    ),
    (
        "architecture=arm64|s390x",
        "an architecture other than amd64 is not built yet",
    ),
    (
        "domain.firmware.bootloader.efi.persistent",
        "the keeping of firmware variables over a stop is not built yet; UEFI itself works",
    ),
    (
        "domain.devices.tpm.persistent",
        "a TPM whose state outlives a stop is not built yet; a TPM without persistent works",
    ),
    (
        "domain.devices.filesystems",
        "a shared filesystem is not built yet; use a disk",
    ),
    (
        "domain.devices.downwardMetrics",
        "the delivery of the host's metrics is not built yet",
    ),
    (
        "volumes[].downwardMetrics",
        "the delivery of the host's metrics is not built yet",
    ),
    (
        "domain.devices.gpus",
        "a GPU of the node is not built yet",
    ),
    (
        "domain.devices.hostDevices",
        "a host device is not built yet",
    ),
    (
        "domain.launchSecurity",
        "encrypted guest memory is not built yet",
    ),
    (
        "domain.devices.disks[].lun.reservation",
        "SCSI persistent reservation is not built yet",
    ),
    (
        "volumes[].containerPath",
        "a path of the launcher's container as a volume is not built yet",
    ),
    (
        "domain.devices.disks[].changedBlockTracking",
        "the backup of a VM is not built yet; copy the claims of a stopped VM by your storage's own means",
    ),
    (
        "volumes[].memoryDump",
        "a memory dump is not built yet",
    ),
    (
        "domain.devices.interfaces[].sriov",
        "SR-IOV is not built yet; use masquerade or bridge",
    ),
    (
        "domain.devices.interfaces[].passtBinding",
        "the passt binding is not built yet; use masquerade or bridge",
    ),
    (
        "domain.devices.interfaces[].binding",
        "a network binding plugin is not built yet; use masquerade or bridge",
    ),
)
