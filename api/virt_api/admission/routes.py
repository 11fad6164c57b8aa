"""Which webhook answers where. The names are those of KubeVirt's paths; they are served below `discovery.REVIEWS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from virt_api.admission import instancetypespecs, migration
from virt_api.admission.clones import CloneValidator, mutate_clone
from virt_api.admission.cluster import Cluster
from virt_api.admission.copies import Copies
from virt_api.admission.door import known_fields, known_kind
from virt_api.admission.eviction import EvictionAdmitter
from virt_api.admission.instancetypes import Instancetypes
from virt_api.admission.kubevirt import KubeVirtValidator
from virt_api.admission.migrationpolicy import PolicyValidator
from virt_api.admission.mutate import VMIMutator
from virt_api.admission.presets import PresetValidator
from virt_api.admission.replicas import PoolValidator, ReplicaSetValidator
from virt_api.admission.review import Admitter
from virt_api.admission.status import StatusValidator
from virt_api.admission.validate import VMICreateValidator, VMIUpdateValidator
from virt_api.admission.vm.mutate import VMMutator
from virt_api.admission.vm.validate import VMValidator
from virt_core.apis import names
from virt_core.apis.support.table import TODAY, Support
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """What the webhooks are made of."""

    config: Callable[[], ClusterConfig]
    clock: Clock
    cluster: Cluster
    types: Instancetypes
    namespace: str = names.INSTALL_NAMESPACE
    support: Support = TODAY

    def user(self, account: str) -> str:
        return names.service_account_user(account, self.namespace)

    @property
    def trusted(self) -> frozenset[str]:
        return frozenset(self.user(account) for account in names.SERVICE_ACCOUNTS)


def webhooks(parts: Parts) -> dict[str, Admitter]:
    """Path → admitter."""
    found: dict[str, Admitter] = {**_machines(parts), **_sets(parts), **_others(parts)}
    found |= {path: known_fields(parts.support, found[path]) for path in OF_MACHINES}
    return {path: known_kind(parts.support, admit) for path, admit in found.items()}


def _machines(parts: Parts) -> dict[str, Admitter]:
    config, cluster, trusted = parts.config, parts.cluster, parts.trusted
    return {
        "/virtualmachineinstances-mutate": VMIMutator(config, parts.clock, trusted, cluster),
        "/virtualmachineinstances-validate-create": VMICreateValidator(config, trusted),
        "/virtualmachineinstances-validate-update": VMIUpdateValidator(config, trusted, parts.user(names.SA_HANDLER)),
        "/virtualmachines-mutate": VMMutator(config, parts.types, cluster, trusted),
        "/virtualmachines-validate": VMValidator(config, parts.types, cluster, trusted, parts.support),
        "/migration-mutate-create": migration.mutate_migration,
        "/migration-validate-create": migration.MigrationCreateValidator(
            config, cluster, parts.user(names.SA_CONTROLLER)
        ),
        "/migration-validate-update": migration.validate_migration_update,
        "/status-validate": StatusValidator(config, cluster),
        "/pod-eviction-validate": EvictionAdmitter(config, cluster),
    }


def _sets(parts: Parts) -> dict[str, Admitter]:
    return {
        "/virtualmachinereplicaset-validate": ReplicaSetValidator(parts.config, parts.trusted),
        "/virtualmachinepool-validate": PoolValidator(parts.config, parts.trusted),
        "/vmipreset-validate": PresetValidator(),
        "/virtualmachineinstancetypes-validate": instancetypespecs.validate_instancetype,
        "/virtualmachineclusterinstancetypes-validate": instancetypespecs.validate_instancetype,
        "/virtualmachinepreferences-validate": instancetypespecs.validate_preference,
        "/virtualmachineclusterpreferences-validate": instancetypespecs.validate_preference,
    }


def _others(parts: Parts) -> dict[str, Admitter]:
    copies, kubevirt = Copies(parts.config, parts.cluster), KubeVirtValidator(parts.cluster)
    return {
        "/migration-policy-validate-create": PolicyValidator(parts.config),
        "/kubevirt-validate-create": kubevirt,
        "/kubevirt-validate-update": kubevirt,
        "/kubevirt-validate-delete": kubevirt,
        "/vm-clone-mutate-create": mutate_clone,
        "/vm-clone-validate-create": CloneValidator(parts.config),
        "/virtualmachinesnapshots-validate": copies.snapshot,
        "/virtualmachinesnapshotcontents-validate": copies.content,
        "/virtualmachinerestores-validate": copies.restore,
        "/virtualmachineexports-validate": copies.export,
        "/virtualmachinebackups-validate": copies.backup,
        "/virtualmachinebackuptrackers-validate": copies.tracker,
    }


#: These see the spec of a machine, or a template of one, as it will be stored.
OF_MACHINES = (
    "/virtualmachineinstances-validate-create",
    "/virtualmachines-validate",
    "/virtualmachinereplicaset-validate",
    "/virtualmachinepool-validate",
)
#: These ask the cluster, so they must not run in the event loop. The first one only while its cache is not filled.
ASKING = frozenset(
    {
        "/virtualmachineinstances-mutate",
        "/virtualmachines-mutate",
        "/virtualmachines-validate",
        "/migration-validate-create",
        "/status-validate",
        "/pod-eviction-validate",
        "/kubevirt-validate-create",
        "/kubevirt-validate-delete",
        "/virtualmachinerestores-validate",
        "/virtualmachinebackups-validate",
    }
)
