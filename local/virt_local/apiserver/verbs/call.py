"""One request on an object, as the verbs see it, and their answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, User
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.request import Target
from virt_local.apiserver.storage.record import Record

if TYPE_CHECKING:
    from virt_local.apiserver.server import Server

Object = dict[str, Any]


@dataclass(slots=True)
class Call:
    server: Server
    target: Target
    kind: Kind
    user: User
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    user_agent: str = ""
    warnings: list[str] = field(default_factory=list)
    strict_errors: list[str] = field(default_factory=list)  # what a strict reader of the body would refuse
    by_server: bool = False  # the server's own write: no webhook is asked

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def namespace(self) -> str:
        return self.target.namespace if self.kind.namespaced else ""

    @property
    def subresource(self) -> str:
        return self.target.subresource

    @property
    def manager(self) -> str:
        """Who a change is booked to: what the client says, else the program's name."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"

    def record(self) -> Record:
        """The stored object that the request names, or a 404."""
        found = self.server.store.get(self.kind.storage, self.namespace, self.name)
        if found is None:
            raise self.not_found()
        return found

    def not_found(self) -> errors.ApiError:
        return errors.not_found(self.kind.plural, self.kind.group, self.name)

    def conflict(self, why: str = "") -> errors.ApiError:
        if not why:
            return errors.modified(self.kind.plural, self.kind.group, self.name)
        return errors.conflict(self.kind.plural, self.kind.group, self.name, why)

    def invalid(self, name: str, causes: Sequence[errors.Cause]) -> errors.ApiError:
        return errors.invalid(self.kind.kind, self.kind.stored_group, name, causes)

    async def mutate(self, request: AdmissionRequest) -> None:
        if not self.by_server:
            await self.server.hooks.admission.mutate(request)

    async def validate(self, request: AdmissionRequest) -> None:
        if not self.by_server:
            await self.server.hooks.admission.validate(request)

    def admission(
        self, operation: str, obj: Object | None, old: Object | None, options: Object, dry_run: bool
    ) -> AdmissionRequest:
        return AdmissionRequest(
            operation=operation,
            group=self.kind.group,
            version=self.kind.version,
            kind=self.kind.kind,
            resource=self.kind.plural,
            subresource=self.subresource,
            namespace=self.namespace,
            name=self.name,
            user=self.user,
            object=obj,
            old_object=old,
            options=options,
            dry_run=dry_run,
            warnings=self.warnings,
        )


@dataclass(slots=True)
class Answer:
    """One object (a record, or a dict when it is not a stored one) with its HTTP code."""

    code: int
    record: Record | None = None
    obj: Object | None = None

    def object(self, kind: Kind) -> Object:
        if self.obj is not None:
            return self.obj
        if self.record is None:
            raise errors.internal("an answer without an object")
        return kind.view(self.record.object())


@dataclass(slots=True)
class ListAnswer:
    """A list of records with the revision it was read at."""

    records: list[Record]
    revision: int
    next_token: str = ""
    remaining: int = 0


def success(kind: Kind, record: Record) -> Object:
    """The Status that says that an object is gone."""
    details = {"name": record.name, "group": kind.group, "kind": kind.plural, "uid": record.uid}
    details = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
