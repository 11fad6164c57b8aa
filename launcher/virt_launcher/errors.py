"""What can go wrong, in the words of whoever asked. The command server turns each into a gRPC status code."""

from __future__ import annotations


class LauncherError(Exception):
    """Anything that is not listed below: INTERNAL."""


class InvalidVMIError(LauncherError):
    """The VMI cannot be turned into a machine: INVALID_ARGUMENT. `field` is the path that the user wrote."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class WrongStateError(LauncherError):
    """The command makes no sense in the machine's state: FAILED_PRECONDITION."""


class AgentGivenUpError(WrongStateError):
    """libvirt asks the guest agent no more, until it opens its channel anew: it sent what libvirt does not take."""


class NoMachineError(LauncherError):
    """There is no machine yet, or none any more: NOT_FOUND."""


class UnavailableError(LauncherError):
    """libvirt does not answer now: UNAVAILABLE, try again."""


class AbortedError(LauncherError):
    """A move was given up because somebody asked for it."""


class StartUpError(LauncherError):
    """The launcher itself cannot go on; the text becomes its last words."""
