"""How a machine's memory is hidden from its node, if it is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.vmi import VirtualMachineInstanceSpec

SEV, SEV_ES, SNP, TDX, PV = "sev", "sev-es", "snp", "tdx", "s390-pv"
#: What AMD's processors have.
SEV_FAMILY = frozenset({SEV, SEV_ES, SNP})


def protection(spec: VirtualMachineInstanceSpec) -> str:
    """The kind; empty for memory that the node can read."""
    security = spec.domain.launch_security
    if security is None:
        return ""
    if spec.architecture == "s390x":
        return PV  # There is one kind of it, so there is nothing to choose.
    if security.sev is not None:
        return SEV_ES if security.sev.policy is not None and security.sev.policy.encrypted_state else SEV
    if security.snp is not None:
        return SNP
    return TDX if security.tdx is not None else ""


def waits_for_session(spec: VirtualMachineInstanceSpec) -> bool:
    """Its owner wants to vouch for it, and has not said yet with which keys."""
    sev = spec.domain.launch_security.sev if spec.domain.launch_security is not None else None
    return sev is not None and sev.attestation is not None and not sev.session
