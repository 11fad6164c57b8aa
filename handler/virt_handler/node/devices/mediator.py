"""Makes mediated devices and takes them away, as `mediation.py` plans.

The kernel waits for a guest to let go of a device that is removed, so one that may be in use stays. First it is
withheld: the kubelet learns that it is not healthy, and nobody gets it any more. It goes when the kubelet has had time
to write down what it gave away before, has given it to nobody, and no process has it open.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping

from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_handler.node.devices import sysfs
from virt_handler.node.devices.mediation import Making, plan, wanted_types
from virt_handler.node.devices.units import Host

log = get_logger(__name__)

#: The kubelet's own record of which device is whose, in its directory of device plugins.
CHECKPOINT = "kubelet_internal_checkpoint"
#: From the moment in which nobody can get it any more, until the kubelet has surely written down who got it before.
GRACE_S = 15.0
_MOST_BYTES = 16 << 20


class Mediator:
    """Only the manager's thread calls it; others ask what is withheld."""

    def __init__(
        self,
        host: Host,
        clock: Clock,
        directory: str,
        labels: Callable[[], Mapping[str, str] | None] = dict,
        write: Callable[[str, str], None] | None = None,
    ) -> None:
        self._host, self._clock, self._directory = host, clock, directory
        self._write = write or write_once
        #: Labels of this node; None while nobody knows them.
        self.labels = labels
        #: Since when each of these is given to nobody.
        self.withheld: dict[str, float] = {}

    def settle(self, config: ClusterConfig) -> float | None:
        """One pass. Seconds until the next one is due, if something is on its way out."""
        wanted = wanted_types(config.raw.get("mediatedDevicesConfiguration"), self.labels(), config.feature_gates)
        if wanted is None:
            self.withheld.clear()
            return None
        wish = plan(sysfs.cards(self._host.path("/sys")), wanted)
        self._withhold(wish.remove)
        for each in wish.make:
            if not self._make(each):
                break  # The card is full, or its driver not ready; the next pass tries again.
        return self._take_away()

    def _withhold(self, unwanted: tuple[str, ...]) -> None:
        for device in [known for known in self.withheld if known not in unwanted]:
            del self.withheld[device]
        for device in unwanted:
            if device not in self.withheld:
                self.withheld[device] = self._clock.monotonic()
                log.info("a mediated device is not wanted any more", device=device)

    def _make(self, each: Making) -> bool:
        below = f"/sys/class/mdev_bus/{each.card}/mdev_supported_types/{each.type_id}/create"
        try:
            self._write(self._host.path(below), each.uuid)
        except OSError as error:
            log.warning("a mediated device could not be made", card=each.card, type=each.type_id, error=str(error))
            return False
        log.info("made a mediated device", card=each.card, type=each.type_id, device=each.uuid)
        return True

    def _take_away(self) -> float | None:
        now = self._clock.monotonic()
        due = [device for device, since in self.withheld.items() if now - since >= GRACE_S]
        given = self._given() if due else frozenset[str]()
        for device in due:
            if given is None or device in given or self._is_open(device):
                continue
            try:
                self._write(self._host.path(f"/sys/bus/mdev/devices/{device}/remove"), "1")
            except OSError as error:
                log.warning("a mediated device could not be taken away", device=device, error=str(error))
                continue
            log.info("took a mediated device away", device=device)
        return GRACE_S if self.withheld else None

    def _given(self) -> frozenset[str] | None:
        """Devices that the kubelet has given to Pods; None if it cannot be known."""
        try:
            with open(os.path.join(self._directory, CHECKPOINT), "rb") as file:
                text = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return frozenset()  # It has given nothing to anybody yet.
        except OSError as error:
            log.warning("the kubelet's record of devices cannot be read", error=str(error))
            return None
        return given_devices(text) if len(text) <= _MOST_BYTES else None

    def _is_open(self, device: str) -> bool:
        """A group of VFIO is one process's at a time."""
        group = sysfs.iommu_group(self._host.path(f"/sys/bus/mdev/devices/{device}"))
        try:
            os.close(os.open(self._host.path(f"/dev/vfio/{group}"), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EBUSY:
                log.warning("whether a mediated device is in use cannot be known", device=device, error=str(error))
            return True
        return False


def given_devices(checkpoint: bytes) -> frozenset[str] | None:
    """The ids in the kubelet's record, by Pod, resource and NUMA node (a plain list in older ones)."""
    try:
        entries = json.loads(checkpoint)["Data"]["PodDeviceEntries"] or []
        found: set[str] = set()
        for entry in entries:
            ids = entry["DeviceIDs"] or {}
            lists = ids.values() if isinstance(ids, dict) else [ids]
            found.update(str(one) for each in lists for one in each)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the kubelet's record of devices cannot be understood", error=str(error))
        return None
    return frozenset(found)


def write_once(path: str, text: str) -> None:
    """One write, as sysfs wants it."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
