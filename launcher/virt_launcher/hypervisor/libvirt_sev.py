"""The part of the door to libvirt that is about AMD SEV: the processor's papers, a launch's measurement, its secret."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import libvirt

from virt_launcher.errors import InvalidVMIError, WrongStateError
from virt_launcher.hypervisor.ports import Measurement, SevInfo

_SECURITY = "VIR_DOMAIN_LAUNCH_SECURITY_SEV_"


class SevDoor(ABC):
    """Whoever extends it has the connection."""

    @abstractmethod
    def _asking(self) -> AbstractContextManager[Any]:
        """The connection; errors are translated."""

    @abstractmethod
    def _machine(self) -> AbstractContextManager[Any]:
        """The domain, likewise."""

    def sev_info(self) -> SevInfo:
        with _without_sev(), self._asking() as connection:
            found = _known(connection.getSEVInfo)
        return SevInfo(
            pdh=str(found.get(libvirt.VIR_NODE_SEV_PDH, "")),
            cert_chain=str(found.get(libvirt.VIR_NODE_SEV_CERT_CHAIN, "")),
        )

    def launch_measurement(self) -> Measurement:
        with _without_sev(), self._machine() as domain:
            found = _known(domain.launchSecurityInfo)

        def number(name: str) -> int:
            return int(found.get(getattr(libvirt, _SECURITY + name), 0))

        return Measurement(
            measurement=str(found.get(libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_MEASUREMENT, "")),
            api_major=number("API_MAJOR"),
            api_minor=number("API_MINOR"),
            build_id=number("BUILD_ID"),
            policy=number("POLICY"),
        )

    def inject_secret(self, header: str, secret: str) -> None:
        parts = {
            libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_SECRET_HEADER: header,
            libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_SECRET: secret,
        }
        with _without_sev(), self._machine() as domain:
            _known(lambda: domain.setLaunchSecurityState(parts, 0))


def _known(call: Any) -> Any:
    """A driver that does not know the call at all is a processor without SEV to whoever asks."""
    try:
        return call()
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            raise WrongStateError("this node has no SEV") from error
        raise


@contextmanager
def _without_sev() -> Iterator[None]:
    """libvirt says that the configuration is not supported; the caller's configuration is not what is wrong."""
    try:
        yield
    except InvalidVMIError as error:
        raise WrongStateError(f"this node has no SEV: {error}") from error
