"""A machine that goes on from its saved state instead of booting. Imported only for such a machine.

The order is the argument: memory and devices come in while the guest stands still, the disks are checked, the state is
marked as used on the disk, and only then the guest runs. A crash before the mark leaves a state that can be resumed, a
crash after it a machine that boots as after a power cut; no crash leaves a state over disks that went on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from virt_core.apis import names
from virt_core.apis.hibernation import resumption
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import InvalidVMIError, LauncherError, UnavailableError
from virt_launcher.hypervisor.ports import Hypervisor
from virt_launcher.machine.saved_state import Kept, opened, refused
from virt_launcher.settings import Paths

log = get_logger(__name__)


def resume(
    vmi: VirtualMachineInstance,
    hypervisor: Hypervisor,
    paths: Paths,
    *,
    settle: Callable[[], None],
    remark: Callable[[str, str], None],
    paused: bool,
) -> bool:
    """False: this state was resumed before, so the machine boots. `settle` ends a machine that is not as it must be."""
    try:
        wanted = resumption(vmi)
    except ValueError as error:
        raise InvalidVMIError("", str(error)) from error
    assert wanted is not None
    with opened(wanted, paths) as kept:
        if kept is None:
            text = f"the saved state {wanted.file} was resumed before and is never resumed twice: the machine boots"
            remark(names.EVENT_STATE_USED, text)
            return False
        if not wanted.copied:
            kept.check(from_xml(hypervisor.describe()))
        _bring_back(hypervisor, kept)
        settle()
        try:
            kept.use_up()
            if not (paused or kept.facts.paused):
                hypervisor.resume()
        except LauncherError:
            with contextlib.suppress(LauncherError):
                hypervisor.destroy()
            raise
        kept.empty()
    log.info("the machine goes on from its saved state", file=wanted.file, claim=wanted.claim)
    return True


def _bring_back(hypervisor: Hypervisor, kept: Kept) -> None:
    try:
        hypervisor.restore(kept.path)
    except UnavailableError:
        raise
    except LauncherError as error:
        raise refused(f"the saved state does not fit the machine: {error}") from error
