"""What a Pod's annotations ask for, in either of the two forms that people write. Pure."""

from __future__ import annotations

import re

from virt_core.apis import names
from virt_core.apis.base import UNREADABLE, decode
from virt_core.apis.podnetworks import PRIMARY, Selection
from virt_core.apis.pods import Pod
from virt_local.node.networks.definition import SHARED_NAMESPACE
from virt_local.node.networks.vocabulary import NetworkError

MOST = 16
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_INTERFACE = re.compile(r"[a-z][a-z0-9-]{0,14}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
#: What a launcher's Pod has of its own.
_TAKEN = ("lo", PRIMARY, "tap", "k6t-")


def requested(pod: Pod) -> list[Selection]:
    """Raises NetworkError for what cannot be had."""
    if names.ANNOTATION_DEFAULT_NETWORK in pod.metadata.annotations:
        raise NetworkError(
            f"{names.ANNOTATION_DEFAULT_NETWORK}: virt-local has one Pod network and no other in its place"
        )
    text = pod.metadata.annotations.get(names.ANNOTATION_NETWORKS, "").strip()
    found = [_named(each, number, pod) for number, each in enumerate(_read(text), 1)]
    interfaces = [each.interface for each in found]
    if len(found) > MOST:
        raise NetworkError(f"a Pod can have at most {MOST} networks beside its own")
    if len(set(interfaces)) != len(interfaces):
        raise NetworkError("two networks want the same interface")
    return found


def _read(text: str) -> list[Selection]:
    if not text.startswith("["):
        return [_short(each.strip()) for each in text.split(",") if each.strip()]
    try:
        return decode(text, list[Selection])
    except UNREADABLE as error:
        raise NetworkError(f"{names.ANNOTATION_NETWORKS} cannot be read: {error}") from error


def _short(text: str) -> Selection:
    """[namespace/]name[@interface]"""
    place, _, interface = text.partition("@")
    namespace, _, name = place.rpartition("/")
    return Selection(name=name, namespace=namespace, interface=interface)


def _named(asked: Selection, number: int, pod: Pod) -> Selection:
    own = pod.metadata.namespace
    found = Selection(
        name=asked.name,
        namespace=asked.namespace or own,
        interface=asked.interface or f"net{number}",
        mac=asked.mac.lower(),
    )
    if not _NAME.fullmatch(found.name):
        raise NetworkError(f"{found.name[:80]!r} is no name of a NetworkAttachmentDefinition")
    if found.namespace not in (own, SHARED_NAMESPACE):
        raise NetworkError(
            f"network {found.key[:160]} is of another namespace than the Pod, and not of {SHARED_NAMESPACE}"
        )
    if (
        not _INTERFACE.fullmatch(found.interface)
        or found.interface.startswith(_TAKEN)
        or found.interface.endswith("-nic")
    ):
        raise NetworkError(f"{found.interface[:80]!r} cannot be the name of a secondary interface")
    if found.mac and not _MAC.fullmatch(found.mac):
        raise NetworkError(f"{found.mac[:80]!r} is no MAC address of one interface")
    return found
