"""What the firmware hands to the guest: ACPI tables out of Secrets, and the data of Ignition.

Both are checked and then copied to a place of ours: the node writes a mounted Secret anew when it changes, and QEMU
must read the very bytes that were looked at.
"""

from __future__ import annotations

import os
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.ignition import fault_of
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks.sources import FirmwareFiles, check_volume_name
from virt_launcher.errors import InvalidVMIError
from virt_launcher.settings import Paths

#: The most that QEMU takes for one table.
_MOST_TABLE_BYTES = 65535
#: Signature, length, revision, checksum, and who made it.
_HEADER_BYTES = 36


def make_firmware_files(vmi: VirtualMachineInstance, paths: Paths) -> FirmwareFiles:
    """Made once; later calls find them. Raises InvalidVMIError."""
    firmware = vmi.spec.domain.firmware
    acpi = firmware.acpi if firmware is not None else None
    return FirmwareFiles(
        slic=_table(vmi, paths, "slic", acpi.slic_name_ref) if acpi is not None else "",
        msdm=_table(vmi, paths, "msdm", acpi.msdm_name_ref) if acpi is not None else "",
        ignition=_ignition(vmi.metadata.annotations.get(names.ANNOTATION_IGNITION), paths),
    )


def _table(vmi: VirtualMachineInstance, paths: Paths, kind: str, volume: str) -> str:
    if not volume:
        return ""
    field, target = f"spec.domain.firmware.acpi.{kind}NameRef", paths.acpi_tables / f"{kind}.bin"
    check_volume_name(volume, field)
    if not any(each.name == volume and each.secret is not None for each in vmi.spec.volumes):
        raise InvalidVMIError(field, f"there is no Secret volume {volume!r}")
    if not target.exists():
        content = _read(paths.file_volume(volume) / target.name, field)
        if fault := _fault_of_table(content, kind.upper()):
            raise InvalidVMIError(field, f"{target.name} of volume {volume!r} {fault}")
        _keep(target, content)
    return str(target)


def _read(path: Path, field: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_TABLE_BYTES + 1)
    except OSError as error:
        raise InvalidVMIError(field, f"the Secret has no {path.name} that can be read: {error.strerror}") from error


def _fault_of_table(content: bytes, signature: str) -> str | None:
    """What is wrong with its header; None: nothing."""
    if len(content) > _MOST_TABLE_BYTES:
        return f"has more than {_MOST_TABLE_BYTES} bytes, which is the most that QEMU takes"
    if len(content) < _HEADER_BYTES:
        return f"has {len(content)} bytes; the header of an ACPI table alone has {_HEADER_BYTES}"
    if content[:4] != signature.encode():
        return f"has the signature {content[:4].decode('latin-1')!r}; it must be {signature!r}"
    if (length := int.from_bytes(content[4:8], "little")) != len(content):
        return f"has {len(content)} bytes, but its header says {length}"
    if sum(content) % 256:
        return "has a wrong checksum: its bytes must add up to 0 modulo 256"
    return None


def _ignition(data: str | None, paths: Paths) -> str:
    if data is None:
        return ""
    target = paths.ignition / "data.ign"
    if not target.exists():
        if fault := fault_of(data):
            raise InvalidVMIError(f"metadata.annotations[{names.ANNOTATION_IGNITION}]", fault)
        _keep(target, data.encode())
    return str(target)


def _keep(target: Path, content: bytes) -> None:
    """Whole or not at all, and for nobody else to read: licences and passwords are in there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
    os.replace(draft, target)
