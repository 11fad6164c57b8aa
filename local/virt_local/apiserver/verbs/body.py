"""Bodies of requests: JSON or YAML in, an object of the right kind out."""

from __future__ import annotations

from typing import Any

import msgspec

from virt_core.apis.base import UNREADABLE
from virt_local.apiserver import errors
from virt_local.apiserver.schema import protobuf
from virt_local.apiserver.verbs.call import Call
from virt_local.apiserver.verbs.duplicates import duplicates
from virt_local.apiserver.verbs.options import check_delete

Object = dict[str, Any]

_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_SUMMARY = 30
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
    except UNREADABLE as error:
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
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.bad_request(f"the body of the request is not YAML: {error}") from None


def _yaml_loader() -> type:
    """Times stay text, as in the JSON form. An alias is refused: a few bytes of them can stand for gigabytes."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not read here")
            return super().compose_node(parent, index)

        yaml_implicit_resolvers = {
            key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def read_object(call: Call) -> Object:
    """The body as an object. Fields that come twice are noticed here: the decoder keeps the last one."""
    parsed = parse(call.body, call.content_type)
    if parsed is None and not call.kind.custom:
        parsed = {}
    if not isinstance(parsed, dict):
        raise errors.bad_request("the body of the request is not an object")
    obj: Object = parsed
    if media_type(call.content_type) in ("", "application/json"):
        obj = _without_duplicates(call, obj)
    return obj


def _without_duplicates(call: Call, obj: Object) -> Object:
    if call.query.get("fieldValidation") == "Ignore":
        return obj
    try:
        found, merged = duplicates(call.body, merge=not call.kind.custom)
    except (ValueError, RecursionError) as error:
        raise errors.bad_request(f"the body of the request is not JSON: {error}") from None
    if found:
        call.strict_errors += [f'duplicate field "{path}"' for path in found]
        obj = merged
    return obj


def check_identity(call: Call, obj: Object) -> None:
    """The object is what the path says: same kind, version, namespace and name. Fills in what is left out."""
    check_kind(call, obj)
    check_place(call, obj)


def check_kind(call: Call, obj: Object) -> None:
    given_version, given_kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    kind, version = call.kind.kind, call.kind.api_version
    if not isinstance(given_version, str) or not isinstance(given_kind, str):
        raise errors.bad_request("apiVersion and kind of the object must be strings")
    if call.kind.custom:
        _check_custom_kind(call, obj, given_version, given_kind)
    elif given_kind not in ("", kind) or given_version not in ("", version):
        short = (given_version or version).rpartition("/")[2]
        text = f'{given_kind or kind} in version "{short}" cannot be handled as a {kind}'
        if call.server.catalog.by_kind(given_version or version, given_kind or kind) is None:
            text += f': no kind "{given_kind or kind}" is registered for version "{given_version or version}"'
        raise errors.bad_request(text)
    obj["apiVersion"], obj["kind"] = version, kind


def _check_custom_kind(call: Call, obj: Object, given_version: str, given_kind: str) -> None:
    """A custom object says what it is: nothing is guessed for it."""
    kind, version = call.kind.kind, call.kind.api_version
    for name, given in (("Kind", given_kind), ("apiVersion", given_version)):
        if not given:
            body = call.body.decode(errors="replace") or msgspec.json.encode(obj).decode()
            text = (
                f"the object provided is unrecognized (must be of type {kind}): Object '{name}' is missing in '{body}'"
            )
            raise errors.bad_request(f"{text} ({_summary(body)})")
    if given_version != version:
        text = f"the API version in the data ({given_version}) does not match the expected API version ({version})"
        raise errors.bad_request(text)
    if given_kind != kind:
        name = (obj.get("metadata") or {}).get("name") or ""
        cause = errors.Cause("kind", f'Invalid value: "{given_kind}": must be {kind}')
        raise errors.invalid(given_kind, call.kind.group, name, [cause])


def _summary(text: str) -> str:
    return text if len(text) <= _SUMMARY else f"{text[:_SUMMARY]} ..."


def check_place(call: Call, obj: Object) -> None:
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata is not an object")
    wanted = call.namespace
    given = metadata.get("namespace") or wanted
    if given != wanted and call.kind.namespaced:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if call.kind.namespaced:
        metadata["namespace"] = wanted
    else:
        metadata.pop("namespace", None)
    if call.name and metadata.get("name") not in (None, "", call.name):
        text = f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        raise errors.bad_request(text)
    if call.name and not metadata.get("name"):
        metadata["name"] = call.name


def read_options(call: Call) -> Object:
    """DeleteOptions: from the body, or else from the query."""
    options: Object = {}
    if call.body.strip():
        parsed = parse(call.body, call.content_type)
        if not isinstance(parsed, dict) or parsed.get("kind") not in (None, "", "DeleteOptions"):
            raise errors.bad_request("the body of a delete request is not a DeleteOptions object")
        options = parsed
    for name in ("propagationPolicy", "gracePeriodSeconds", "orphanDependents"):
        if name in call.query and name not in options:
            options[name] = call.query[name]
    if call.query.get("dryRun") and not options.get("dryRun"):
        options["dryRun"] = [call.query["dryRun"]]
    return _typed(options)


def _typed(options: Object) -> Object:
    grace = options.get("gracePeriodSeconds")
    if grace is not None:
        try:
            options["gracePeriodSeconds"] = max(int(grace), 0)
        except (TypeError, ValueError):
            raise errors.bad_request(f"gracePeriodSeconds {grace!r} is not a number") from None
    check_delete(options)
    orphan = options.pop("orphanDependents", None)
    if orphan is not None:
        options["propagationPolicy"] = "Orphan" if orphan in (True, "true") else "Background"
    return options
