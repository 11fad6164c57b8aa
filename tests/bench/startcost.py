"""Where the processor time of a start goes on virt-local, by program: the services, and what runs in the Pod.

What a process took is read from the kernel before and after, with the children that it has waited for: the node's agent
has runc and the CNI plugins, virt-netsetup its children. What ends without a parent of ours that waits is not seen.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench import apiload
from tests.bench.rows import Row, show
from tests.e2e.engine import VirtLocal, process_table
from tests.e2e.manifests import kernel_boot

ROUNDS = 5
#: Of the numbers behind a process's name in its stat: its own time and that of its children, in ticks.
_TIMES, _TICKS_S = slice(11, 15), os.sysconf("SC_CLK_TCK")


def spent_ms(pid: int) -> int:
    """Nothing for a process that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[_TIMES])) * 1000 // _TICKS_S


def services(engine: VirtLocal) -> dict[str, list[int]]:
    """Process numbers by program. A virt-netsetup is a child of its virt-handler, which never waits for it."""
    found = {row["name"].partition("@")[0]: [row["pid"]] for row in engine.status()["components"] if row["pid"]}
    handlers = found["virt-handler"]
    children = [child for pid in handlers for child in children_of(pid)]
    return found | {"virt-netsetup": [pid for pid, args in children if any("virt-netsetup" in word for word in args)]}


def children_of(pid: int) -> list[tuple[int, list[str]]]:
    numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    threads = [task for task in os.listdir(f"/proc/{pid}/task") if int(task) != pid]
    for task in threads:
        numbers += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    return [(child, args) for child, args in process_table() if str(child) in numbers]


def of_pod(pod_uid: str) -> Counter[str]:
    """Milliseconds by program of everything in a Pod's control group, and of its conmon."""
    found: Counter[str] = Counter()
    for pid, args in process_table():
        try:
            inside = f"pod{pod_uid}" in Path(f"/proc/{pid}/cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if inside or ("conmon" in args[0] and pod_uid in " ".join(args)):
            name = "virt-launcher" if any("virt-launcher" in word for word in args[:2]) else Path(args[0]).name
            found[name] += spent_ms(pid)
    return found


def one_start(engine: VirtLocal, name: str) -> Counter[str]:
    client = apiload.client(engine.kubeconfig)
    watched = services(engine)
    before = {program: sum(map(spent_ms, pids)) for program, pids in watched.items()}
    client.create(kernel_boot(name))
    vmi: dict[str, Any] = client.wait_phase(name, "Running")
    costs = of_pod(next(iter(vmi["status"]["activePods"])))
    for program, pids in watched.items():
        costs[program] += sum(map(spent_ms, pids)) - before[program]
    return costs


def rows(engine: VirtLocal) -> list[Row]:
    starts = []
    for number in range(ROUNDS + 1):
        name = f"cost-{number}"
        starts.append(one_start(engine, name))
        engine.kubectl("delete", "vmi", name, "--timeout=60s", timeout=90)
        time.sleep(1)
    # The first one pays for what is loaded once.
    del starts[0]
    programs = {program for start in starts for program in start}
    medians = {program: statistics.median(start[program] for start in starts) for program in programs}
    table = [Row(f"  {program}", f"{ms:.0f} ms") for program, ms in sorted(medians.items(), key=lambda each: -each[1])]
    total = statistics.median(start.total() for start in starts)
    return [Row("processor time of a start, to Running", f"{total:.0f} ms"), *table]


def main() -> None:
    engine = VirtLocal()
    try:
        engine.start()
        table = rows(engine)
    finally:
        engine.stop()
    show(table)


if __name__ == "__main__":
    main()
