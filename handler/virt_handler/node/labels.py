"""Node labels from libvirt's documents, so that the scheduler knows which node can run which machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from virt_core.apis import names
from virt_core.kube.configvalues import OBSOLETE_CPU_MODELS
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

LABEL_VIRTUALIZATION = "virtpod.io/virtualization"
#: Everything under these is ours: what we do not set any more is removed.
OWNED_PREFIXES = (
    names.LABEL_PREFIX_CPU_MODEL,
    names.LABEL_PREFIX_CPU_MODEL_MIGRATION,
    names.LABEL_PREFIX_CPU_FEATURE,
    names.LABEL_PREFIX_CPU_VENDOR,
    names.LABEL_PREFIX_MACHINE_TYPE,
    names.LABEL_PREFIX_HOST_MODEL_CPU,
)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def labels(
    host_capabilities: str, domain_capabilities: str, *, kvm: bool, obsolete: frozenset[str] = OBSOLETE_CPU_MODELS
) -> dict[str, str]:
    found = {LABEL_VIRTUALIZATION: "kvm" if kvm else "emulation"}
    keys = [*_cpu_keys(_parse(domain_capabilities), obsolete), *_machine_keys(_parse(host_capabilities))]
    return found | {prefix + name: "true" for prefix, name in keys if _NAME.fullmatch(name)}


def _parse(text: str) -> ElementTree.Element:
    """From the node's own libvirt, so trusted; a half-written file counts as none."""
    try:
        return ElementTree.fromstring(text or "<none/>")  # noqa: S314
    except ElementTree.ParseError as error:
        log.warning("a capability document can not be read", error=str(error))
        return ElementTree.Element("none")


def _cpu_keys(root: ElementTree.Element, obsolete: frozenset[str]) -> Iterator[tuple[str, str]]:
    for model in root.iterfind("./cpu/mode[@name='custom']/model"):
        name = (model.text or "").strip()
        if name in obsolete:
            continue
        yield names.LABEL_PREFIX_CPU_MODEL_MIGRATION, name
        if model.get("usable") == "yes":
            yield names.LABEL_PREFIX_CPU_MODEL, name
    host = root.find("./cpu/mode[@name='host-model'][@supported='yes']")
    if host is None:
        return
    yield names.LABEL_PREFIX_HOST_MODEL_CPU, (host.findtext("model") or "").strip()
    yield names.LABEL_PREFIX_CPU_VENDOR, (host.findtext("vendor") or "").strip()
    for feature in host.iterfind("feature"):
        if feature.get("policy") in ("require", "force"):
            yield names.LABEL_PREFIX_CPU_FEATURE, feature.get("name", "")


def _machine_keys(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    host_arch = root.findtext("./host/cpu/arch", "")
    for arch in root.iterfind("./guest/arch"):
        if arch.get("name") == host_arch:
            for machine in arch.iterfind(".//machine"):
                yield names.LABEL_PREFIX_MACHINE_TYPE, (machine.text or "").strip()
