"""The Pod that brings a machine's hot-plugged volumes to the node that it moves to."""

from __future__ import annotations

from virt_controller.hotplug.controller import LAUNCHER_INDEX, storage_of
from virt_controller.hotplug.decide import in_launcher, is_over
from virt_controller.hotplug.render import attachment_pod
from virt_controller.hotplug.wanted import claims_of, wanted
from virt_controller.migration.target import Bringing
from virt_core.apis import names
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.facts import is_terminating
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.informer import Informer


class Bringer:
    def __init__(
        self,
        client: KubeClient,
        attachments: Informer[Pod],
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
    ) -> None:
        self._client, self._attachments = client, attachments
        self._claims, self._data_volumes = claims, data_volumes
        #: Made and not seen yet, by the UID of the target Pod.
        self._made: dict[str, Pod] = {}

    def look(self, job: Job, vmi: VirtualMachineInstance, target: Pod) -> Bringing | None:
        """None: there is nothing to bring."""
        needed = in_launcher(vmi) - claims_of(target)
        if not needed:
            return None
        found = [pod for pod in self._pods(target) if _is_for(pod, job) and not is_terminating(pod)]
        fitting = [pod for pod in found if needed <= claims_of(pod)]
        alive = sorted(fitting, key=is_over)
        pod = alive[0] if alive else None
        return Bringing(pod, tuple(each for each in found if each is not pod))

    def _pods(self, target: Pod) -> list[Pod]:
        uid = target.metadata.uid
        found = self._attachments.by_index(LAUNCHER_INDEX, uid)
        made = self._made.get(uid)
        if made is None:
            return found
        if any(pod.metadata.uid == made.metadata.uid for pod in found):
            del self._made[uid]
            return found
        return [*found, made]

    def create(self, job: Job, vmi: VirtualMachineInstance, target: Pod) -> Pod:
        """Raises ApiError."""
        storage = storage_of(vmi, self._claims, self._data_volumes)
        held = in_launcher(vmi)
        asked = [each for each in wanted(vmi, target) if storage.is_ready(each.claim) or each.claim in held]
        pod = attachment_pod(vmi, target, asked, storage)
        pod.metadata.labels[names.LABEL_MIGRATION_JOB_UID] = job.metadata.uid
        pod.metadata.annotations[names.ANNOTATION_MIGRATION_JOB_NAME] = job.metadata.name
        made = self._client.create(pod)
        self._made[target.metadata.uid] = made
        return made

    def forget(self, target: Pod) -> None:
        self._made.pop(target.metadata.uid, None)


def _is_for(pod: Pod, job: Job) -> bool:
    return pod.metadata.labels.get(names.LABEL_MIGRATION_JOB_UID) == job.metadata.uid
