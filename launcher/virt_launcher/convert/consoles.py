"""What people and the launcher look at the guest through: serial console, screen, guest agent, USB from afar."""

from __future__ import annotations

from virt_core.apis import names
from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import Channel, Graphics, Listen, RedirDev, Serial, Video
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

SERIAL_SOCKET = names.SOCKET_SERIAL
SERIAL_LOG = names.FILE_SERIAL_LOG
VNC_SOCKET = names.SOCKET_VNC
AGENT_SOCKET = "guest-agent"
AGENT_CHANNEL = "org.qemu.guest_agent.0"
_USB_SLOTS = 4
_VRAM_KIB = 16384


def configure_serial(context: Context, domain: Domain) -> None:
    devices = context.vmi.spec.domain.devices
    if devices.autoattach_serial_console is False:
        return
    serial = Serial(type="unix", source_mode="bind", source_path=f"{context.machine_dir}/{SERIAL_SOCKET}")
    serial.target_type, serial.target_port = context.architecture.serial, 0
    if context.serial_log if devices.log_serial_console is None else devices.log_serial_console:
        serial.log_file, serial.log_append = f"{context.machine_dir}/{SERIAL_LOG}", True
    domain.devices.serials.append(serial)


def configure_graphics(context: Context, domain: Domain) -> None:
    devices = context.vmi.spec.domain.devices
    if not has_screen(context):
        return
    listen = Listen(type="socket", socket=f"{context.machine_dir}/{VNC_SOCKET}")
    domain.devices.graphics.append(Graphics(type="vnc", listen=listen))
    models = context.architecture.videos
    default = "bochs" if context.efi and context.architecture.pc else models[0]
    model = devices.video.type if devices.video is not None and devices.video.type else default
    if model not in models:
        path = "spec.domain.devices.video.type"
        raise InvalidVMIError(path, f"{model!r} is not one of {', '.join(models)}")
    video = Video(type=model)
    if model in ("vga", "bochs", "cirrus"):
        video.vram = _VRAM_KIB
    if model != "ramfb":
        video.heads = 1
    domain.devices.videos.append(video)


def has_screen(context: Context) -> bool:
    """A machine of a foreign architecture has none."""
    return context.vmi.spec.domain.devices.autoattach_graphics_device is not False and not context.foreign


def configure_channels(context: Context, domain: Domain) -> None:
    # A path of our own: the one that libvirt would choose is longer than a socket's name may be.
    channel = Channel(type="unix", source_mode="bind", source_path=f"{context.machine_dir}/{AGENT_SOCKET}")
    channel.target_type, channel.target_name = "virtio", AGENT_CHANNEL
    domain.devices.channels.append(channel)
    if context.vmi.spec.domain.devices.downward_metrics is not None:
        metrics = Channel(type="unix", source_mode="bind", source_path=f"{context.machine_dir}/{names.SOCKET_METRICS}")
        metrics.target_type, metrics.target_name = "virtio", names.CHANNEL_METRICS
        domain.devices.channels.append(metrics)


def configure_usb_redirection(context: Context, domain: Domain) -> None:
    if context.vmi.spec.domain.devices.client_passthrough is None:
        return
    domain.devices.redirdevs = [
        RedirDev(bus="usb", type="unix", source_mode="bind", source_path=f"{context.machine_dir}/virt-usbredir-{slot}")
        for slot in range(_USB_SLOTS)
    ]
