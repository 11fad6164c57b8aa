"""Flags, environment and the paths that follow from them. Argparse, since a launcher starts for every VM."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from virt_core.apis import names
from virt_core.runtime.record import record

ENV_PREFIX = "VIRT_LAUNCHER_"
#: What the Pod is to its VMI: where the guest starts, or where a running one moves to.
ROLE_ACTIVE = "active"
ROLE_TARGET = "target"
#: Of each log that a guest can make grow, and of the older one beside it.
MAX_LOG_BYTES = 4 << 20


@record(frozen=True, slots=True, kw_only=True)
class Paths:
    """Every path that the launcher touches, derived from the four directories of its Pod."""

    share: Path = Path(names.PATH_SHARE)
    private: Path = Path(names.PATH_PRIVATE)
    ephemeral: Path = Path(names.PATH_EPHEMERAL_DISKS)
    libvirt: Path = Path(names.PATH_LIBVIRT)
    images: Path = Path(names.PATH_IMAGE_VOLUMES)
    kernel_boot: Path = Path(names.PATH_KERNEL_BOOT)
    devices: Path = Path("/dev")
    hooks: Path = Path(names.PATH_HOOKS)
    huge_pages: Path = Path(names.PATH_HUGE_PAGES)
    service_account: Path = Path(names.PATH_SERVICE_ACCOUNT)
    termination_log: Path = Path("/dev/termination-log")

    @property
    def sockets(self) -> Path:
        return self.share / "sockets"

    @property
    def share_sockets(self) -> Path:
        """Where those listen that share directories with the guest."""
        return self.share / names.VOLUME_SHARE_SOCKETS

    @property
    def init_socket(self) -> Path:
        return self.sockets / names.SOCKET_LAUNCHER_INIT

    @property
    def command_socket(self) -> Path:
        return self.sockets / names.SOCKET_LAUNCHER

    @property
    def notify_socket(self) -> Path:
        return self.sockets / names.SOCKET_NOTIFY

    @property
    def cache_home(self) -> Path:
        return self.private / "cache"

    @property
    def config_home(self) -> Path:
        return self.private / "config"

    @property
    def data_home(self) -> Path:
        return self.private / "data"

    @property
    def capability_cache(self) -> Path:
        """Where a session daemon keeps what it found out about QEMU."""
        return self.cache_home / "libvirt/qemu/cache/capabilities"

    @property
    def disk_data(self) -> Path:
        return self.ephemeral / "disk-data"

    @property
    def cloud_init(self) -> Path:
        return self.ephemeral / "cloud-init-data"

    @property
    def acpi_tables(self) -> Path:
        return self.ephemeral / "acpi-tables"

    @property
    def ignition(self) -> Path:
        return self.ephemeral / "ignition-data"

    def machine_dir(self, uid: str) -> Path:
        """The VM's sockets (serial console, VNC, guest agent) and its console log."""
        return self.private / uid

    @property
    def kept_state(self) -> Path:
        """Where the claim is in which the state of firmware and TPM is kept."""
        return self.private / names.VOLUME_KEPT_STATE

    @property
    def machine_state(self) -> Path:
        """Where the claim is that holds the state which the machine goes on from."""
        return self.private / "machine-state"

    @property
    def metrics_disk(self) -> Path:
        return self.private / "downwardapi-disks" / names.FILE_METRICS

    def metrics_socket(self, uid: str) -> Path:
        return self.machine_dir(uid) / names.SOCKET_METRICS

    def secret(self, name: str) -> Path:
        return self.private / "secret" / name

    def credentials(self, secret: str) -> Path:
        """Where the Secret of access credentials is mounted."""
        return self.secret(names.access_credential_directory(secret))

    def disk_directory(self, volume: str) -> Path:
        """Where the claim or host directory of a volume is mounted."""
        return self.private / "vmi-disks" / volume

    def hotplug(self, volume: str) -> Path:
        """Where a volume that came while the machine runs is: a directory, or a block device."""
        return self.private / names.DIRECTORY_HOTPLUG / volume

    def file_volume(self, volume: str) -> Path:
        """Where the files of a ConfigMap, Secret or downward API volume are mounted."""
        return self.private / "file-volumes" / volume

    @property
    def file_disks(self) -> Path:
        return self.ephemeral / "file-disks"

    def qemu_pid_file(self, domain_name: str) -> Path:
        return self.libvirt / "libvirt/qemu/run" / f"{domain_name}.pid"

    def serial_log(self, uid: str) -> Path:
        return self.machine_dir(uid) / names.FILE_SERIAL_LOG

    @property
    def daemon_log(self) -> Path:
        return self.private / "libvirt-daemon.log"

    def qemu_log(self, domain_name: str) -> Path:
        return self.cache_home / "libvirt/qemu/log" / f"{domain_name}.log"


