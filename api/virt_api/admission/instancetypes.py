"""What admission wants of instance types and preferences, and the library behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from virt_api.admission.causes import Cause, Denied, invalid, not_found
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.vm import VirtualMachine
from virt_core.instancetype import InferError, Lookup, NotFoundError, check, infer, resolve
from virt_core.instancetype.apply import TEMPLATE_SPEC
from virt_core.instancetype.expand import shape
from virt_core.kube.configvalues import ClusterConfig


class Instancetypes(Protocol):
    def infer(self, vm: VirtualMachine, lookup: Lookup) -> VirtualMachine:
        """The VM with inferFromVolume replaced by names; its volumes are looked up there. Raises Denied."""

    def preference(self, vm: VirtualMachine) -> VirtualMachinePreferenceSpec | None:
        """The VM's preference, if it has one that exists."""

    def expand(self, vm: VirtualMachine) -> list[Cause]:
        """Fills in the VM's template in place; what speaks against it."""


class LibraryInstancetypes:
    """A type that does not exist yet is no mistake: the VM waits for it, and says so."""

    def __init__(self, lookup: Lookup, config: Callable[[], ClusterConfig]) -> None:
        self._lookup, self._config = lookup, config

    def _interface(self) -> str:
        return self._config().default_network_interface

    def infer(self, vm: VirtualMachine, lookup: Lookup) -> VirtualMachine:
        try:
            return infer(vm, lookup)
        except InferError as error:
            raise Denied(str(error)) from error

    def preference(self, vm: VirtualMachine) -> VirtualMachinePreferenceSpec | None:
        if vm.spec.preference is None:
            return None
        try:
            return resolve(vm, self._lookup).preference
        except NotFoundError:
            return None

    def expand(self, vm: VirtualMachine) -> list[Cause]:
        template = vm.spec.template
        if template is None or (vm.spec.instancetype is None and vm.spec.preference is None):
            return []
        try:
            found = resolve(vm, self._lookup)
        except NotFoundError:
            return []
        conflicts = check(vm, found)
        if not conflicts:
            template.metadata = template.metadata or ObjectMeta()
            conflicts = shape(template.spec, template.metadata, found, self._interface(), TEMPLATE_SPEC)
        return [(not_found if c.unmet else invalid)(c.field, c.message) for c in conflicts]
