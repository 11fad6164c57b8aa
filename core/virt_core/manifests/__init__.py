"""What must be in a cluster for Virtpod to work, as data of the package: CRDs, RBAC, webhooks, API services."""

from __future__ import annotations

from importlib import resources
from typing import Any

#: In the order in which they are applied.
NAMES = (
    "crds/virtualmachines.yaml",
    "crds/virtualmachineinstances.yaml",
    "crds/virtualmachineinstancemigrations.yaml",
    "crds/virtualmachineinstancereplicasets.yaml",
    "crds/virtualmachineinstancepresets.yaml",
    "crds/kubevirts.yaml",
    "crds/virtualmachinepools.yaml",
    "crds/virtualmachinesnapshots.yaml",
    "crds/virtualmachinesnapshotcontents.yaml",
    "crds/virtualmachinerestores.yaml",
    "crds/virtualmachineexports.yaml",
    "crds/virtualmachineclones.yaml",
    "crds/virtualmachinebackups.yaml",
    "crds/virtualmachinebackuptrackers.yaml",
    "crds/virtualmachineinstancetypes.yaml",
    "crds/virtualmachineclusterinstancetypes.yaml",
    "crds/virtualmachinepreferences.yaml",
    "crds/virtualmachineclusterpreferences.yaml",
    "crds/migrationpolicies.yaml",
    "rbac.yaml",
    "roles.yaml",
    "webhooks.yaml",
    "apiservice.yaml",
    "uploads.yaml",
)
#: Stands for the base64 CA bundle that the installer knows.
CA_BUNDLE_PLACEHOLDER = "Q0FfQlVORExF"


def text(name: str) -> str:
    """A manifest as it stands in the package, e.g. `text("rbac.yaml")`."""
    if name not in NAMES:
        raise LookupError(f"no manifest {name}; there are {', '.join(NAMES)}")
    return resources.files(__name__).joinpath(*name.split("/")).read_text(encoding="utf-8")


def load(name: str) -> list[dict[str, Any]]:
    """The objects of a manifest, e.g. `load("webhooks.yaml")`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text(name), Loader=loader) if document]


def load_all(ca_bundle: str = "") -> list[dict[str, Any]]:
    """Every object, in order, with the base64 CA bundle filled in where one is wanted."""
    objects = [document for name in NAMES for document in load(name)]
    return [_fill(document, ca_bundle) for document in objects] if ca_bundle else objects


def _fill(node: Any, ca_bundle: str) -> Any:
    if isinstance(node, dict):
        return {key: _fill(value, ca_bundle) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(item, ca_bundle) for item in node]
    return ca_bundle if node == CA_BUNDLE_PLACEHOLDER else node
