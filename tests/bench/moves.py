"""What a live migration costs: time, the guest's pause, API writes, beside libvirt's own between two daemons.

The same guest as in the other rows: one processor, 128 MiB, idle. Also on its own: `python -m tests.bench.moves`.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import apiload
from tests.bench.floor import Boot, libvirt
from tests.bench.rows import Row, show, times
from tests.e2e.engine import Engine, VirtLocal
from tests.e2e.manifests import kernel_boot
from tests.framework.apimetrics import conflicts, granted_writes, spent
from virt_core.apis import names
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection

ROUNDS = 6
AT_ONCE = 10
_FAILED = "failed: "
#: A guest agent is met again, and told of.
_AGENT_BACK_S = 6.0
_PORT = 49800
_SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances"
JOBS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
#: What is no part of a move: heartbeats, and what Kubernetes asks itself.
_OF_OTHERS = {"leases", "nodes", "tokenreviews", "subjectaccessreviews", "serviceaccounts", "endpointslices", "events"}


@dataclass(frozen=True, slots=True)
class Move:
    #: From the job's creation to its success.
    whole_s: float
    #: Of which libvirt's own call.
    libvirt_s: float
    pause_ms: float
    #: Seconds after the creation, by what was seen then.
    course: dict[str, float]


# -- the floor ---------------------------------------------------------------------------------------------------------


def floor(boot: Boot) -> list[tuple[float, int]]:
    """Seconds and milliseconds of pause of each move between two daemons of this machine."""
    found = []
    with libvirt() as one, libvirt() as other:
        domain = one.boot(boot)
        here, there = one, other
        for number in range(ROUNDS):
            domain, took, pause = here.move(domain, there, _PORT + number)
            found.append((took, pause))
            here, there = there, here
        domain.destroy()
    return found


# -- ours --------------------------------------------------------------------------------------------------------------


@dataclass
class Course:
    """Notes when something about the moves of one VMI was first seen by a watcher."""

    kubeconfig: str
    seen: dict[str, float] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        kinds: list[tuple[type[Any], Callable[[Any], Iterator[str]]]] = [
            (VirtualMachineInstanceMigration, _of_job),
            (VirtualMachineInstance, _of_vmi),
            (Pod, _of_pod),
        ]
        for cls, labels in kinds:
            kube = KubeClient(load_connection(self.kubeconfig), user_agent="bench-watch")
            version = kube.list(cls, "default").resource_version
            threading.Thread(target=self._watch, args=(kube, cls, version, labels), daemon=True).start()

    def _watch(self, kube: KubeClient, cls: Any, version: str, labels: Callable[[Any], Iterator[str]]) -> None:
        with kube.watch(cls, "default", resource_version=version, timeout_s=600) as changes:
            for event in changes:
                if event.object is not None and event.type != "DELETED":
                    self._note(labels(event.object), time.monotonic())

    def _note(self, labels: Iterator[str], now: float) -> None:
        with self._changed:
            for label in labels:
                self.seen.setdefault(label, now)
            self._changed.notify_all()

    def wait(self, label: str, within_s: float) -> float:
        with self._changed:
            self._changed.wait_for(lambda: label in self.seen or self._failures(), within_s)
            if label not in self.seen:
                raise TimeoutError(f"not within {within_s:.0f} s: {label}; {self._failures()}")
            return self.seen[label]

    def _failures(self) -> list[str]:
        return [label for label in self.seen if label.startswith(_FAILED)]


def _of_job(job: VirtualMachineInstanceMigration) -> Iterator[str]:
    name, phase = job.metadata.name, job.status.phase
    state = job.status.migration_state
    yield f"{name} {phase}"
    if phase == names.MIGRATION_FAILED and state is not None:
        yield f"{_FAILED}{name}: {state.failure_reason}"


def _of_vmi(vmi: VirtualMachineInstance) -> Iterator[str]:
    move = vmi.status.migration_state
    if move is None:
        return
    uid = move.migration_uid
    yield f"{uid} handed over"
    if move.target_node_address:
        yield f"{uid} target ready"
    if move.start_timestamp:
        yield f"{uid} begun"
    if move.completed:
        yield f"{uid} taken over"


def _of_pod(pod: Pod) -> Iterator[str]:
    uid = pod.metadata.labels.get(names.LABEL_MIGRATION_JOB_UID)
    if not uid:
        return
    yield f"{uid} Pod made"
    if pod.spec.node_name:
        yield f"{uid} Pod placed"
    if any(each.ready for each in pod.status.container_statuses or ()):
        yield f"{uid} Pod ready"


_STEPS = ("Pod made", "Pod placed", "Pod ready", "handed over", "target ready", "begun", "taken over")


def job(name: str, vmi: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name},
        "spec": {"vmiName": vmi},
    }


def move(engine: Engine, course: Course, name: str, vmi: str) -> Move:
    client = apiload.client(engine.kubeconfig)
    client.request("GET", f"{apiload.VMIS}/{vmi}")  # Connected before the clock runs.
    begun = time.monotonic()
    made = client.request("POST", JOBS, job(name, vmi))
    done = course.wait(f"{name} {names.MIGRATION_SUCCEEDED}", 120)
    uid = made["metadata"]["uid"]
    steps = {step: course.seen[f"{uid} {step}"] - begun for step in _STEPS if f"{uid} {step}" in course.seen}
    told = report(client, vmi, uid)
    return Move(done - begun, told.get("elapsedSeconds", 0.0), told.get("downtimeMilliseconds", 0), steps)


def report(client: apiload.Client, vmi: str, job_uid: str) -> dict[str, Any]:
    """What the node that was left remembers of the move."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        told = client.request("GET", f"{_SUB}/{vmi}/migrationprogress")
        if told.get("ended") and told.get("migrationUID") == job_uid:
            return dict(told)
        time.sleep(0.1)
    raise TimeoutError(f"nobody says how the move of {vmi} ended")


