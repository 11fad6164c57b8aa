"""Bodies of requests: JSON or YAML in, an object of the right kind out."""

from __future__ import annotations

from typing import Any

import msgspec

from virt_local.apiserver import errors
from virt_local.apiserver.schema import protobuf
from virt_local.apiserver.verbs.call import Call

Object = dict[str, Any]

_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_decoder = msgspec.json.Decoder()


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def parse(body: bytes, content_type: str) -> Any:
    kind = media_type(content_type)
    if kind in _YAML:
        return _parse_yaml(body)
    if kind == protobuf.MEDIA_TYPE:
        return _parse_protobuf(body)
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise errors.unsupported_media_type(content_type, ["application/json", "application/yaml"])
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body of the request is not JSON: {error}") from None


def _parse_protobuf(body: bytes) -> Any:
    try:
        return protobuf.decode(body)
    except protobuf.BadProtobuf as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from None


def _parse_yaml(body: bytes) -> Any:
    import yaml

    try:
        return yaml.load(body, Loader=_yaml_loader())  # noqa: S506 (a SafeLoader without its reading of times)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"the body of the request is not YAML: {error}") from None


def _yaml_loader() -> type:
    """Times stay text, as in the JSON form."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def read_object(call: Call) -> Object:
    """The body as an object with a metadata map."""
    obj = parse(call.body, call.content_type)
    if not isinstance(obj, dict):
        raise errors.bad_request("the body of the request is not an object")
    return obj


def check_identity(call: Call, obj: Object, *, api_version: str = "", kind: str = "") -> None:
    """The object is what the path says: same kind, version, namespace and name. Fills in what is left out."""
    api_version, kind = api_version or call.kind.api_version, kind or call.kind.kind
    given = (obj.get("apiVersion") or api_version, obj.get("kind") or kind)
    if given != (api_version, kind):
        text = f"{given[1]} in version {given[0]!r} cannot be handled as a {kind} in version {api_version!r}"
        raise errors.bad_request(text)
    obj["apiVersion"], obj["kind"] = api_version, kind
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata is not an object")
    _check_place(call, metadata)


def _check_place(call: Call, metadata: Object) -> None:
    wanted = call.namespace
    given = metadata.get("namespace") or wanted
    if given != wanted and call.kind.namespaced:
        text = f"the namespace of the provided object does not match the namespace sent on the request ({given!r})"
        raise errors.bad_request(text)
    if call.kind.namespaced:
        metadata["namespace"] = wanted
    else:
        metadata.pop("namespace", None)
    if call.name and not call.subresource and metadata.get("name") not in (None, "", call.name):
        text = f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        raise errors.bad_request(text)
    if call.name and not metadata.get("name"):
        metadata["name"] = call.name


def read_options(call: Call) -> Object:
    """DeleteOptions: from the body, and from the query where the body does not say."""
    options: Object = {}
    if call.body.strip():
        parsed = parse(call.body, call.content_type)
        if not isinstance(parsed, dict):
            raise errors.bad_request("the body of a delete request is not a DeleteOptions object")
        options = parsed
    for name in ("propagationPolicy", "gracePeriodSeconds", "orphanDependents"):
        if name in call.query and name not in options:
            options[name] = call.query[name]
    return _typed(options)


def _typed(options: Object) -> Object:
    grace = options.get("gracePeriodSeconds")
    if grace is not None:
        try:
            options["gracePeriodSeconds"] = max(int(grace), 0)
        except (TypeError, ValueError):
            raise errors.bad_request(f"gracePeriodSeconds {grace!r} is not a number") from None
    orphan = options.pop("orphanDependents", None)
    if orphan is not None and "propagationPolicy" not in options:
        options["propagationPolicy"] = "Orphan" if orphan in (True, "true") else "Background"
    policy = options.get("propagationPolicy")
    if policy not in (None, "", "Orphan", "Background", "Foreground"):
        raise errors.bad_request(f"propagationPolicy {policy!r} is not Orphan, Background or Foreground")
    return options
