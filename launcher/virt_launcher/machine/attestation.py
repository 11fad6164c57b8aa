"""What the owner of an encrypted guest (AMD SEV) asks before it trusts the guest with a secret."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import LauncherError, WrongStateError
from virt_launcher.hypervisor.ports import Facts, Hypervisor, Measurement, SevInfo, State


class Attestation:
    """`modifying` is the lock of all commands that change the machine, `require` says that it runs."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        modifying: Callable[[], AbstractContextManager[None]],
        require: Callable[[], Facts],
    ) -> None:
        self._hypervisor, self._modifying, self._require = hypervisor, modifying, require

    def info(self) -> SevInfo:
        """Of the processor: there need be no machine yet."""
        return self._hypervisor.sev_info()

    def measurement(self) -> tuple[Measurement, str]:
        """With the digest of the firmware, which the owner compares with the one that it knows."""
        self._require_paused()
        return self._hypervisor.launch_measurement(), self._loader_digest()

    def inject(self, header: str, secret: str) -> None:
        with self._modifying():
            self._require_paused()
            self._hypervisor.inject_secret(header, secret)

    def _require_paused(self) -> None:
        if self._require().state is not State.PAUSED:
            raise WrongStateError("the machine is already running: its launch is over")

    def _loader_digest(self) -> str:
        """Of a file of our own image: libvirt shows the path that we gave it."""
        loader = from_xml(self._hypervisor.describe()).os.loader
        if not loader:
            raise WrongStateError("the machine has no UEFI firmware that could have been measured")
        try:
            with open(loader, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise LauncherError(f"the firmware {loader} cannot be read: {error.strerror}") from error
