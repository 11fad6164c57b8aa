"""Runs inside the launcher's image: gives its libvirt every domain on record, and writes down what comes of it.

/out/domains has the records. What libvirt made of each goes to /out/defined, what it refused to /out/refused.json.
"""

from __future__ import annotations

import json

import libvirt
from in_image import OUT, libvirt_of_the_image

KEEP = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM


def define(connection: libvirt.virConnect, xml: str) -> str:
    domain = connection.defineXML(xml)
    try:
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    finally:
        domain.undefineFlags(KEEP)


def main() -> None:
    refused = {}
    (OUT / "defined").mkdir()
    with libvirt_of_the_image() as (connection, _, _):
        for record in sorted((OUT / "domains").glob("*.xml")):
            try:
                (OUT / "defined" / record.name).write_text(define(connection, record.read_text()))
            except libvirt.libvirtError as error:
                refused[record.stem] = str(error)
    (OUT / "refused.json").write_text(json.dumps(refused))


if __name__ == "__main__":
    main()
