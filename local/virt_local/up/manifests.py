"""The objects that an instance starts with, each with a mark by which the next start sees that it is up to date."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from virt_core import manifests
from virt_core.apis import names
from virt_core.apis.datavolumecrd import config_definition, definition, roles
from virt_local.apiserver.security.bootstrap_roles import bootstrap_objects
from virt_local.storage.objects import late_storage_class, snapshot_class, snapshot_definitions, storage_class
from virt_local.up.instance import Instance
from virt_local.up.material import NAMESPACE, Material

Object = dict[str, Any]
MARK = "virt-local.virtpod.io/applied"
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def base_objects(material: Material) -> list[Object]:
    """What every cluster has: namespaces, the standard roles, the request-header settings, a storage class."""
    namespaces = [_object("v1", "Namespace", name) for name in NAMESPACES]
    storage = (*snapshot_definitions(), storage_class(), late_storage_class(), snapshot_class())
    return [_marked(obj) for obj in (*namespaces, *bootstrap_objects(), *_front_proxy(material), *storage)]


def product_objects(instance: Instance, material: Material) -> list[Object]:
    """Virtpod's own CRDs, accounts, webhooks and API services, and where virt-api listens."""
    bundle = base64.b64encode(material.virtpod_ca.pem).decode()
    own = (_virt_api_endpoint(instance), network_definitions(), definition(), *roles(), config_definition())
    return [*_cached_manifests(instance.run_dir, bundle), *map(_marked, own)]


def default_configuration() -> Object:
    """The KubeVirt object of a new instance: nothing but defaults, with emulation where the machine has no KVM. It is
    written once; from then on it is its owner's, so its mark never changes."""
    obj = _object(names.API_VERSION, "KubeVirt", "kubevirt", NAMESPACE)
    obj["metadata"]["annotations"] = {MARK: "once"}
    return obj | {"spec": {"configuration": {"developerConfiguration": {"useEmulation": True}}}}


def _cached_manifests(directory: Path, bundle: str) -> list[Object]:
    """Reading the CRDs as YAML costs more than everything else at a start, so the result is kept as JSON."""
    texts = [manifests.text(name) for name in manifests.NAMES]
    digest = hashlib.sha256("\0".join((bundle, *texts)).encode()).hexdigest()[:24]
    path = directory / f"manifests-{digest}.json"
    if path.exists():
        cached: list[Object] = msgspec.json.decode(path.read_bytes())
        return cached
    objects = [_marked(obj) for obj in manifests.load_all(bundle)]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in directory.glob("manifests-*.json"):
        old.unlink()
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(objects))
    temporary.replace(path)
    return objects


def _marked(obj: Object) -> Object:
    digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()[:16]
    metadata = {**obj["metadata"], "annotations": {**(obj["metadata"].get("annotations") or {}), MARK: digest}}
    return {**obj, "metadata": metadata}


def _front_proxy(material: Material) -> list[Object]:
    """Where an aggregated API server learns whom to believe, as on any cluster."""
    name, reader = "extension-apiserver-authentication", "extension-apiserver-authentication-reader"
    rule = {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name]}
    role = _object("rbac.authorization.k8s.io/v1", "Role", reader, "kube-system") | {"rules": [rule]}
    config = _object("v1", "ConfigMap", name, "kube-system") | {
        "data": {
            "client-ca-file": material.cluster_ca.pem.decode(),
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-client-ca-file": material.front_proxy_ca.pem.decode(),
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
    }
    return [role, config]


def _virt_api_endpoint(instance: Instance) -> Object:
    """virt-api is no Pod here, so its address is written down by hand."""
    obj = _object("discovery.k8s.io/v1", "EndpointSlice", "virt-api-local", NAMESPACE)
    obj["metadata"]["labels"] = {"kubernetes.io/service-name": "virt-api"}
    return obj | {
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": instance.api_port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
    }


def network_definitions() -> Object:
    """The kind by which secondary networks are defined, as Multus brings it to a cluster; the nodes run them."""
    group, plural = "k8s.cni.cncf.io", "network-attachment-definitions"
    obj = _object("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{group}")
    names = {
        "plural": plural,
        "singular": "network-attachment-definition",
        "kind": "NetworkAttachmentDefinition",
        "listKind": "NetworkAttachmentDefinitionList",
        "shortNames": ["net-attach-def"],
    }
    spec = {"type": "object", "properties": {"config": {"type": "string", "maxLength": 65536}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    return obj | {"spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions}}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Object:
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
