"""What libvirt is told of a backup and of checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from virt_core.runtime.record import record


@record(frozen=True, slots=True)
class Part:
    """A disk of a backup: all of it, or what has changed."""

    volume: str
    target: str
    incremental: bool = False


def backup_xml(parts: Sequence[Part], paths: Mapping[str, str], since: str) -> str:
    """`paths` by volume. Disks that are not named are left out by libvirt."""
    root = ET.Element("domainbackup", mode="push")
    if since:
        ET.SubElement(root, "incremental").text = since
    disks = ET.SubElement(root, "disks")
    for part in parts:
        disk = ET.SubElement(disks, "disk", name=part.target, backup="yes", type="file")
        disk.set("backupmode", "incremental" if part.incremental else "full")
        if part.incremental:
            disk.set("incremental", since)
        ET.SubElement(disk, "target", file=paths[part.volume])
        ET.SubElement(disk, "driver", type="qcow2")
    return ET.tostring(root, encoding="unicode")


def checkpoint_xml(name: str, parts: Sequence[Part], targets: Sequence[str]) -> str:
    """`targets`: all disks of the machine; those without a layer have no place for a bitmap. Empty without a name."""
    if not name:
        return ""
    root = ET.Element("domaincheckpoint")
    ET.SubElement(root, "name").text = name
    disks, tracked = ET.SubElement(root, "disks"), {part.target for part in parts}
    for target in targets:
        ET.SubElement(disks, "disk", name=target, checkpoint="bitmap" if target in tracked else "no")
    return ET.tostring(root, encoding="unicode")


def redefined_xml(name: str, created: int, targets: Sequence[str]) -> str:
    root = ET.Element("domaincheckpoint")
    ET.SubElement(root, "name").text = name
    ET.SubElement(root, "creationTime").text = str(created)
    disks = ET.SubElement(root, "disks")
    for target in targets:
        ET.SubElement(disks, "disk", name=target, checkpoint="bitmap", bitmap=name)
    return ET.tostring(root, encoding="unicode")
