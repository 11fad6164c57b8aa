"""What the node writes down about sandboxes and containers, so that its next life finds them again."""

from __future__ import annotations

from virt_core.apis.base import Struct
from virt_core.apis.podparts import ResourceRequirements


class ContainerRecord(Struct):
    """One run of a container. `attempt` counts the restarts; `level` is how far its restart back-off has grown."""

    id: str
    name: str
    attempt: int = 0
    level: int = 0
    image: str = ""
    image_id: str = ""
    stop_signal: str = ""
    log_path: str = ""
    message_path: str = ""
    pid: int = 0
    pid_started: int = 0
    monitor_pid: int = 0
    monitor_started: int = 0
    created_at: str = ""
    started_at: str = ""
    finished_at: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    stop_requested: bool = False
    #: What the node has booked for it and what is in force; None: a former release wrote this.
    resources: ResourceRequirements | None = None

    @property
    def running(self) -> bool:
        return bool(self.started_at) and self.exit_code is None

    @property
    def exited(self) -> bool:
        return self.exit_code is not None


class SandboxRecord(Struct):
    """What a Pod has on this node beside its containers."""

    uid: str
    namespace: str
    name: str
    boot_id: str = ""
    host_network: bool = False
    attached: bool = False
    ips: list[str] = []
    #: What its root is on the node; 0: root.
    user_base: int = 0
    start_time: str = ""
    created_at: str = ""
