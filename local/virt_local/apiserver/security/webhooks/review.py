"""The AdmissionReview that goes out, and what the answer means."""

from __future__ import annotations

import base64
import binascii
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object
from virt_local.apiserver.security.webhooks.match import Webhook

API_VERSION = "admission.k8s.io/v1"


class BadAnswer(Exception):
    """The webhook answered something that is no AdmissionReview for our question."""


@dataclass(slots=True)
class Verdict:
    allowed: bool
    status: Object = field(default_factory=dict)
    patch: list[Object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def make_review(asked: Object) -> bytes:
    return msgspec.json.encode({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": asked})


def make_question(request: AdmissionRequest, version: str) -> Object:
    """`version` is what the webhook's rule names; the request's own version travels beside it."""
    uid = str(uuid.uuid4())
    kind = {"group": request.group, "version": version, "kind": request.kind}
    own = {**kind, "version": request.version}
    if request.kind_in is not None:
        kind = own = {"group": request.kind_in[0], "version": request.kind_in[1], "kind": request.kind}
    resource = {"group": request.group, "version": version, "resource": request.resource}
    asked: Object = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": own,
        "requestResource": {**resource, "version": request.version},
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": _user_info(request),
        "object": _sent(request, request.object, version),
        "oldObject": _sent(request, request.old_object, version),
        "dryRun": request.dry_run,
        "options": request.options or None,
    }
    if request.subresource:
        asked["subResource"] = asked["requestSubResource"] = request.subresource
    for optional in ("name", "namespace"):
        if not asked[optional]:
            del asked[optional]
    return asked


def _sent(request: AdmissionRequest, obj: Object | None, version: str) -> Object | None:
    return obj if request.kind_in is not None else in_version(obj, request.group, version)


def in_version(obj: Object | None, group: str, version: str) -> Object | None:
    """Versions of a kind differ only by name here (conversion strategy None)."""
    api_version = f"{group}/{version}" if group else version
    if obj is None or "apiVersion" not in obj or obj["apiVersion"] == api_version:
        return obj
    return {**obj, "apiVersion": api_version}


def _user_info(request: AdmissionRequest) -> Object:
    user = request.user
    info: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def read_answer(uid: str, body: bytes) -> Verdict:
    try:
        review: Any = msgspec.json.decode(body)
    except msgspec.DecodeError as err:
        raise BadAnswer(f"the answer is no JSON: {err}") from err
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise BadAnswer("webhook response is absent")
    if (review.get("apiVersion"), review.get("kind")) != (API_VERSION, "AdmissionReview"):
        expected = f"{API_VERSION}, Kind=AdmissionReview"
        raise BadAnswer(
            f"expected webhook response of {expected}, got {review.get('apiVersion')}, {review.get('kind')}"
        )
    if response.get("uid") != uid:
        raise BadAnswer(f"expected response.uid={uid!r}, got {response.get('uid')!r}")
    return Verdict(
        allowed=response.get("allowed") is True,
        status=response.get("status") or {},
        patch=_patch(response),
        warnings=[str(warning) for warning in response.get("warnings") or ()],
    )


def _patch(response: Object) -> list[Object]:
    if not response.get("patch"):
        return []
    if response.get("patchType") != "JSONPatch":
        raise BadAnswer(f"unsupported patch type {response.get('patchType')!r}")
    try:
        operations: Any = msgspec.json.decode(base64.b64decode(response["patch"], validate=True))
    except (binascii.Error, msgspec.DecodeError) as err:
        raise BadAnswer(f"the patch cannot be read: {err}") from err
    if not isinstance(operations, list):
        raise BadAnswer("the patch is no list")
    return operations


def denial(webhook: Webhook, status: Object) -> errors.ApiError:
    """The refusal as the real API server words it; code, reason and details are the webhook's."""
    message = f'admission webhook "{webhook.name}" denied the request'
    if status.get("message"):
        message += f": {status['message']}"
    elif status.get("reason"):
        message += f": {status['reason']}"
    else:
        message += " without explanation"
    details = status.get("details") or {}
    causes = [
        errors.Cause(cause.get("field", ""), cause.get("message", ""), cause.get("reason", ""))
        for cause in details.get("causes") or ()
    ]
    return errors.ApiError(
        code=max(int(status.get("code") or 0), 400),
        reason=status.get("reason", ""),
        message=message,
        name=details.get("name", ""),
        group=details.get("group", ""),
        kind=details.get("kind", ""),
        uid=details.get("uid", ""),
        causes=causes,
        retry_after_s=int(details.get("retryAfterSeconds") or 0),
    )
