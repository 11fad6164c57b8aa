"""The client: one method for each call of automation/v1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any

import grpc

from virt_client import settings
from virt_client.console import Console
from virt_client.errors import AutomationError, error_of
from virt_client.settings import Token
from virt_client.types import (
    GuestInfo,
    KindName,
    Machine,
    Move,
    Page,
    Progress,
    guest_info_of,
    kind_of,
    machine_of,
    move_of,
)
from virt_client.watch import Watch
from virt_protos.automation.v1 import automation_pb2 as pb
from virt_protos.automation.v1 import automation_pb2_grpc

#: The service ends a wait by itself and says how far it came; it gets so much longer to say it.
_SLACK_S = 5.0
Manifest = Mapping[str, Any]
Operations = list[dict[str, Any]]
Metadata = list[tuple[str, str]]

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 20000),
    ("grpc.keepalive_timeout_ms", 10000),
]


class Client:
    """Thread safe. Close it, or use it in a `with` block. Each method raises AutomationError."""

    def __init__(
        self,
        address: str,
        token: Token,
        *,
        ca_pem: bytes = b"",
        server_name: str = "",
        namespace: str = "default",
        timeout_s: float = 30.0,
    ) -> None:
        """`token` may be a function, for tokens that are renewed. `server_name`: where the certificate has another."""
        options = [*_OPTIONS, *([("grpc.ssl_target_name_override", server_name)] if server_name else [])]
        self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca_pem or None), options=options)
        self._stub: Any = automation_pb2_grpc.AutomationStub(self._channel)
        self._token, self._timeout_s, self.namespace = token, timeout_s, namespace

    @classmethod
    def from_kubeconfig(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        address: str | None = None,
        token: Token | None = None,
        ca_file: str | Path | None = None,
        server_name: str = "",
        namespace: str = "",
        timeout_s: float = 30.0,
    ) -> Client:
        """From a file, $KUBECONFIG or ~/.kube/config; what is given here wins. Raises SettingsError."""
        file, ca = (str(path) if path else None for path in (kubeconfig, ca_file))
        found = settings.load(file, context, address=address, token=token, ca_file=ca)
        return cls(
            found.address,
            found.token,
            ca_pem=found.ca_pem,
            server_name=server_name or found.server_name,
            namespace=namespace or found.namespace,
            timeout_s=timeout_s,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all watches and consoles as well."""
        self._channel.close()

    def version(self) -> str:
        return str(self._call("GetVersion", pb.GetVersionRequest()).version)

    def create(self, manifest: Manifest, *, namespace: str = "", dry_run: bool = False) -> Machine:
        """The manifest says which kind. Its namespace counts where none is given."""
        request = pb.CreateRequest(
            kind=kind_of(str(manifest.get("kind", ""))),
            namespace=namespace or (manifest.get("metadata") or {}).get("namespace") or self.namespace,
            json=json.dumps(manifest).encode(),
            dry_run=dry_run,
        )
        return machine_of(self._call("Create", request))

    def get(self, kind: KindName, name: str, namespace: str = "") -> Machine:
        return machine_of(self._call("Get", pb.GetRequest(ref=self._ref(kind, name, namespace))))

    def list(
        self,
        kind: KindName,
        namespace: str = "",
        *,
        all_namespaces: bool = False,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
    ) -> Page:
        request = pb.ListRequest(
            kind=kind_of(kind),
            namespace="" if all_namespaces else namespace or self.namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            continue_token=continue_token,
        )
        answer = self._call("List", request)
        return Page(tuple(map(machine_of, answer.items)), answer.resource_version, answer.continue_token)

    def watch(
        self,
        kind: KindName,
        namespace: str = "",
        *,
        all_namespaces: bool = False,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> Watch:
        """Without a version: first what is there, then a bookmark, then the changes."""
        request = pb.WatchRequest(
            kind=kind_of(kind),
            namespace="" if all_namespaces else namespace or self.namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
        )
        return Watch(lambda: self._stub.Watch(request, metadata=self._metadata()))

    def update(self, manifest: Manifest, *, dry_run: bool = False) -> Machine:
        """The whole object, as `Machine.manifest` gave it: Conflict when somebody changed it meanwhile."""
        meta = manifest.get("metadata") or {}
        ref = self._ref(str(manifest.get("kind", "")), str(meta.get("name", "")), meta.get("namespace", ""))
        request = pb.UpdateRequest(ref=ref, object_json=json.dumps(manifest).encode(), dry_run=dry_run)
        return machine_of(self._call("Update", request))

    def patch(
        self, kind: KindName, name: str, patch: Manifest | Operations, namespace: str = "", *, dry_run: bool = False
    ) -> Machine:
        """A map is a merge patch (RFC 7386), a list is a JSON patch (RFC 6902)."""
        request = pb.UpdateRequest(ref=self._ref(kind, name, namespace), dry_run=dry_run)
        change = "json_patch_json" if isinstance(patch, list) else "merge_patch_json"
        setattr(request, change, json.dumps(patch).encode())
        return machine_of(self._call("Update", request))

    def delete(
        self,
        kind: KindName,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
        orphan: bool = False,
    ) -> None:
        """Returns at once; `wait(gone=True)` waits for the end."""
        ref = self._ref(kind, name, namespace)
        self._call("Delete", pb.DeleteRequest(ref=ref, uid=uid, grace_period_seconds=grace_period_s, orphan=orphan))

    def start(self, name: str, namespace: str = "", *, paused: bool = False) -> None:
        self._call("Start", pb.StartRequest(ref=self._ref("vm", name, namespace), paused=paused))

    def stop(self, name: str, namespace: str = "", *, grace_period_s: int | None = None) -> None:
        self._call("Stop", pb.StopRequest(ref=self._ref("vm", name, namespace), grace_period_seconds=grace_period_s))

    def restart(self, name: str, namespace: str = "", *, force: bool = False) -> None:
        self._call("Restart", pb.RestartRequest(ref=self._ref("vm", name, namespace), force=force))

    def pause(self, name: str, namespace: str = "") -> None:
        self._call("Pause", pb.PauseRequest(ref=self._ref("vmi", name, namespace)))

    def unpause(self, name: str, namespace: str = "") -> None:
        self._call("Unpause", pb.UnpauseRequest(ref=self._ref("vmi", name, namespace)))

    def soft_reboot(self, name: str, namespace: str = "") -> None:
        self._call("SoftReboot", pb.SoftRebootRequest(ref=self._ref("vmi", name, namespace)))

    def reset(self, name: str, namespace: str = "") -> None:
        self._call("Reset", pb.ResetRequest(ref=self._ref("vmi", name, namespace)))

    def console(self, name: str, namespace: str = "") -> Console:
        def open_call(requests: Any) -> Any:
            return self._stub.Console(requests, metadata=self._metadata())

        return Console(open_call, self._ref("vmi", name, namespace))

    def guest_info(self, name: str, namespace: str = "") -> GuestInfo:
        ref = self._ref("vmi", name, namespace)
        return guest_info_of(self._call("GetGuestInfo", pb.GetGuestInfoRequest(ref=ref)))

    def wait(
        self,
        kind: KindName,
        name: str,
        namespace: str = "",
        *,
        phases: Iterable[str] = (),
        condition: str = "",
        gone: bool = False,
        timeout_s: float = 300.0,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Machine | None:
        """Until one of the phases, a condition or the end; gives the machine as it is then, None when it is gone."""
        request = pb.WaitRequest(ref=self._ref(kind, name, namespace), timeout_seconds=max(1, ceil(timeout_s)))
        if gone:
            request.gone = True
        elif condition:
            request.condition = condition
        else:
            request.phases.names.extend(phases)
        try:
            for step in self._stub.Wait(request, timeout=timeout_s + _SLACK_S, metadata=self._metadata()):
                machine = machine_of(step.object) if step.HasField("object") else None
                if on_progress is not None:
                    on_progress(Progress(step.message, step.elapsed_ms / 1000, machine))
                if step.done:
                    return machine
        except grpc.RpcError as error:
            raise error_of(error) from error
        raise AutomationError(grpc.StatusCode.UNKNOWN, "the service ended the wait without an answer")

    def migrate(
        self,
        name: str,
        namespace: str = "",
        *,
        kind: KindName = "vm",
        added_node_selector: Mapping[str, str] | None = None,
        dry_run: bool = False,
        timeout_s: float = 3600.0,
    ) -> Iterator[Move]:
        """Moves it to another node; each step tells how it goes, the last one has `done`. Begins at the first step that
        is asked for. Who stops looking does not stop the move: `cancel_migration` does."""
        request = pb.MigrateRequest(
            ref=self._ref(kind, name, namespace),
            added_node_selector=added_node_selector,
            dry_run=dry_run,
            timeout_seconds=max(1, ceil(timeout_s)),
        )
        call = self._stub.Migrate(request, timeout=timeout_s + _SLACK_S, metadata=self._metadata())
        try:
            for step in call:
                yield move_of(step)
        except grpc.RpcError as error:
            raise error_of(error) from error
        finally:
            call.cancel()

    def cancel_migration(self, name: str, namespace: str = "", *, dry_run: bool = False) -> str:
        """Gives up the move that is under way; the name of its job. The guest goes on where it is."""
        request = pb.CancelMigrationRequest(ref=self._ref("vmi", name, namespace), dry_run=dry_run)
        return str(self._call("CancelMigration", request).job_name)

    def _ref(self, kind: str, name: str, namespace: str) -> pb.Ref:
        return pb.Ref(kind=kind_of(kind), namespace=namespace or self.namespace, name=name)

    def _metadata(self) -> Metadata:
        token = self._token() if callable(self._token) else self._token
        return [("authorization", f"Bearer {token}")]

    def _call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self._stub, method)(request, timeout=self._timeout_s, metadata=self._metadata())
        except grpc.RpcError as error:
            raise error_of(error) from error