@contextmanager
def guests(engine: Engine, *wanted: str) -> Iterator[None]:
    client = apiload.client(engine.kubeconfig)
    for name in wanted:
        manifest = kernel_boot(name)
        manifest["spec"]["terminationGracePeriodSeconds"] = 0
        client.create(manifest)
    try:
        for name in wanted:
            client.wait_phase(name, "Running", 180)
        until = "--for=condition=AgentConnected"
        engine.kubectl("wait", until, "vmi", *wanted, "--timeout=240s", timeout=270)  # Idle: they have booted.
        yield
    finally:
        engine.kubectl("delete", "vmi", *wanted, "--timeout=120s", timeout=150)
        engine.kubectl("delete", "vmim", "--all", "--timeout=60s", timeout=90)


@dataclass(frozen=True, slots=True)
class Writes:
    """API writes by resource."""

    until_success: dict[str, int]
    #: Of the end of the Pod that was left, mostly.
    afterwards: dict[str, int]
    conflicts: int


def counted(engine: Engine, act: Callable[[], object]) -> Writes:
    def read() -> tuple[dict[str, int], int]:
        text = apiload.Client(engine.kubeconfig).kube.raw("GET", "/metrics").decode()
        return granted_writes(text), sum(conflicts(text).values())

    def ours(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
        return {kind: n for kind, n in spent(old, new).items() if kind not in _OF_OTHERS}

    before, refused_before = read()
    act()
    success, _ = read()
    settle(engine)
    time.sleep(_AGENT_BACK_S)
    after, refused = read()
    return Writes(ours(before, success), ours(success, after), refused - refused_before)


def settle(engine: Engine) -> None:
    """Until no Pod that a guest has left is there: a next move could go nowhere before."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pods, vmis = engine.get("pods")["items"], engine.get("vmi")["items"]
        if len(pods) == len(vmis):
            return
        time.sleep(0.2)
    raise TimeoutError("a Pod that was left does not end")


def in_words(writes: dict[str, int]) -> str:
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(writes.items()))
    return f"{sum(writes.values())} ({kinds})"


def rows(engine: Engine, boot: Boot) -> list[Row]:
    raw = floor(boot)
    raw_s, raw_ms = statistics.median(took for took, _ in raw), statistics.median(pause for _, pause in raw)
    course, found = Course(engine.kubeconfig), list[Move]()
    with guests(engine, "mover"):
        for number in range(ROUNDS):
            found.append(move(engine, course, f"move-{number}", "mover"))
            settle(engine)
            last = found[-1]
            print(
                f"  move {number + 1}: {last.whole_s:.2f} s, libvirt {last.libvirt_s:.2f} s, {last.pause_ms} ms",
                flush=True,
            )
        engine.kubectl("delete", "vmim", "--all", "--timeout=60s", timeout=90)  # Else old ones go meanwhile.
        writes = counted(engine, lambda: move(engine, course, "counted", "mover"))
    own = statistics.median(each.libvirt_s for each in found)
    pause = statistics.median(each.pause_ms for each in found)
    return [
        Row("migration: libvirt's part", f"{own:.2f} s", "<= 1.15x", f"virsh {raw_s:.2f} s", times(own, raw_s)),
        Row("  the guest stands still", f"{pause:.0f} ms", "<= +50 ms, <= 250 ms (KubeVirt 390)",
            f"virsh {raw_ms:.0f} ms"),
        Row("migration: create to Succeeded", f"{statistics.median(each.whole_s for each in found):.2f} s",
            "<= 2.5 s (KubeVirt 4.4)"),
        *course_rows(found),
        Row("  API writes until then", in_words(writes.until_success), "<= 20 (KubeVirt 60)"),
        Row("  and until the Pod that was left is gone", in_words(writes.afterwards)),
        Row("  conflicts", str(writes.conflicts), "0 (KubeVirt 6)"),
        crowd_row(engine, course),
    ]  # fmt: skip


def course_rows(found: list[Move]) -> list[Row]:
    """Where the time goes, as a watcher sees it."""
    steps = sorted(
        (statistics.median(each.course[step] for each in found if step in each.course), step)
        for step in _STEPS
        if any(step in each.course for each in found)
    )
    return [Row(f"    {step}, after", f"{at:.2f} s") for at, step in steps]


def crowd_row(engine: Engine, course: Course) -> Row:
    """Ten jobs at the same moment; the cluster's limits say how many run at once."""
    wanted = [f"crowd-{number}" for number in range(AT_ONCE)]
    with guests(engine, *wanted):
        client = apiload.client(engine.kubeconfig)
        begun = time.monotonic()
        for name in wanted:
            client.request("POST", JOBS, job(name, name))
        ends = [course.wait(f"{name} {names.MIGRATION_SUCCEEDED}", 300) - begun for name in wanted]
    return Row(f"{AT_ONCE} migrations at once, first / last", f"{min(ends):.1f} / {max(ends):.1f} s")


def own_rows(boot: Boot) -> list[Row]:
    """On a virt-local of two nodes, made for it."""
    engine = VirtLocal(nodes=2, letter="m")
    try:
        engine.start()
        return rows(engine, boot)
    finally:
        engine.stop()


def main() -> None:
    from tests.bench.__main__ import unpack_boot
    from tests.e2e.kubernetes import attach, wanted

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        boot = unpack_boot(folder)
        if not wanted():
            show(own_rows(boot))
            return
        engine = attach()
        engine.start()
        show(rows(engine, boot))


if __name__ == "__main__":
    main()
