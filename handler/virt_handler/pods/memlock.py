"""Lets the processes of a launcher lock memory: a device of the node writes into the guest's, or its processor has
encrypted it where it lies, so none of it may move; or the guest must never wait for a page.

libvirt gives QEMU the limit that it needs, but an ordinary user cannot raise his own. What is locked counts as the
Pod's memory all the same.
"""

from __future__ import annotations

import resource
import signal

from virt_core.apis.launchsecurity import SEV_FAMILY, protection
from virt_core.apis.nodedevices import has_node_devices
from virt_core.apis.owncpus import is_realtime
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.procs import children


def needs_locked_memory(vmi: VirtualMachineInstance) -> bool:
    return has_node_devices(vmi) or protection(vmi.spec) in SEV_FAMILY or is_realtime(vmi) or _asks_for_it(vmi)


def _asks_for_it(vmi: VirtualMachineInstance) -> bool:
    memory = vmi.spec.domain.memory
    reserved = memory.reserved_overhead if memory is not None else None
    return reserved is not None and reserved.mem_lock == "Required"


def lift(pid: int, pidfd: int, limit: int = resource.RLIM_INFINITY) -> None:
    """For the launcher, whose next libvirt daemon has it from there, and for the daemon that runs. Raises OSError."""
    signal.pidfd_send_signal(pidfd, 0)  # The number is still the launcher's.
    for process in (pid, *children(pid)):
        try:
            resource.prlimit(process, resource.RLIMIT_MEMLOCK, (limit, limit))
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise OSError(error.errno, "virt-handler needs CAP_SYS_RESOURCE to let it lock memory") from error
