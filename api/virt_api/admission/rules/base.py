"""What every rule gets, and the few checks that several rules share."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virt_api.admission.causes import Cause, invalid
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.configvalues import ClusterConfig

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = re.compile(rf"{_SUBDOMAIN_PART}(\.{_SUBDOMAIN_PART})*")
PCI_ADDRESS = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]")


@dataclass(frozen=True, slots=True)
class Check:
    """A spec, where it stands in its object, and the cluster's settings."""

    spec: VirtualMachineInstanceSpec
    config: ClusterConfig
    path: str = "spec"

    @property
    def domain(self) -> str:
        """The path of the domain."""
        return f"{self.path}.domain"

    @property
    def devices(self) -> str:
        """The path of the devices."""
        return f"{self.path}.domain.devices"


Rule = Callable[[Check], Iterator[Cause]]


def is_dns_label(text: str) -> bool:
    return DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    return len(text) <= 253 and DNS_SUBDOMAIN.fullmatch(text) is not None


def image_path(field: str, path: str) -> Iterator[Cause]:
    """A path inside an image: absolute, without dots and double slashes, and not the root."""
    if not path.startswith("/"):
        yield invalid(field, f"{path!r} must be an absolute path")
    elif path == "/" or posixpath.normpath(path) != path:
        yield invalid(field, f"{path!r} must name a file by a plain path, without '..', '.', '//' or a '/' at its end")


def boot_order(field: str, order: int | None, taken: set[int]) -> Iterator[Cause]:
    """Positive, and no two devices at the same place."""
    if order is None:
        return
    if order < 1:
        yield invalid(field, "must be 1 or more")
    elif order in taken:
        yield invalid(field, f"boot order {order} is already taken by another device")
    taken.add(order)
