"""What the fake API server does with a request. tests/functional/core/test_fake_kube.py compares it with a real one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from framework.fake_kube import FakeKube, Object, failure
from framework.fake_kube_patches import json_patch, merge
from framework.fake_kube_select import Kind, kind_of

Answer = tuple[int, Any, dict[str, str]]

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
#: When whatever is deleted here was deleted.
DELETED = "2026-01-01T00:00:00Z"


#: The resources of a Pod that runs.
_RESIZE = "/resize"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    content_type: str

    @property
    def kind(self) -> Kind:
        return kind_of(self.path)

    @property
    def is_status(self) -> bool:
        """The approval of a certificate request is a part of its status."""
        return self.target != self.path and not self.path.endswith(_RESIZE)

    @property
    def target(self) -> str:
        return self.path.removesuffix("/status").removesuffix("/approval").removesuffix(_RESIZE)

    @property
    def name(self) -> str:
        return self.target.rsplit("/", 1)[1]


def answer(fake: FakeKube, request: Request) -> Answer:
    with fake.changed:
        if request.method == "POST":
            return _create(fake, request, request.target)
        if request.target in fake.objects:
            return _known(fake, request)
        if request.method == "GET" and request.kind.is_collection:
            return _list(fake, request)
        if request.method == "PATCH" and request.content_type == APPLY:
            return _create(fake, request, request.target.rsplit("/", 1)[0])
        return failure(404, "NotFound", f'{request.kind.resource} "{request.name}" not found')


def _known(fake: FakeKube, request: Request) -> Answer:
    if request.method == "GET":
        return 200, fake.objects[request.target], {}
    if request.method == "DELETE":
        return _delete(fake, request)
    return _change(fake, request)


def _create(fake: FakeKube, request: Request, path: str) -> Answer:
    body, kind = _copy(request.body), request.kind
    meta = body["metadata"]
    meta["name"] = name = meta.get("name") or f"{meta['generateName']}{fake.version:05x}"
    if f"{path}/{name}" in fake.objects:
        return failure(409, "AlreadyExists", f'{kind.resource} "{name}" already exists')
    if kind.has_status:
        body.pop("status", None)
    if kind.has_generation:
        meta["generation"] = 1
    if request.query.get("dryRun"):
        return 201, body, {}
    return 201, fake.put(f"{path}/{name}", body), {}


def _list(fake: FakeKube, request: Request) -> Answer:
    items = fake.select(request.path, request.query)
    start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 0)
    meta = {"resourceVersion": str(fake.version)}
    if limit and start + limit < len(items):
        meta["continue"] = str(start + limit)
    return 200, {"metadata": meta, "items": items[start : start + limit] if limit else items}, {}


def _delete(fake: FakeKube, request: Request) -> Answer:
    """What a finalizer holds stays, marked."""
    old = fake.objects[request.target]
    wanted = (request.body or {}).get("preconditions") or {}
    for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) not in (None, "", old["metadata"][field]):
            return failure(409, "Conflict", f"the {words} in the precondition does not match")
    if not old["metadata"].get("finalizers"):
        return 200, fake.remove(request.target), {}
    if old["metadata"].get("deletionTimestamp"):
        return 200, old, {}
    new = _copy(old)
    new["metadata"] |= {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 0}
    _count(new, request.kind)
    return 200, fake.put(request.target, new), {}


def _change(fake: FakeKube, request: Request) -> Answer:
    old = fake.objects[request.target]
    new = _copy(old)
    if request.method == "PUT":
        new = _copy(request.body)
    elif request.content_type == STRATEGIC:
        merge(new, _with_conditions(old, request.body))
    elif request.content_type != JSON_PATCH:
        merge(new, request.body)
    elif not json_patch(new, request.body):
        message = "the server rejected our request due to an error in our request"
        return failure(422, "Invalid", message)
    seen = new["metadata"].get("resourceVersion")
    if seen != old["metadata"]["resourceVersion"] and (seen or request.method == "PUT"):
        return failure(409, "Conflict", "the object has been modified")
    return 200, _store(fake, request, old, new), {}


def _with_conditions(old: Object, patch: Object) -> Object:
    """The patch with the conditions that the object has already and the patch does not speak of: they merge by type."""
    told = (patch.get("status") or {}).get("conditions") or []
    types = {each["type"] for each in told}
    kept = [each for each in (old.get("status") or {}).get("conditions") or [] if each["type"] not in types]
    return {**patch, "status": {**(patch.get("status") or {}), "conditions": [*kept, *told]}} if told else patch


def _store(fake: FakeKube, request: Request, old: Object, new: Object) -> Object:
    if request.kind.has_status:
        kept, written = (old, new) if request.is_status else (new, old)
        new = {key: value for key, value in kept.items() if key != "status"}
        if "status" in written:
            new["status"] = written["status"]
    new["metadata"] = {**new["metadata"], **_kept(old, new)}
    if new == old:
        return old
    if any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - request.kind.uncounted):
        _count(new, request.kind)
    stored = fake.put(request.target, new)
    if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
        return fake.remove(request.target)
    return stored


def _kept(old: Object, new: Object) -> Object:
    """What no client can change."""
    fields = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion")
    return {field: old["metadata"][field] for field in fields if field in old["metadata"]}


def _count(obj: Object, kind: Kind) -> None:
    if kind.has_generation:
        obj["metadata"]["generation"] = obj["metadata"].get("generation", 0) + 1


def _copy(obj: Object) -> Object:
    copied: Object = json.loads(json.dumps(obj))
    return copied
