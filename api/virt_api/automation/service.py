"""automation/v1: each call is one request to the API server in the caller's name; only the console goes to the node."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.automation import console, migrating, watching
from virt_api.automation.failures import from_api, invalid
from virt_api.automation.guard import token_of
from virt_api.automation.guestinfo import to_guest_info
from virt_api.automation.objects import (
    VM,
    VMI,
    Resource,
    Target,
    manifest,
    namespace_of,
    replacement,
    resource_of,
    target_of,
    to_object,
)
from virt_api.automation.userapi import Call, UserApi
from virt_api.automation.waiting import DEFAULT_TIMEOUT_S, goal_of, wait
from virt_api.automation.watching import Collection
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.problems import from_api as problem_from_api
from virt_api.subresources import checks, streams
from virt_core import __version__
from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError
from virt_core.runtime.logs import get_logger
from virt_protos.automation.v1 import automation_pb2 as pb
from virt_protos.automation.v1 import automation_pb2_grpc
from virt_protos.node.v1 import node_pb2

log = get_logger(__name__)

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the calls work with."""

    api: UserApi
    kube: Kube
    nodes: Nodes
    authenticator: Authenticator
    authorizer: Authorizer


class Automation(automation_pb2_grpc.AutomationServicer):
    """The guard has checked the token before any of these runs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._api = parts.api

    async def GetVersion(self, _: pb.GetVersionRequest, __: Any) -> pb.GetVersionResponse:
        return pb.GetVersionResponse(version=__version__)

    async def Create(self, request: pb.CreateRequest, context: Any) -> pb.Object:
        resource = resource_of(request.kind)
        namespace, body = manifest(resource, request.json, request.namespace)
        return await self._object(context, resource, Call("POST", resource.path(namespace), _dry(request), body))

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.Object:
        target = target_of(request.ref)
        return await self._object(context, target.resource, Call("GET", target.path))

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:
        where = _collection(request)
        objects: list[pb.Object] = []
        after = request.continue_token
        while True:
            page = await watching.page(
                self._api, _token(context), where, limit=request.limit or watching.PAGE, after=after
            )
            objects += [to_object(where.resource, item) for item in page.items or []]
            after = page.metadata.continue_
            if request.limit or not after:
                version = page.metadata.resource_version
                return pb.ListResponse(items=objects, resource_version=version, continue_token=after)

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchEvent]:
        source = watching.changes(self._api, _token(context), _collection(request), request.resource_version)
        async with aclosing(source) as events:
            async for event in events:
                yield event

    async def Update(self, request: pb.UpdateRequest, context: Any) -> pb.Object:
        target = target_of(request.ref)
        change = request.WhichOneof("change")
        if change == "object_json":
            call = Call("PUT", target.path, _dry(request), replacement(target, request.object_json))
        elif change == "merge_patch_json":
            call = Call("PATCH", target.path, _dry(request), request.merge_patch_json, MERGE_PATCH)
        elif change == "json_patch_json":
            call = Call("PATCH", target.path, _dry(request), request.json_patch_json, JSON_PATCH)
        else:
            raise invalid("change: give object_json, merge_patch_json or json_patch_json")
        return await self._object(context, target.resource, call)

    async def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.DeleteResponse:
        target = target_of(request.ref)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if request.uid:
            options["preconditions"] = {"uid": request.uid}
        if request.HasField("grace_period_seconds"):
            options["gracePeriodSeconds"] = request.grace_period_seconds
        if request.orphan:
            options["propagationPolicy"] = "Orphan"
        await self._api.send(_token(context), Call("DELETE", target.path, {}, msgspec.json.encode(options)))
        return pb.DeleteResponse()

    async def Start(self, request: pb.StartRequest, context: Any) -> pb.StartResponse:
        await self._verb(context, _vm(request.ref), "start", {"paused": True} if request.paused else {}, request)
        return pb.StartResponse()

    async def Stop(self, request: pb.StopRequest, context: Any) -> pb.StopResponse:
        grace = request.HasField("grace_period_seconds")
        options = {"gracePeriod": request.grace_period_seconds} if grace else {}
        await self._verb(context, _vm(request.ref), "stop", options, request)
        return pb.StopResponse()

    async def Restart(self, request: pb.RestartRequest, context: Any) -> pb.RestartResponse:
        options = {"gracePeriodSeconds": 0} if request.force else {}
        await self._verb(context, _vm(request.ref), "restart", options, request)
        return pb.RestartResponse()

    async def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:
        await self._verb(context, _vmi(request.ref), "pause", {}, request)
        return pb.PauseResponse()

    async def Unpause(self, request: pb.UnpauseRequest, context: Any) -> pb.UnpauseResponse:
        await self._verb(context, _vmi(request.ref), "unpause", {}, request)
        return pb.UnpauseResponse()

    async def SoftReboot(self, request: pb.SoftRebootRequest, context: Any) -> pb.SoftRebootResponse:
        await self._verb(context, _vmi(request.ref), "softreboot", {}, request)
        return pb.SoftRebootResponse()

    async def Reset(self, request: pb.ResetRequest, context: Any) -> pb.ResetResponse:
        await self._verb(context, _vmi(request.ref), "reset", {}, request)
        return pb.ResetResponse()

    async def Console(
        self, request_iterator: AsyncIterator[pb.ConsoleRequest], context: Any
    ) -> AsyncIterator[pb.ConsoleResponse]:
        target = _as_vmi(await console.opening(request_iterator))
        vmi = await self._allowed_vmi(context, target, "console")
        checks.console(vmi)
        node = await self._parts.nodes.of(vmi)
        call = await streams.open_stream(node, vmi, node_pb2.STREAM_KIND_SERIAL_CONSOLE)
        async with aclosing(console.splice(request_iterator, call, node)) as responses:
            async for response in responses:
                yield response

    async def GetGuestInfo(self, request: pb.GetGuestInfoRequest, context: Any) -> pb.GetGuestInfoResponse:
        target = _vmi(request.ref)
        # Asked here as well: the subresource itself answers 500 for everything, as KubeVirt's does.
        checks.guest_agent(await self._allowed_vmi(context, target, "guestosinfo"))
        path = VMI.sub_path(target.namespace, target.name, "guestosinfo")
        return to_guest_info(await self._api.send(_token(context), Call("GET", path)))

    async def Wait(self, request: pb.WaitRequest, context: Any) -> AsyncGenerator[pb.WaitProgress, None]:
        target, goal = target_of(request.ref), goal_of(request)
        where = Collection(target.resource, target.namespace, field_selector=f"metadata.name={target.name}")
        events = partial(watching.changes, self._api, _token(context), where)
        within_s = _within_s(request, context, DEFAULT_TIMEOUT_S)
        async with aclosing(wait(events, target, goal, within_s)) as steps:
            async for step in steps:
                yield step

    async def Migrate(self, request: pb.MigrateRequest, context: Any) -> AsyncGenerator[pb.MigrateProgress, None]:
        target, within_s = target_of(request.ref), _within_s(request, context, migrating.DEFAULT_TIMEOUT_S)
        async with aclosing(migrating.migrate(self._caller(context), target, request, within_s)) as steps:
            async for step in steps:
                yield step

    async def CancelMigration(self, request: pb.CancelMigrationRequest, context: Any) -> pb.CancelMigrationResponse:
        target = _vmi(request.ref)
        name = await migrating.cancel(self._caller(context), target, dry_run=request.dry_run)
        return pb.CancelMigrationResponse(job_name=name)

    def _caller(self, context: Any) -> migrating.Caller:
        return migrating.Caller(self._api, _token(context))

    async def _object(self, context: Any, resource: Resource, call: Call) -> pb.Object:
        return to_object(resource, await self._api.send(_token(context), call))

    async def _verb(self, context: Any, target: Target, name: str, options: dict[str, Any], request: Any) -> None:
        if getattr(request, "dry_run", False):
            options = {**options, "dryRun": ["All"]}
        path = target.resource.sub_path(target.namespace, target.name, name)
        try:
            await self._api.send(_token(context), Call("PUT", path, {}, msgspec.json.encode(options)))
        except ApiError as error:
            raise from_api(error, verb=True) from error

    async def _allowed_vmi(self, context: Any, target: Target, subresource: str) -> VirtualMachineInstance:
        """The instance, once the caller may use that subresource of it. Raises Problem."""
        who = await self._parts.authenticator.by_token(_token(context))
        await self._parts.authorizer.require(
            who,
            method="GET",
            version=names.VERSION,
            namespace=target.namespace,
            resource=VMI.plural,
            name=target.name,
            subresource=subresource,
        )
        log.info("automation", call=subresource, target=str(target), user=who.user)
        try:
            return await self._parts.kube.vmi(target.namespace, target.name)
        except ApiError as error:
            raise problem_from_api(error, target.name) from error


def _token(context: Any) -> str:
    return token_of(context.invocation_metadata())


def _within_s(request: Any, context: Any, default_s: float) -> float:
    """The shorter of what the request and the call itself say."""
    given = [float(request.timeout_seconds or 0) or None, context.time_remaining()]
    return min([each for each in given if each is not None], default=default_s)


def _dry(request: Any) -> Mapping[str, str]:
    return {"dryRun": "All"} if request.dry_run else {}


def _collection(request: pb.ListRequest | pb.WatchRequest) -> Collection:
    resource, namespace = resource_of(request.kind), namespace_of(request.namespace)
    return Collection(resource, namespace, request.label_selector, request.field_selector)


def _vm(ref: pb.Ref) -> Target:
    target = target_of(ref)
    if target.resource is not VM:
        raise invalid(f"ref.kind: only a VirtualMachine can do this, not {target}: delete or create the instance")
    return target


def _vmi(ref: pb.Ref) -> Target:
    return _as_vmi(target_of(ref))


def _as_vmi(target: Target) -> Target:
    """A VirtualMachine's instance has its name."""
    return Target(VMI, target.namespace, target.name)
