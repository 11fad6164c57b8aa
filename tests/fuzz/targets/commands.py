"""Commands of virt-handler to a launcher: a VMI that admission let through and the launcher's own reading of it.

An input is a SyncVMIRequest. The launcher makes the machine, or says in one sentence what is wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.hostile import text_of
from fuzz.mutate import edited, maybe_noisy, messages, whole_document
from fuzz.target import Run, Target
from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from unit.api.reviews import vmi
from unit.launcher.cases import UID
from unit.launcher.parts import make_parts

from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.rpc.status import RpcFailure
from virt_launcher.process.children import Ended
from virt_launcher.service.cmd_server import LauncherService
from virt_protos.launcher.v1 import launcher_pb2 as pb

_META = {"name": "vm1", "namespace": "ns", "uid": UID}
_BARE = {"metadata": _META, "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}
_CLOUD = {"name": "c", "cloudInitNoCloud": {"userData": "x", "networkDataBase64": "aGVsbG8="}}
_EMPTY = {"name": "e", "emptyDisk": {"capacity": "1Mi"}}
_DISKS = [{"name": "c", "disk": {"bus": "virtio"}}, {"name": "e", "disk": {}}]
_SPEC = {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": _DISKS}}, "volumes": [_CLOUD, _EMPTY]}
VMIS = [_BARE, {"metadata": _META, "spec": _SPEC}, {"metadata": _META, "spec": vmi()["spec"]}]
WHOLE = {"metadata": _META, "spec": whole_document(VirtualMachineInstance)["spec"]}


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    options = draw(st.just(pb.SyncOptions(allow_emulation=True)) | messages(pb.SyncOptions))
    document = text_of(draw(edited(VMIS, WHOLE))).encode("utf-8", "surrogatepass")
    return pb.SyncVMIRequest(vmi_json=document, options=options, digest="d").SerializeToString()


class Built:
    """A builder of images that has ended well."""

    def wait(self, _deadline_s: float) -> Ended:
        return Ended(1, 0, None)


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    yield lambda data: judge(directory / "launcher", data)


def judge(root: Path, data: bytes) -> None:
    try:
        request = pb.SyncVMIRequest.FromString(data)
    except DecodeError:
        return
    shutil.rmtree(root, ignore_errors=True)
    parts = make_parts(root)
    # Building an image takes a process; what goes into it has been written down by then.
    parts.children.spawn = lambda *_, **__: Built()  # type: ignore[method-assign]
    service = LauncherService(parts.settings, parts.manager, lambda: None)
    try:
        service.SyncVMI(request, None)  # type: ignore[arg-type]
        service.GetDomain(pb.GetDomainRequest(), None)  # type: ignore[arg-type]
    except RpcFailure:
        pass
    finally:
        assert sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file()) < 16 << 20


TARGET = Target("commands", maybe_noisy(requests()), door, 150)
