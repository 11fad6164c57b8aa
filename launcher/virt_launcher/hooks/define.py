"""What sidecars make of the domain's XML.

Whatever it says is defined: that is what a sidecar is for, and libvirt says whether it makes sense. Only who the
machine is stays ours, for everything else goes by it.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from virt_core.apis.base import encode
from virt_core.apis.hooksidecars import ON_DEFINE_DOMAIN
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.domain.codec import DomainXmlError
from virt_launcher.domain.domain import Domain, from_xml, to_xml
from virt_launcher.hooks.sidecars import Sidecar, Sidecars, refuse
from virt_protos.hooks.v1alpha3 import callbacks_pb2 as pb

MAX_BYTES = 1 << 20
_OURS = ("name", "uuid", "vmi_uid")


def define(sidecars: Sidecars, xml: str, vmi: VirtualMachineInstance) -> str:
    """Raises InvalidVMIError, which names the sidecar."""
    document, machine, ours = xml, encode(vmi), from_xml(xml)

    def ask(sidecar: Sidecar) -> None:
        nonlocal document
        request = pb.OnDefineDomainParams(domainXML=document.encode(), vmi=machine)
        answer = sidecars.call(sidecar, ON_DEFINE_DOMAIN, request, pb.OnDefineDomainResult)
        try:
            document = checked(answer.domainXML, ours)
        except ValueError as error:
            raise refuse(sidecar, ON_DEFINE_DOMAIN, f"answered with something that {error}") from error

    sidecars.ask(ON_DEFINE_DOMAIN, ask)
    return document


def checked(answer: bytes, ours: Domain) -> str:
    """Raises ValueError, whose text goes on from "something that"."""
    if len(answer) > MAX_BYTES:
        raise ValueError(f"has {len(answer)} bytes; at most {MAX_BYTES} are allowed")
    try:
        text = answer.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise ValueError("declares a document type")
    try:
        theirs = from_xml(text)
    except (DomainXmlError, ValueError) as error:
        raise ValueError(f"is not the XML of a domain: {error}") from error
    for field in _OURS:
        found, own = getattr(theirs, field), getattr(ours, field)
        if found is not None and found != own:
            raise ValueError(f"changes who the machine is: {field} is {str(found)[:100]!r}, not {own!r}")
    return text if all(getattr(theirs, field) == getattr(ours, field) for field in _OURS) else _identified(text, ours)


def _identified(text: str, ours: Domain) -> str:
    """A sidecar that reads the XML by a schema of its own drops what that does not know: here, who the machine is."""
    root = ET.fromstring(text)  # noqa: S314 - no document type, bounded, read once before
    own = ET.fromstring(to_xml(Domain(name=ours.name, uuid=ours.uuid, vmi_uid=ours.vmi_uid)))  # noqa: S314 - ours
    for child in own:
        if child.tag in ("name", "uuid", "metadata"):
            for old in root.findall(child.tag):
                root.remove(old)
            root.insert(0, child)
    return ET.tostring(root, encoding="unicode")
