"""How the lists of built-in types merge. A list that is not here is replaced as a whole.

Strategic merge patch joins list items by one key; server-side apply identifies them by one or more. `set` lists hold
plain values. One line is one list: TYPE.field, the strategic key, the keys of server-side apply.
"""

from __future__ import annotations

from typing import NamedTuple


class ListMerge(NamedTuple):
    patch_key: str  # "" replaces the list in a strategic merge, "*" merges plain values
    list_type: str
    keys: tuple[str, ...]


_TABLE = """
V1ObjectMeta.ownerReferences uid uid
V1ObjectMeta.finalizers * set
V1PodSpec.containers name name
V1PodSpec.initContainers name name
V1PodSpec.ephemeralContainers name name
V1PodSpec.volumes name name
V1PodSpec.imagePullSecrets name name
V1PodSpec.hostAliases ip ip
V1PodSpec.topologySpreadConstraints topologyKey topologyKey,whenUnsatisfiable
V1PodSpec.schedulingGates name name
V1PodSpec.resourceClaims name name
V1Container.env name name
V1Container.ports containerPort containerPort,protocol
V1Container.volumeMounts mountPath mountPath
V1Container.volumeDevices devicePath devicePath
V1EphemeralContainer.env name name
V1EphemeralContainer.ports containerPort containerPort,protocol
V1EphemeralContainer.volumeMounts mountPath mountPath
V1EphemeralContainer.volumeDevices devicePath devicePath
V1ResourceRequirements.claims - name
V1PodStatus.conditions type type
V1PodStatus.podIPs ip ip
V1PodStatus.hostIPs - atomic
V1NodeSpec.podCIDRs * set
V1NodeStatus.conditions type type
V1NodeStatus.addresses type type
V1NamespaceStatus.conditions type type
V1ServiceSpec.ports port port,protocol
V1ServiceStatus.conditions type type
V1ServiceAccount.secrets name name
V1PersistentVolumeClaimStatus.conditions type type
V1PodDisruptionBudgetStatus.conditions type type
V1MutatingWebhookConfiguration.webhooks name name
V1ValidatingWebhookConfiguration.webhooks name name
V1MutatingWebhook.matchConditions name name
V1ValidatingWebhook.matchConditions name name
V1CustomResourceDefinitionStatus.conditions - type
V1APIServiceStatus.conditions type type
"""


def _parse() -> dict[str, ListMerge]:
    lists: dict[str, ListMerge] = {}
    for line in _TABLE.strip().splitlines():
        place, patch_key, keys = line.split()
        patch_key = "" if patch_key == "-" else patch_key
        if keys in ("set", "atomic"):
            lists[place] = ListMerge(patch_key, keys, ())
        else:
            lists[place] = ListMerge(patch_key, "map", tuple(keys.split(",")))
    return lists


LISTS = _parse()

# Types and fields that server-side apply owns as a whole.
ATOMIC_TYPES = frozenset(
    {
        "V1LabelSelector",
        "V1ObjectReference",
        "V1LocalObjectReference",
        "V1SecretReference",
        "V1SecretKeySelector",
        "V1ConfigMapKeySelector",
        "V1ObjectFieldSelector",
        "V1ResourceFieldSelector",
        "V1NodeSelector",
        "V1NodeSelectorTerm",
        "V1TypedLocalObjectReference",
        "V1RoleRef",
        "V1OwnerReference",
    }
)
ATOMIC_FIELDS = frozenset({"V1PodSpec.nodeSelector", "V1ServiceSpec.selector"})
# Strategic merge: a patch that sets one union member clears its siblings.
RETAIN_KEYS = frozenset({"V1PodSpec.volumes"})
