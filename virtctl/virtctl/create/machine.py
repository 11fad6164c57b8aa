"""The VM that is being put together: its volumes, boot order, instance type and preference."""

from __future__ import annotations

from typing import Any

import click

from virt_core.apis import names
from virtctl.create.imports import FLAG as IMPORT
from virtctl.create.imports import can_infer_from, parse_import
from virtctl.create.manifest import check_label, random_name
from virtctl.create.params import flag_error, parse, prefixed, required

CONTAINER_DISK, PVC, SYSPREP = "volume-containerdisk", "volume-pvc", "volume-sysprep"
VOLUME = {"name": "str", "src": "str", "bootorder": "uint"}
SYSPREP_SHAPE = {"src": "str", "type": "str"}
_SYSPREP_DISK = "sysprepdisk"
_SYSPREP_KINDS = {"configmap": "configMap", "secret": "secret"}


class Machine:
    def __init__(self, name: str, memory: str, grace_period_s: int) -> None:
        self.name = name
        self.memory: str | None = memory
        self.grace_period_s = grace_period_s
        self.volumes: list[dict[str, Any]] = []
        self.disks: list[dict[str, Any]] = []
        self.templates: list[dict[str, Any]] = []
        self.credentials: list[dict[str, Any]] = []
        self.matchers: dict[str, dict[str, Any]] = {}

    def add_container_disk(self, index: int, text: str) -> None:
        params = parse(CONTAINER_DISK, text, VOLUME)
        required(CONTAINER_DISK, params, "src")
        name = params.get("name") or f"{self.name}-containerdisk-{index}"
        self._add(CONTAINER_DISK, name, {"containerDisk": {"image": params["src"]}}, params)

    def add_claim(self, text: str) -> None:
        params = parse(PVC, text, VOLUME)
        required(PVC, params, "src")
        claim = _local(PVC, params["src"], "pvc")
        self._add(PVC, params.get("name") or claim, {"persistentVolumeClaim": {"claimName": claim}}, params)

    def add_import(self, text: str) -> None:
        params, spec = parse_import(text)
        name = params.get("name") or random_name("imported-volume-")
        storage = {"resources": {"requests": {"storage": params["size"]}}} if params.get("size") else {}
        self._add(IMPORT, name, {"dataVolume": {"name": name}}, params)
        self.templates.append({"metadata": {"name": name}, "spec": {**spec, "storage": storage}})

    def add_sysprep(self, text: str) -> None:
        params = parse(SYSPREP, text, SYSPREP_SHAPE)
        required(SYSPREP, params, "src")
        name = _local(SYSPREP, params["src"], "configmap or secret")
        kind = _SYSPREP_KINDS.get((params.get("type") or "configmap").lower())
        if kind is None:
            message = f'invalid sysprep source type "{params["type"]}", supported values are: configmap, secret'
            raise flag_error(SYSPREP, message)
        self._add(SYSPREP, _SYSPREP_DISK, {"sysprep": {kind: {"name": name}}}, {})

    def _add(self, flag: str, name: str, source: dict[str, Any], params: dict[str, Any]) -> None:
        check_label(flag, name)
        if self.volume(name) is not None:
            raise flag_error(flag, f'there is already a volume with name "{name}"')
        self.volumes.append({"name": name, **source})
        order = params.get("bootorder")
        if order is None:
            return
        if order == 0:
            raise flag_error(flag, "bootorder must be greater than 0")
        if any(disk["bootOrder"] == order for disk in self.disks):
            raise flag_error(flag, f"bootorder {order} was specified multiple times")
        self.disks.append({"name": name, "bootOrder": order})

    def volume(self, name: str) -> dict[str, Any] | None:
        return next((volume for volume in self.volumes if volume["name"] == name), None)

    def infer(self, matcher: str, volume: str | None, *, explicit: bool) -> None:
        """From the named volume, else from the first to boot. Not explicit: what cannot be inferred is left alone."""
        try:
            name = volume or self._first_to_boot()
            self._check_inference(name)
        except click.ClickException:
            if explicit:
                raise
            return
        # Not asked for, so a volume that names nothing is no failure.
        policy = {} if explicit else {"inferFromVolumeFailurePolicy": "Ignore"}
        self.matchers[matcher] = {"inferFromVolume": name, **policy}

    def _first_to_boot(self) -> str:
        if not self.volumes:
            raise click.ClickException("at least one volume is needed to infer an instance type or preference")
        first = min(self.disks, key=lambda disk: disk["bootOrder"]) if self.disks else self.volumes[0]
        return str(first["name"])

    def _check_inference(self, name: str) -> None:
        volume = self.volume(name)
        if volume is None:
            raise click.ClickException(f'there is no volume with name "{name}"')
        template = next((t for t in self.templates if t["metadata"]["name"] == name), None)
        if "dataVolume" in volume and (template is None or can_infer_from(template["spec"])):
            return
        if "persistentVolumeClaim" not in volume:
            raise click.ClickException(
                f'nothing can be inferred from volume "{name}": that works with claims, '
                "and with DataVolumes from a DataSource, PVC, registry or snapshot"
            )

    def manifest(self, metadata: dict[str, Any], run_strategy: str) -> dict[str, Any]:
        domain: dict[str, Any] = {"devices": {"disks": self.disks} if self.disks else {}}
        if self.memory:
            domain["memory"] = {"guest": self.memory}
        spec: dict[str, Any] = {"domain": domain, "terminationGracePeriodSeconds": self.grace_period_s}
        if self.volumes:
            spec["volumes"] = self.volumes
        if self.credentials:
            spec["accessCredentials"] = self.credentials
        templates = {"dataVolumeTemplates": self.templates} if self.templates else {}
        return {
            "apiVersion": names.API_VERSION,
            "kind": "VirtualMachine",
            "metadata": metadata,
            "spec": {**self.matchers, "runStrategy": run_strategy, **templates, "template": {"spec": spec}},
        }


def _local(flag: str, text: str, what: str) -> str:
    namespace, name = prefixed(flag, text, "src invalid: ")
    if namespace:
        raise flag_error(flag, f'not allowed to specify namespace of {what} "{name}"')
    return name
