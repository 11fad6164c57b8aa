"""Which form of an answer a client accepts, and in which encoding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from virt_local.apiserver import errors
from virt_local.apiserver.schema import protobuf

JSON, YAML = "application/json", "application/yaml"
PROTOBUF = protobuf.MEDIA_TYPE


class Form(Enum):
    PLAIN = "plain"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`version` is that of the form; `include` says what comes with each row of a table."""

    form: Form = Form.PLAIN
    media: str = JSON
    version: str = "v1"
    include: str = "Metadata"

    def check_list(self, name: str) -> None:
        if self.form is Form.PARTIAL:
            raise _not_a(self.form, f"the requested object is a list (*core.{name})")

    def check_single(self, name: str) -> None:
        if self.form is Form.PARTIAL_LIST:
            raise _not_a(self.form, f"the requested object is not a list (*core.{name})")


_ANY = ("*/*", "application/*")
_FORMS = {form.value: form for form in Form}
_INCLUDES = ("", "Metadata", "Object", "None")


def _not_a(form: Form, why: str) -> errors.ApiError:
    return errors.ApiError(406, "NotAcceptable", f"you requested {form.value}, but {why}")


def negotiate(accept: str, include: str = "") -> Wanted:
    """The first form that can be served. Protobuf is for clients that take nothing else."""
    if not accept.strip():
        return Wanted()
    known = False
    for choice in accept.split(","):
        kind, *parameters = (part.strip() for part in choice.split(";"))
        media = JSON if kind in _ANY else kind
        if media not in (JSON, YAML):
            continue
        known = True
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        wanted = _form(values, media, include)
        if wanted is not None:
            return wanted
    if any(choice.strip() == PROTOBUF for choice in accept.split(",")):
        return Wanted(media=PROTOBUF)
    raise errors.not_acceptable(bare=not known)


def _form(values: dict[str, str], media: str, include: str) -> Wanted | None:
    name, version = values.get("as", ""), values.get("v", "")
    if not name:
        return Wanted(media=media)
    if name not in _FORMS or values.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    if _FORMS[name] is Form.TABLE and include not in _INCLUDES:
        why = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        raise errors.bad_request(f"Unable to convert to Table as requested: {why}")
    return Wanted(_FORMS[name], media, version, include or "Metadata")


def error_media(accept: str) -> str:
    """Failures come in the encoding that the client would have got."""
    try:
        return negotiate(accept).media
    except errors.ApiError:
        return JSON
