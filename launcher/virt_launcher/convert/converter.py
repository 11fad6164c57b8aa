"""The table of configurators.

Each reads the context and adds its feature to the domain; later ones may look at earlier work.
"""

from __future__ import annotations

from collections.abc import Callable

from virt_launcher.convert import consoles, cpu, devices, disks, features, firmware, identity, interfaces, memory
from virt_launcher.convert.context import Context
from virt_launcher.convert.controllers import configure_controllers
from virt_launcher.convert.filesystems import configure_filesystems
from virt_launcher.convert.iothreads import configure_iothreads, configure_scsi_thread
from virt_launcher.convert.launch_security import configure_launch_security
from virt_launcher.convert.pci import configure_pci
from virt_launcher.convert.pinning import configure_cells, configure_pinning
from virt_launcher.convert.quick_start import configure_quick_start
from virt_launcher.convert.unsupported import refuse_unsupported
from virt_launcher.domain.domain import Domain

Configurator = Callable[[Context, Domain], None]

CONFIGURATORS: tuple[Configurator, ...] = (
    refuse_unsupported,
    identity.configure_identity,
    identity.configure_sysinfo,
    memory.configure_memory,
    memory.configure_memory_backing,
    cpu.configure_cpu,
    cpu.configure_vcpus,
    memory.configure_growth,
    firmware.configure_os,
    firmware.configure_bootloader,
    firmware.configure_kernel,
    firmware.configure_tables,
    firmware.configure_ignition,
    firmware.configure_reboot,
    features.configure_features,
    features.configure_clock,
    configure_quick_start,
    disks.configure_disks,
    configure_iothreads,
    configure_pinning,
    configure_cells,
    configure_filesystems,
    interfaces.configure_interfaces,
    consoles.configure_serial,
    consoles.configure_graphics,
    consoles.configure_channels,
    consoles.configure_usb_redirection,
    devices.configure_rng,
    devices.configure_memballoon,
    devices.configure_inputs,
    devices.configure_watchdog,
    devices.configure_sound,
    devices.configure_tpm,
    devices.configure_panic,
    devices.configure_vsock,
    devices.configure_host_devices,
    configure_controllers,
    configure_scsi_thread,
    configure_launch_security,
    configure_pci,
)


def convert(context: Context) -> Domain:
    """Raises InvalidVMIError with the path of the field that cannot be had."""
    domain = Domain()
    for configure in CONFIGURATORS:
        configure(context, domain)
    return domain
