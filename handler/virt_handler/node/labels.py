"""Node labels from libvirt's documents, so that the scheduler knows which node can run which machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from virt_core.apis import names
from virt_core.kube.configvalues import OBSOLETE_CPU_MODELS
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

LABEL_VIRTUALIZATION = "virtpod.io/virtualization"
LABEL_OBSOLETE_HOST_MODEL = "node-labeller.kubevirt.io/obsolete-host-model"
#: Everything under these is ours: what we do not set any more is removed.
OWNED_PREFIXES = (
    names.LABEL_PREFIX_CPU_MODEL,
    names.LABEL_PREFIX_CPU_MODEL_MIGRATION,
    names.LABEL_PREFIX_CPU_FEATURE,
    names.LABEL_PREFIX_CPU_TIMER,
    names.LABEL_PREFIX_CPU_VENDOR,
    names.LABEL_PREFIX_HYPERV,
    names.LABEL_PREFIX_MACHINE_TYPE,
    names.LABEL_PREFIX_HOST_MODEL_CPU,
    names.LABEL_PREFIX_HOST_MODEL_FEATURES,
    names.LABEL_PREFIX_VM_ARCH,
    names.LABEL_KSM_ENABLED,
    names.LABEL_REALTIME,
    names.LABEL_SEV,
    names.LABEL_TDX,
    names.LABEL_S390_PV,
    LABEL_OBSOLETE_HOST_MODEL,
)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VERSION = re.compile(r"-v\d+$")
#: What libvirt calls differently from the API.
_HYPERV_NAMES = {"stimer": "synictimer", "vendor_id": "vendorid"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}


def labels(
    host_capabilities: str,
    domain_capabilities: str,
    supported_features: str = "",
    *,
    kvm: bool,
    obsolete: frozenset[str] = OBSOLETE_CPU_MODELS,
) -> dict[str, str]:
    host, domain = _parse(host_capabilities), _parse(domain_capabilities)
    keys = [
        *_cpu_keys(domain, obsolete),
        *_feature_keys(_parse(supported_features), domain),
        *_machine_keys(host),
        *_hyperv_keys(domain, kvm),
    ]
    found = {prefix + name: "true" for prefix, name in keys if _NAME.fullmatch(name)}
    return found | _timer(host) | _protection(domain) | {LABEL_VIRTUALIZATION: "kvm" if kvm else "emulation"}


def _parse(text: str) -> ElementTree.Element:
    """From the node's own libvirt, so trusted; a half-written file counts as none."""
    try:
        return ElementTree.fromstring(text or "<none/>")  # noqa: S314
    except ElementTree.ParseError as error:
        log.warning("a capability document cannot be read", error=str(error))
        return ElementTree.Element("none")


def _cpu_keys(root: ElementTree.Element, obsolete: frozenset[str]) -> Iterator[tuple[str, str]]:
    for model in root.iterfind("./cpu/mode[@name='custom']/model"):
        name = (model.text or "").strip()
        if _unversioned(name) in obsolete:
            continue
        yield names.LABEL_PREFIX_CPU_MODEL_MIGRATION, name
        if model.get("usable") == "yes":
            yield names.LABEL_PREFIX_CPU_MODEL, name
    host = _host_model(root)
    if host is None:
        return
    name = (host.findtext("model") or "").strip()
    yield names.LABEL_PREFIX_HOST_MODEL_CPU, name
    yield names.LABEL_PREFIX_CPU_VENDOR, (host.findtext("vendor") or "").strip()
    if _unversioned(name) in obsolete:
        yield LABEL_OBSOLETE_HOST_MODEL.rpartition("/")[0] + "/", "obsolete-host-model"
    else:
        yield names.LABEL_PREFIX_CPU_MODEL_MIGRATION, name


def _unversioned(name: str) -> str:
    """libvirt 11 lists each version of a model by itself, too: 486 and 486-v1."""
    return _VERSION.sub("", name)


def _host_model(root: ElementTree.Element) -> ElementTree.Element | None:
    return root.find("./cpu/mode[@name='host-model'][@supported='yes']")


def _feature_keys(supported: ElementTree.Element, domain: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """All features that a guest can have, and those of the host model that its name does not imply."""
    host = _host_model(domain)
    required = [] if host is None else list(_required(host))
    for name in required:
        yield names.LABEL_PREFIX_HOST_MODEL_FEATURES, name
    for name in {*required, *_required(supported)}:
        yield names.LABEL_PREFIX_CPU_FEATURE, name


def _required(root: ElementTree.Element) -> Iterator[str]:
    for feature in root.iterfind("feature"):
        if feature.get("policy") in ("require", "force"):
            yield feature.get("name", "")


def _hyperv_keys(domain: ElementTree.Element, kvm: bool) -> Iterator[tuple[str, str]]:
    """Windows' own features come from KVM; what the emulator has instead is not what they are asked for."""
    for value in domain.iterfind("./features/hyperv[@supported='yes']/enum[@name='features']/value") if kvm else ():
        name = (value.text or "").strip()
        yield names.LABEL_PREFIX_HYPERV, _HYPERV_NAMES.get(name, name)


def _timer(host: ElementTree.Element) -> dict[str, str]:
    counter = host.find("./host/cpu/counter[@name='tsc']")
    frequency = "" if counter is None else counter.get("frequency", "")
    if counter is None or not frequency.isdecimal():
        return {}
    scalable = "true" if counter.get("scaling") == "yes" else "false"
    prefix = names.LABEL_PREFIX_CPU_TIMER
    return {prefix + "tsc-frequency": frequency, prefix + "tsc-scalable": scalable}


def _protection(domain: ElementTree.Element) -> dict[str, str]:
    """Machines whose memory the host cannot read."""
    found = {}
    sev = domain.find("./features/sev[@supported='yes']")
    if sev is not None:
        found[names.LABEL_SEV] = ""
        # A processor that has guests with encrypted state has a limit for their number.
        if (sev.findtext("maxESGuests") or "0").strip() not in ("", "0"):
            found[names.LABEL_SEV_ES] = ""
    kinds = {value.text for value in domain.iterfind("./features/launchSecurity/enum[@name='sectype']/value")}
    if "sev-snp" in kinds:
        found[names.LABEL_SEV_SNP] = ""
    if "tdx" in kinds:
        found[names.LABEL_TDX] = ""
    if domain.find("./features/s390-pv[@supported='yes']") is not None:
        found[names.LABEL_S390_PV] = ""
    return found


def _machine_keys(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    host_arch = root.findtext("./host/cpu/arch", "")
    # The prefix of these ends within the name.
    head, _, tail = names.LABEL_PREFIX_VM_ARCH.rpartition("/")
    runs = {host_arch, *(arch.get("name", "") for arch in root.iterfind("./guest/arch"))}
    for name in sorted(runs & _ARCHITECTURES.keys()):
        yield f"{head}/", tail + _ARCHITECTURES[name]
    for arch in root.iterfind("./guest/arch"):
        if arch.get("name") == host_arch:
            for machine in arch.iterfind(".//machine"):
                yield names.LABEL_PREFIX_MACHINE_TYPE, (machine.text or "").strip()
