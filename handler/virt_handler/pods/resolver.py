"""Reads which name servers a Pod has, through the Pod's own root.

The file lies in a root that the VM's process may have changed, so it is opened beneath that root without following
links and read up to a limit.
"""

from __future__ import annotations

from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.nameservers import Resolver, asks_for_pods, combined, parse
from virt_handler.pods import isolation

log = get_logger(__name__)

PATH = "etc/resolv.conf"
MAX_BYTES = 64 * 1024


def of_vmi(vmi: VirtualMachineInstance, pod_uid: str) -> Resolver:
    return combined(vmi, of_pod(pod_uid) if asks_for_pods(vmi) else Resolver())


def of_pod(pod_uid: str) -> Resolver:
    """Without a readable file the guest goes without: that must not keep it from starting."""
    try:
        text = isolation.read_file(pod_uid, PATH, MAX_BYTES).decode(errors="replace")
    except (OSError, isolation.NoNamespaceError) as error:
        log.warning(
            "the Pod's resolv.conf cannot be read; the guest gets no name servers", pod=pod_uid, error=str(error)
        )
        return Resolver()
    return parse(text)
