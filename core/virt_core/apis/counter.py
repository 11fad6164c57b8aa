"""Guests that rely on the pace of their time stamp counter. Pure."""

from __future__ import annotations

from virt_core.apis.vmi import VirtualMachineInstance

_FEATURE = "invtsc"


def relies(vmi: VirtualMachineInstance) -> bool:
    """It notices when the counter runs at another pace: after a move, for instance."""
    features = vmi.spec.domain.features
    hyperv = features.hyperv if features is not None else None
    told = hyperv.reenlightenment if hyperv is not None else None
    windows = told is not None and told.enabled is not False
    return vmi.spec.architecture in ("", "amd64") and (windows or place(vmi) is not None)


def place(vmi: VirtualMachineInstance) -> int | None:
    """Of the feature by which a guest trusts, from its start, that its counter never changes its pace."""
    features = vmi.spec.domain.cpu.features if vmi.spec.domain.cpu is not None else []
    wanted = (i for i, each in enumerate(features) if each.name == _FEATURE and each.policy in ("", "require"))
    return next(wanted, None)
