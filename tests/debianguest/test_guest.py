"""What a genuine Debian sees of its machine, and what it does when it is asked."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.engine import BIN, eventually
from tests.e2e.subresource import Subresources

from .conftest import BUSES, COMPARED, Debian, compared_digest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: A counter that writes to the disk, and says in memory how far it came.
COUNTER = """
count='i=0; while :; do i=$((i+1)); echo $i >/var/tmp/n; sync /var/tmp/n; echo $i >/run/count; sleep 0.2; done'
sudo sh -c "$count" &
while :; do cat /run/count; sleep 0.3; done
"""


def test_cloud_init_made_it_what_the_manifest_says(debian: Debian) -> None:
    assert debian.run("uname -n; id -un; cat /etc/told").splitlines() == ["genuine", "ana", "by cloud-init"]
    assert 'PRETTY_NAME="Debian GNU/Linux 13' in debian.run("cat /etc/os-release")
    assert debian.run("sudo cloud-init status").endswith("done")


def test_the_network_card_is_where_network_configurations_expect_it(debian: Debian) -> None:
    shown = debian.run("ip -4 -o address show dev enp1s0")
    [card] = debian.vmi["status"]["interfaces"]
    assert "10.0.2.2/24" in shown
    assert card["interfaceName"] == "enp1s0"


def test_it_was_started_by_secure_boot(debian: Debian) -> None:
    """The firmware checked shim, shim checked GRUB, GRUB checked the kernel: the kernel reads it from the firmware."""
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    assert debian.run(f"od -An -tu1 -j4 {variable}").strip() == "1"
    assert "Secure boot enabled" in debian.run("sudo dmesg")


def test_it_has_a_tpm(debian: Debian) -> None:
    assert debian.run("cat /sys/class/tpm/tpm0/tpm_version_major") == "2"
    # It measured the boot: no machine without a working TPM has these.
    assert set(debian.run("cat /sys/class/tpm/tpm0/pcr-sha256/7")) != {"0"}


def test_the_processors_are_grouped_as_declared(debian: Debian) -> None:
    pairs = [line.split(",") for line in debian.run("lscpu -p=SOCKET,CORE").splitlines() if not line.startswith("#")]
    sockets, cores = {socket for socket, _ in pairs}, {tuple(pair) for pair in pairs}
    assert (len(sockets), len(cores), len(pairs)) == (1, 1, 2)


@pytest.mark.parametrize("bus", BUSES)
def test_a_disk_on_each_bus_has_its_serial_and_its_bytes(debian: Debian, bus: str) -> None:
    find = f"name=$(lsblk -dno NAME,SERIAL | awk '$2 == \"serial-{bus}\" {{ print $1 }}')"
    read = f"sudo head -c {COMPARED} /dev/$name | sha256sum"
    first, second = debian.run(f"{find}; lsblk -dno NAME,TRAN /dev/$name; {read}").splitlines()
    name, *transport = first.split()
    # Of a virtio SCSI disk Linux knows no transport.
    assert (name[:2], transport) == ("vd" if bus == "virtio" else "sd", [] if bus == "scsi" else [bus])
    assert second.split()[0] == compared_digest()


def test_the_agent_tells_what_it_is(debian: Debian) -> None:
    conditions = {c["type"]: c["status"] for c in debian.vmi["status"]["conditions"]}
    assert conditions["AgentConnected"] == "True"
    told = Subresources(debian.space).get("virtualmachineinstances/genuine/guestosinfo").document
    assert (told["hostname"], told["os"]["id"], told["os"]["versionId"]) == ("genuine", "debian", "13")


def test_a_key_that_the_agent_brought_opens_the_door(debian: Debian) -> None:
    assert eventually(lambda: debian.run("id -un", "bert"), within_s=90, what="bert gets in") == "bert"


def test_a_frozen_file_system_takes_no_write_until_it_is_thawed(debian: Debian) -> None:
    calls = Subresources(debian.space)
    with counting(debian) as counts:
        eventually(lambda: len(set(counts)) > 2, within_s=60, what="the counter counts")
        assert calls.put("virtualmachineinstances/genuine/freeze", {"unfreezeTimeout": "2m"}).status == 200
        eventually(lambda: len(counts) > 8 and len(set(counts[-8:])) == 1, within_s=60, what="the counter stands")
        stood = counts[-1]
        assert calls.put("virtualmachineinstances/genuine/unfreeze").status == 200
        eventually(lambda: int(counts[-1]) > int(stood) + 2, within_s=60, what="the counter counts again")


@contextmanager
def counting(debian: Debian) -> Iterator[list[str]]:
    """The lines that the counter prints, as they come: the session is open before anything is frozen."""
    words = [str(BIN / "virtctl"), "-n", debian.space.namespace, *debian.ssh_words(COUNTER, "ana")]
    process = subprocess.Popen(words, env=debian.space.engine.env(), stdout=subprocess.PIPE, text=True)
    counts: list[str] = []

    def take() -> None:
        # One by one: each line counts when it comes.
        assert process.stdout is not None
        for line in process.stdout:
            counts.append(line.strip())  # noqa: PERF401

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        process.terminate()
        process.wait(20)
        thread.join(20)
