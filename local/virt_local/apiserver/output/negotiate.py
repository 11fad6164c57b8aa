"""Which form of an answer a client accepts."""

from __future__ import annotations

from enum import Enum

from virt_local.apiserver import errors


class Form(Enum):
    PLAIN = "plain"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"


_JSON = ("application/json", "*/*", "application/*", "application/yaml")
_FORMS = {form.value: form for form in Form}


def negotiate(accept: str) -> Form:
    """The first form that can be served. Protobuf cannot, so a client that takes nothing else gets 406."""
    if not accept.strip():
        return Form.PLAIN
    for choice in accept.split(","):
        kind, *parameters = (part.strip() for part in choice.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind not in _JSON and kind != "text/html":
            continue
        wanted = values.get("as", "")
        if not wanted:
            return Form.PLAIN
        if wanted in _FORMS and values.get("g") == "meta.k8s.io" and values.get("v") in ("v1", "v1beta1"):
            return _FORMS[wanted]
    raise errors.not_acceptable(accept)
