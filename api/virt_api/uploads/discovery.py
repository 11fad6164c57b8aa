"""The documents by which clients find upload.cdi.kubevirt.io."""

from __future__ import annotations

from typing import Any

from virt_core.apis import upload
from virt_core.apis.base import to_plain
from virt_core.apis.meta import APIGroup, APIResource, APIResourceList, GroupVersionForDiscovery

ROOT = f"/apis/{upload.GROUP}"


def group() -> APIGroup:
    version = GroupVersionForDiscovery(group_version=f"{upload.GROUP}/{upload.VERSION}", version=upload.VERSION)
    return APIGroup(name=upload.GROUP, versions=[version], preferred_version=version)


def documents() -> dict[str, dict[str, Any]]:
    """Path → document."""
    resource = APIResource(name=upload.RESOURCE, namespaced=True, kind="UploadTokenRequest", verbs=["create"])
    resources = APIResourceList(group_version=f"{upload.GROUP}/{upload.VERSION}", resources=[resource])
    plain = {"apiVersion": resources.api_version, "kind": resources.kind, **to_plain(resources)}
    for each in plain["resources"]:
        each.setdefault("singularName", "uploadtokenrequest")
    own = group()
    return {
        ROOT: {"apiVersion": own.api_version, "kind": own.kind, **to_plain(own)},
        f"{ROOT}/{upload.VERSION}": plain,
    }
