"""A genuine Debian moves to another node while it works: its processors, its memory and its disk are all busy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.engine import eventually
from tests.e2e.test_migration import job

from .conftest import Debian

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

MOVE_S = 900.0
#: Blocks with their checksums until it is told to stop; memory that changes all the time; a processor that computes.
LOAD = """
mkdir -p ~/load && cd ~/load && rm -f stop
cat >writer.sh <<'END'
i=0
while [ ! -e stop ]; do
    i=$((i+1)); n=$((i%16))
    head -c 65536 /dev/urandom >block.$n; sha256sum <block.$n >sum.$n; sync block.$n sum.$n; echo $i >count
done
touch stopped
END
cat >memory.sh <<'END'
while [ ! -e stop ]; do dd if=/dev/urandom of=/dev/shm/busy bs=1M count=16 conv=notrunc 2>/dev/null; done
END
for each in writer memory; do setsid nohup sh $each.sh >/dev/null 2>&1 </dev/null & done
"""
CHECK = """
cd ~/load; touch stop
for _ in $(seq 120); do [ -e stopped ] && break; sleep 0.5; done
for n in $(seq 0 15); do [ "$(sha256sum <block.$n)" = "$(cat sum.$n)" ] && echo whole; done | wc -l
"""


@pytest.fixture
def patient(debian: Debian) -> Iterator[None]:
    """It writes as fast as it can, so it is slowed down until it can be moved."""
    name = f"{debian.space.namespace}-slowed"
    selector = {"namespaceSelector": {"kubernetes.io/metadata.name": debian.space.namespace}}
    spec = {"selectors": selector, "allowAutoConverge": True, "completionTimeoutPerGiB": 800}
    kind = {"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": name}}
    debian.space.apply({**kind, "spec": spec})
    yield
    debian.space.kubectl("delete", "migrationpolicy", name)


def over(debian: Debian, name: str) -> Any:
    found = debian.space.engine.get("-n", debian.space.namespace, "vmim", name)
    return found if found.get("status", {}).get("phase") in ("Succeeded", "Failed") else None


def connected(debian: Debian) -> bool:
    found = {each["type"]: each["status"] for each in debian.vmi["status"]["conditions"]}
    return found.get("AgentConnected") == "True"


@pytest.mark.usefixtures("patient")
def test_it_moves_under_load(debian: Debian) -> None:
    debian.run(LOAD)
    boot, home = debian.run("cat /proc/sys/kernel/random/boot_id"), debian.vmi["status"]["nodeName"]
    eventually(lambda: int(debian.run("cat load/count")) > 16, within_s=120, what="a disk that is written to")
    debian.space.apply(job("busy", "genuine"))
    done = eventually(lambda: over(debian, "busy"), within_s=MOVE_S, what="the end of the move")
    assert done["status"]["phase"] == "Succeeded", done["status"]["migrationState"].get("failureReason")
    assert debian.vmi["status"]["nodeName"] == done["status"]["migrationState"]["targetNode"] != home
    assert eventually(lambda: debian.run("cat /proc/sys/kernel/random/boot_id"), within_s=120) == boot
    count = int(debian.run("cat load/count"))
    eventually(lambda: int(debian.run("cat load/count")) > count, within_s=120, what="work that goes on")
    assert debian.run(CHECK) == "16"
    assert "10.0.2.2/24" in debian.run("ip -4 -o address show dev enp1s0")
    assert debian.run("sudo cat /sys/class/tpm/tpm0/tpm_version_major") == "2"
    eventually(lambda: connected(debian), within_s=120, what="the agent is met again")
