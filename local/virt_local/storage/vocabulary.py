"""Names that Kubernetes, its snapshot controller and this provisioner agree on. Pure."""

from __future__ import annotations

from virt_core.apis.volumesnapshots import ANNOTATION_DEFAULT_CLASS

PROVISIONER = "virt-local/hostpath"
#: Claim: who shall make its volume; the older name is still written too.
ASKED = "volume.kubernetes.io/storage-provisioner"
ASKED_BETA = "volume.beta.kubernetes.io/storage-provisioner"
#: Volume: who made it.
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
#: Volume: its bytes go before it does.
RECLAIMED = "external-provisioner.volume.kubernetes.io/finalizer"
#: Parameter of a StorageClass: how often the free space may be promised.
OVERCOMMIT = "overcommit"

CLAIM_KIND, SNAPSHOT_KIND = "PersistentVolumeClaim", "VolumeSnapshot"

#: A claim that is being cloned; one of which a snapshot is being taken.
CLONING = "provisioner.storage.kubernetes.io/cloning-protection"
TAKING = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
#: A snapshot that has content; one from which a claim is being made; content that a snapshot is bound to.
SNAPSHOT_BOUND = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
SNAPSHOT_SOURCE = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection"
CONTENT_BOUND = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
#: Content whose snapshot is to go.
BEING_DELETED = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
DEFAULT_SNAPSHOT_CLASS = ANNOTATION_DEFAULT_CLASS
MODE_CHANGE = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
