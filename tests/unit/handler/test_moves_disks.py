"""What a launcher tells of the disks of a machine that is to leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from framework.vmis import handed_over

from virt_core.kube.workqueue import WorkQueue
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import SystemClock
from virt_handler.decisions.vocabulary import Action, Task
from virt_handler.loop.moves import Moves, Place
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.sessions import Session
from virt_handler.node.devices.units import Host
from virt_handler.pods.files import PodFiles
from virt_protos.launcher.v1 import launcher_pb2 as pb


class AtOnce:
    """Errands in the caller's own thread."""

    def start(self, _session: Session, _kind: str, body: Any) -> bool:
        body()
        return True


class Liar:
    def get_disk_facts(self, _vmi_json: bytes, _timeout_s: float) -> dict[str, pb.DiskFacts]:
        return {
            "root": pb.DiskFacts(checksum=7),
            "another": pb.DiskFacts(checksum=8),
            "cloud": pb.DiskFacts(size=1 << 62),
            "moved": pb.DiskFacts(size=1 << 40),
            "vast": pb.DiskFacts(size=1 << 63),
        }


def test_what_a_launcher_tells_of_its_disks_is_bounded(tmp_path: Path) -> None:
    """The other side makes a file of the size that it is told."""
    state = {"migrationUid": "job", "sourceNode": "node1", "targetNode": "node2"}
    volumes = [
        {"name": "root", "containerDisk": {"image": "guest:v1"}},
        {"name": "cloud", "cloudInitNoCloud": {"userData": "x"}},
        {"name": "moved", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "vast", "persistentVolumeClaim": {"claimName": "b"}},
    ]
    told = {"migrationState": state, "migratedVolumes": [{"volumeName": "moved"}, {"volumeName": "vast"}]}
    vmi = handed_over("Running", spec={"volumes": volumes}, status=told)
    session = Session(GhostRecord(vmi_uid="u", namespace="default", name="vm", pod_uid="p"), SystemClock())
    session.launcher = Liar()  # type: ignore[assignment]
    moves = Moves(
        Place("node1", "10.0.0.1", lambda: TlsFiles(tmp_path)),
        PodFiles(str(tmp_path)),
        AtOnce(),  # type: ignore[arg-type]
        WorkQueue(SystemClock(), "moves"),
        Host(),
        lambda _session, _vmi: pb.SyncOptions(),
        lambda: "",
    )
    moves.act(Action.DISK_FACTS, session, vmi)
    seen = session.view()
    assert (seen.looking.task, seen.disk_facts) == (Task.DONE, {"root": (7, 0), "moved": (0, 1 << 40)})
