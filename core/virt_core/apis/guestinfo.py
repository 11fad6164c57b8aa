"""What the guest agent tells: the answers of the subresources guestosinfo, userlist and filesystemlist."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ListMeta
from virt_core.apis.names import API_VERSION
from virt_core.apis.vmi import VirtualMachineInstanceFileSystem
from virt_core.apis.vmistatus import VirtualMachineInstanceGuestOSInfo


class VirtualMachineInstanceGuestOSUser(Struct):
    """A user who is logged in."""

    user_name: str
    domain: str = ""
    login_time: float = 0.0


class VirtualMachineInstanceFileSystemInfo(Struct):
    """The filesystems, nested as KubeVirt nests them."""

    disks: list[VirtualMachineInstanceFileSystem] = []


class GuestAgentCommandInfo(Struct):
    """A command that the agent offers."""

    name: str
    enabled: bool = False


class VirtualMachineInstanceGuestAgentInfo(Struct):
    """The answer of guestosinfo."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstanceGuestAgentInfo"
    guest_agent_version: str = ""
    supported_commands: list[GuestAgentCommandInfo] = []
    hostname: str = ""
    os: VirtualMachineInstanceGuestOSInfo | None = None
    timezone: str = ""
    user_list: list[VirtualMachineInstanceGuestOSUser] = []
    fs_info: VirtualMachineInstanceFileSystemInfo | None = None
    fs_freeze_status: str = ""


class VirtualMachineInstanceGuestOSUserList(Struct):
    """The answer of userlist."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstanceGuestOSUserList"
    metadata: ListMeta = field(default_factory=ListMeta)
    items: list[VirtualMachineInstanceGuestOSUser] = []


class VirtualMachineInstanceFileSystemList(Struct):
    """The answer of filesystemlist."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstanceFileSystemList"
    metadata: ListMeta = field(default_factory=ListMeta)
    items: list[VirtualMachineInstanceFileSystem] = []