@record(frozen=True, slots=True, kw_only=True)
class Settings:
    name: str = ""
    namespace: str = ""
    uid: str = ""
    role: str = ROLE_ACTIVE
    grace_period_s: float = 45.0
    qemu_timeout_s: float = 240.0
    allow_emulation: bool = False
    any_architecture: bool = False
    firmware_auto_selection: bool = False
    devices_near_memory: bool = False
    no_serial_log: bool = False
    no_free_page_reporting: bool = False
    keep_after_failure: bool = False
    fail_fast: bool = False
    hook_sidecars: int = 0
    plugin_sidecars: int = 0
    log_level: str = "info"
    max_log_bytes: int = MAX_LOG_BYTES
    node_probe: Path | None = None
    paths: Paths = Paths()

    @property
    def domain_name(self) -> str:
        return f"{self.namespace}_{self.name}"

    @property
    def receives(self) -> bool:
        """Its machine moves in; to start one would be a second copy of the guest."""
        return self.role == ROLE_TARGET


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    parser = _parser(environ)
    args = parser.parse_args(argv)
    if not args.node_probe:
        missing = [flag for flag in ("name", "namespace", "uid") if not getattr(args, flag)]
        if missing:
            parser.error("missing " + ", ".join(f"--{flag} (or ${ENV_PREFIX}{flag.upper()})" for flag in missing))
        if "/" in args.uid or args.uid in (".", ".."):
            parser.error("--uid must be a name, not a path")
    if args.role not in (ROLE_ACTIVE, ROLE_TARGET):
        # A default from the environment is not held against the choices of a flag.
        parser.error(f"--role must be {ROLE_ACTIVE} or {ROLE_TARGET}, not {args.role!r}")
    return Settings(
        name=args.name,
        namespace=args.namespace,
        uid=args.uid,
        role=args.role,
        grace_period_s=args.grace_period_seconds,
        qemu_timeout_s=args.qemu_timeout,
        allow_emulation=args.allow_emulation,
        any_architecture=args.any_architecture,
        firmware_auto_selection=args.firmware_auto_selection,
        devices_near_memory=args.devices_near_memory,
        no_serial_log=args.no_serial_log,
        no_free_page_reporting=args.no_free_page_reporting,
        keep_after_failure=args.keep_after_failure,
        fail_fast=args.fail_fast,
        hook_sidecars=args.hook_sidecars,
        plugin_sidecars=args.plugin_sidecars,
        log_level=args.log_level,
        max_log_bytes=args.max_log_bytes,
        node_probe=Path(args.node_probe) if args.node_probe else None,
        paths=_paths(args),
    )


def _paths(args: argparse.Namespace) -> Paths:
    return Paths(
        share=Path(args.share_dir),
        private=Path(args.private_dir),
        ephemeral=Path(args.ephemeral_disk_dir),
        libvirt=Path(args.libvirt_dir),
        images=Path(args.image_volume_dir),
        kernel_boot=Path(args.kernel_boot_dir),
        hooks=Path(args.hooks_dir),
        termination_log=Path(args.termination_log),
    )


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="virt-launcher", description="Run one machine in its Pod.")

    def add(flag: str, default: str, text: str, kind: type = str) -> None:
        variable = ENV_PREFIX + flag.upper().replace("-", "_")
        value = environ.get(variable, default)
        parser.add_argument(f"--{flag}", default=value, type=kind, help=f"{text} [${variable}, default: {default!r}]")

    defaults = Paths()
    add("name", "", "name of the VMI")
    add("namespace", "", "namespace of the VMI")
    add("uid", "", "UID of the VMI")
    add("role", ROLE_ACTIVE, f"{ROLE_ACTIVE}: start the machine; {ROLE_TARGET}: wait for one that is migrated here")
    add("grace-period-seconds", "45", "seconds that the guest has to shut down after SIGTERM", float)
    add("qemu-timeout", "240", "seconds to wait for the command to start a machine", float)
    add("share-dir", str(defaults.share), "volume with the command and notify sockets")
    add("private-dir", str(defaults.private), "volume with the machine's own sockets")
    add("ephemeral-disk-dir", str(defaults.ephemeral), "volume for overlays, empty disks and cloud-init images")
    add("libvirt-dir", str(defaults.libvirt), "runtime directory of libvirt")
    add("image-volume-dir", str(defaults.images), "directory with the containerDisk images, mounted as disk_<index>")
    add("kernel-boot-dir", str(defaults.kernel_boot), "directory at which the kernelBoot image is mounted")
    add("hooks-dir", str(defaults.hooks), "directory with the sockets of hook sidecars, in one for each of them")
    add("hook-sidecars", "0", "how many sidecars want to be asked before the machine starts", int)
    add("plugin-sidecars", "0", "how many of them, the last, are of network binding plugins", int)
    add("termination-log", str(defaults.termination_log), "file for the last words of a failed launcher")
    add("log-level", "info", "lowest level to log: debug, info, warning or error")
    add("max-log-bytes", str(MAX_LOG_BYTES), "size at which the console's, QEMU's and libvirt's log is rotated", int)
    add("node-probe", "", "run no machine: write what QEMU can do on this node into this directory, and exit")
    emulation = environ.get(ENV_PREFIX + "ALLOW_EMULATION", "").lower() in ("1", "true", "yes")
    text = f"run by software emulation where KVM cannot be used [${ENV_PREFIX}ALLOW_EMULATION]"
    parser.add_argument("--allow-emulation", action="store_true", default=emulation, help=text)
    parser.add_argument(
        "--any-architecture", action="store_true", help="emulate a machine of another architecture than the node's"
    )
    parser.add_argument("--firmware-auto-selection", action="store_true", help="let libvirt choose the files of UEFI")
    text = "put devices of the node near the guest's memory that they are near to"
    parser.add_argument("--devices-near-memory", action="store_true", help=text)
    parser.add_argument(
        "--no-serial-log", action="store_true", help="keep no log of a serial console whose VMI does not ask for one"
    )
    parser.add_argument(
        "--no-free-page-reporting", action="store_true", help="let no guest tell which of its memory it does not use"
    )
    parser.add_argument(
        "--keep-after-failure", action="store_true", help="keep the container after a failure, to look into it"
    )
    parser.add_argument("--fail-fast", action="store_true", help="fail at once, to test what happens then")
    return parser
