"""Uploads of disks, as CDI's clients ask for them: a token for a claim, then one POST with it (docs/decisions/0052)."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta

GROUP, VERSION = "upload.cdi.kubevirt.io", "v1beta1"
RESOURCE = "uploadtokenrequests"
API_SERVICE = f"{VERSION}.{GROUP}"

#: Where the disk goes. Clients look by HEAD for a path that answers before all is done; ours answer alike.
PATHS = tuple(f"/{version}/{name}" for version in (VERSION, "v1alpha1") for name in ("upload", "upload-async"))
FORM_PATHS = tuple(
    f"/{version}/{name}" for version in (VERSION, "v1alpha1") for name in ("upload-form", "upload-form-async")
)
#: The one CDIConfig that clients read.
CONFIG_NAME = "config"


class UploadTokenRequestSpec(Struct):
    """Which claim."""

    pvc_name: str = ""  #: The claim that the disk is for.


class UploadTokenRequestStatus(Struct):
    """The answer."""

    token: str = ""  #: Goes with the upload, as a bearer token.


class UploadTokenRequest(Struct):
    """Asks for the right to send one disk. It is answered and not kept."""

    api_version: str = f"{GROUP}/{VERSION}"
    kind: str = "UploadTokenRequest"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: UploadTokenRequestSpec = field(default_factory=UploadTokenRequestSpec)
    status: UploadTokenRequestStatus = field(default_factory=UploadTokenRequestStatus)


class CDIConfigSpec(Struct):
    """What the administrator says."""

    upload_proxy_url_override: str | None = field(default=None, name="uploadProxyURLOverride")  #: Where uploads go.


class CDIConfigStatus(Struct):
    """What is so."""

    upload_proxy_url: str | None = field(default=None, name="uploadProxyURL")  #: Where uploads go.
    upload_proxy_ca: str | None = field(default=None, name="uploadProxyCA")  #: Whom to trust there, as PEM.


class CDIConfig(Struct):
    """Where clients send disks to."""

    api_version: str = "cdi.kubevirt.io/v1beta1"
    kind: str = "CDIConfig"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CDIConfigSpec = field(default_factory=CDIConfigSpec)
    status: CDIConfigStatus = field(default_factory=CDIConfigStatus)
