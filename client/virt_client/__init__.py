"""A small client of virt-api's automation service: VMs and VMIs from Python, with one class.

with Client.from_kubeconfig(token=token) as client:
    client.create(manifest)
    machine = client.wait("vmi", "guest", phases=["Running"], timeout_s=120)
    print(machine.ip_addresses)
"""

from virt_client.client import Client
from virt_client.console import Console
from virt_client.errors import (
    AlreadyExists,
    AutomationError,
    Cause,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionFailed,
    Timeout,
    Unauthenticated,
    Unavailable,
)
from virt_client.settings import SettingsError
from virt_client.types import Change, GuestInfo, KindName, Machine, Move, MoveForecast, Page, Progress
from virt_client.watch import Watch

__all__ = [
    "AlreadyExists",
    "AutomationError",
    "Cause",
    "Change",
    "Client",
    "Conflict",
    "Console",
    "Expired",
    "Forbidden",
    "GuestInfo",
    "Invalid",
    "KindName",
    "Machine",
    "Move",
    "MoveForecast",
    "NotFound",
    "Page",
    "PreconditionFailed",
    "Progress",
    "SettingsError",
    "Timeout",
    "Unauthenticated",
    "Unavailable",
    "Watch",
]
