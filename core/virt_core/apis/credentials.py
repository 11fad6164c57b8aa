"""The access credentials of a VMI, taken apart: which Secret goes where in the guest, and how. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from virt_core.apis.vmi import AccessCredential, VirtualMachineInstance


class Way(Enum):
    NO_CLOUD = "noCloud"
    CONFIG_DRIVE = "configDrive"
    AGENT_KEYS = "keys by the guest agent"
    AGENT_PASSWORDS = "passwords by the guest agent"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One Secret, and the way that it takes into the guest."""

    way: Way
    secret: str
    #: Whose keys they are, where the agent sets them.
    users: tuple[str, ...] = ()


def deliveries(vmi: VirtualMachineInstance) -> tuple[Delivery, ...]:
    return tuple(found for each in vmi.spec.access_credentials for found in _of(each))


def by_agent(vmi: VirtualMachineInstance) -> tuple[Delivery, ...]:
    """Those that go into the running guest."""
    return tuple(each for each in deliveries(vmi) if each.way in (Way.AGENT_KEYS, Way.AGENT_PASSWORDS))


def secrets(vmi: VirtualMachineInstance) -> tuple[str, ...]:
    """Each once, in the order in which they are named."""
    return tuple(dict.fromkeys(each.secret for each in deliveries(vmi)))


def _of(credential: AccessCredential) -> Iterator[Delivery]:
    key, password = credential.ssh_public_key, credential.user_password
    if key is not None and key.source.secret is not None:
        secret, method = key.source.secret.secret_name, key.propagation_method
        if method.no_cloud is not None:
            yield Delivery(Way.NO_CLOUD, secret)
        if method.config_drive is not None:
            yield Delivery(Way.CONFIG_DRIVE, secret)
        if method.qemu_guest_agent is not None:
            yield Delivery(Way.AGENT_KEYS, secret, tuple(method.qemu_guest_agent.users))
    if password is not None and password.source.secret is not None:
        yield Delivery(Way.AGENT_PASSWORDS, password.source.secret.secret_name)
