"""Memory and devices of a machine in a file, and back. Imported only when somebody saves or resumes a machine.

By libvirt's external snapshot of the memory alone, not by its own save: that ends the machine before anybody can know
that the file is on the disk.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import libvirt

from virt_launcher.domain.domain import from_xml


def save(domain: Any, path: str) -> None:
    """No disk has a part in it, and libvirt keeps no record of it."""
    request = ElementTree.Element("domainsnapshot")
    ElementTree.SubElement(request, "memory", snapshot="external", file=path)
    disks = ElementTree.SubElement(request, "disks")
    for disk in from_xml(domain.XMLDesc(0)).devices.disks:
        ElementTree.SubElement(disks, "disk", name=disk.target or "", snapshot="no")
    xml = ElementTree.tostring(request, encoding="unicode")
    domain.snapshotCreateXML(xml, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA)


def restore(connection: Any, domain: Any, path: str) -> None:
    """libvirt compares our definition with the one in the file, of which only the order of the processors is taken."""
    ours = ElementTree.fromstring(domain.XMLDesc(0))  # noqa: S314 - libvirt's own
    _order_processors(ours, connection.saveImageGetXMLDesc(path, 0))
    xml = ElementTree.tostring(ours, encoding="unicode")
    connection.restoreFlags(path, xml, libvirt.VIR_DOMAIN_SAVE_PAUSED)


def _order_processors(ours: ElementTree.Element, saved: str) -> None:
    """libvirt numbers them as they come while the machine runs, and wants the same numbers again."""
    theirs = ElementTree.fromstring(saved)  # noqa: S314 - libvirt has read it and written it anew
    known = {each.get("id"): each.get("order", "") for each in theirs.iterfind("vcpus/vcpu")}
    for vcpu in ours.iterfind("vcpus/vcpu"):
        order = known.get(vcpu.get("id"), "") or ""
        if vcpu.get("enabled") == "yes" and order.isdecimal():
            vcpu.set("order", order)
