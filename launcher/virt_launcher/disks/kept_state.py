"""What firmware and TPM store, in the claim that is kept for the machine.

The claim is the user's, who may mount it elsewhere and leave anything in it. So the variables are opened beneath it
without following a link, must be a regular file, and are never written by us once they are there; QEMU must then hold
the very file. libvirt and its TPM have their own ideas where state lies, so links of ours lead from there to the claim.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.keptstate import keeps_tpm, keeps_variables
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger
from virt_launcher.disks.held import Identity
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError, LauncherError
from virt_launcher.settings import Paths

log = get_logger(__name__)

VARIABLES = "spec.domain.firmware.bootloader.efi.persistent"
TPM = "spec.domain.devices.tpm.persistent"
#: Beside the file itself: one that is there under its own name is always whole.
_UNFINISHED = ".unfinished"

_libc = ctypes.CDLL(None, use_errno=True)


def settle(vmi: VirtualMachineInstance, domain: Domain, paths: Paths) -> Iterator[Identity]:
    """Makes what is missing in the claim. Yields the files that QEMU must hold. Raises InvalidVMIError."""
    if keeps_tpm(vmi.spec):
        _lead(paths.config_home / "libvirt/qemu/swtpm", paths.kept_state / names.KEPT_TPM)
        _lead(paths.config_home / "var/lib/swtpm-localca", paths.kept_state / names.KEPT_TPM_CA)
        _check_tpm(paths.kept_state / names.KEPT_TPM, domain.uuid or "")
    if keeps_variables(vmi.spec):
        template = domain.os.nvram_template
        if (found := _variables(Path(domain.os.nvram or ""), Path(template) if template else None)) is not None:
            yield found


def flush(paths: Paths) -> None:
    """All of it is on the disk when this returns. Raises LauncherError."""
    directory = os.open(paths.kept_state / names.KEPT_META, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(directory) != 0:
            why = os.strerror(ctypes.get_errno())
            raise LauncherError(f"what firmware and TPM have stored could not be written to the disk: {why}")
    finally:
        os.close(directory)


def _lead(link: Path, target: Path) -> None:
    _demand_writable(target, TPM)
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(target)


def _demand_writable(directory: Path, field: str) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        why = f"user {os.getuid()} cannot write to the directory {directory.name} of the machine's claim"
        raise InvalidVMIError(field, f"{why}: its file system must give it to that user or group")


def _check_tpm(directory: Path, uuid: str) -> None:
    """A link in there would lead the TPM to other files of its Pod."""
    for part in (uuid, f"{uuid}/tpm2"):
        try:
            os.close(open_beneath(directory, part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except FileNotFoundError:
            return
        except OSError as error:
            raise InvalidVMIError(TPM, f"{part} in the machine's claim is not usable: {_why(error)}") from error


def _variables(path: Path, template: Path | None) -> Identity | None:
    """None: libvirt chooses the firmware, and makes the file of its variables at the first start."""
    _demand_writable(path.parent, VARIABLES)
    try:
        try:
            fd = _open(path)
        except FileNotFoundError:
            if template is None:
                return None
            _make(path, template.read_bytes())
            fd = _open(path)
    except OSError as error:
        raise InvalidVMIError(VARIABLES, f"{path.name} in the machine's claim is not usable: {_why(error)}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidVMIError(VARIABLES, f"{path.name} in the machine's claim is not a regular file")
        return Identity.of(fd, VARIABLES)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    return open_beneath(path.parent, path.name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _make(path: Path, content: bytes) -> None:
    """As the firmware delivers them. Never over a file that is there."""
    unfinished = f"{path.name}{_UNFINISHED}"
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove(directory, unfinished)
        fd = open_beneath(directory, unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        _remove(directory, unfinished)
    finally:
        os.close(directory)
    log.info("made the variables of the firmware", path=str(path), bytes=len(content))


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
        return "it is a symbolic link or no directory, and links are not followed"
    return error.strerror or str(error)
