"""A disk of 2 GiB by each way that there is, as the README says it; and what is left when a way breaks."""

from __future__ import annotations

import http.client
import os
import re
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.framework.certs import CertAuthority
from tests.functional.importer.server import Habits
from tests.functional.importer.test_sources import Store, _Registry, layer

from .conftest import Space
from .engine import VirtLocal, eventually
from .manifests import vmi
from .test_boot import own_address_towards
from .test_datavolumes import (
    GUEST_DISK,
    boots,
    data_volume,
    events,
    from_volume,
    importer,
    importer_pid,
    percent,
    phase,
    served,
    status,
)
from .test_uploads import proxy, token, waiting

__all__ = ["importer", "proxy"]

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

SIZE = 2 << 30


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test guest on a disk of 2 GiB."""
    made = tmp_path_factory.mktemp("large") / "large.qcow2"
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", GUEST_DISK, made], check=True, timeout=120)
    subprocess.run(["qemu-img", "resize", "-q", "-f", "qcow2", made, str(SIZE)], check=True, timeout=60)
    return made


def make_vm(space: Space, *options: str) -> None:
    """The VM `guest`, as the README types it."""
    space.kubectl("apply", "-f", "-", stdin=space.virtctl("create", "vm", "--name", "guest", *options))


def whole(space: Space, name: str) -> None:
    """Filled, told as filled, and the VM boots from it."""
    found = phase(space, name, "Succeeded", within_s=180)
    assert found["progress"] == "100.0%"
    assert "Running on" in space.virtctl("explain", "vm", "guest", "--wait", timeout=320)
    boots(space, "guest")


def test_by_http_with_its_progress(space: Space, large: Path) -> None:
    image = large.read_bytes()
    habits = Habits(image, stall_after=len(image) // 2)
    with served(space, habits) as url:
        make_vm(space, "--volume-import", f"type:http,name:disk,size:2Gi,url:{url}")
        eventually(lambda: 20 < percent(space, "disk") < 90, within_s=90, what="half of it has come")
        shown = space.kubectl("get", "dv", "disk")
        assert "ImportInProgress" in shown
        assert "%" in shown
        assert re.search(r"Its disk disk is being filled: \d+ % \[##", space.virtctl("explain", "vm", "guest"))
        habits.stall_after = 0
        habits.go_on.set()
        whole(space, "disk")


class _Open(_Registry):
    """Without a token."""

    def do_GET(self) -> None:
        found = self.server.documents.get(self.path.removeprefix("/v2/some/disk/"))
        self._answer(404 if found is None else 200, found or b"")


@contextmanager
def registry(space: Space, image: bytes, directory: Path) -> Iterator[tuple[str, str]]:
    """Its reference, and the certificate of whom it is to be believed."""
    addresses = space.engine.get("nodes")["items"][0]["status"]["addresses"]
    host = own_address_towards(next(each["address"] for each in addresses if each["type"] == "InternalIP"))
    authority = CertAuthority("registry authority")
    leaf = authority.issue("registry", host).write(directory / "tls")
    server = Store((host, space.engine.open_port), _Open)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf / "tls.crt", leaf / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.put([layer({"disk/disk.qcow2": image})])
    thread = threading.Thread(target=server.serve_forever, name="registry")
    thread.start()
    try:
        yield f"docker://{host}:{server.server_address[1]}/some/disk:v1", authority.pem.decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_out_of_a_registry(space: Space, large: Path, tmp_path: Path) -> None:
    with registry(space, large.read_bytes(), tmp_path) as (reference, certificate):
        space.kubectl("create", "configmap", "trust", f"--from-literal=ca.crt={certificate}")
        make_vm(space, "--volume-import", f"type:registry,name:disk,size:2Gi,certconfigmap:trust,url:{reference}")
        whole(space, "disk")


def test_sent_by_virtctl_with_a_bar(space: Space, large: Path) -> None:
    command = ("image-upload", "dv", "disk", "--image-path", str(large))
    done = space.engine.run("virtctl", "-n", space.namespace, *command, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "100% of" in done.stderr
    make_vm(space, "--volume-pvc", "src:disk")
    whole(space, "disk")


def test_from_a_file_of_this_machine(space: Space, large: Path) -> None:
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("a command of virt-local")
    done = space.engine._local("image", "import", str(large), "-n", space.namespace, "--name", "disk")
    assert done.returncode == 0, done.stderr
    assert "100% of" in done.stderr
    make_vm(space, "--volume-pvc", "src:disk")
    whole(space, "disk")


# What is left when it breaks


def nothing_is_shown(space: Space, name: str) -> None:
    """Not as whole, not by its name: neither in the status nor in the claim."""
    assert status(space, name).get("phase") not in ("Succeeded",), status(space, name)
    ready = [each["status"] for each in status(space, name)["conditions"] if each["type"] == "Ready"]
    assert ready == ["False"]
    if isinstance(space.engine, VirtLocal):
        volume = space.engine.get("-n", space.namespace, "pvc", name)["spec"]["volumeName"]
        place = Path(space.engine.get("pv", volume)["spec"]["hostPath"]["path"])
        assert not (place / "disk.img").exists()


def running_words(space: Space, name: str) -> str:
    conditions = status(space, name).get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "Running"), "")


def test_a_source_that_goes_away_is_told_and_gone_on_with_when_it_is_back(space: Space) -> None:
    raw = os.urandom(96 << 20)
    habits = Habits(raw, stall_after=80 << 20)
    with served(space, habits) as url:
        space.apply(data_volume("gone", {"http": {"url": url}}))
        assert habits.stalled.wait(90)
        habits.stall_after, habits.gives_up, habits.status = 0, True, 503
        habits.go_on.set()
        eventually(lambda: "503" in running_words(space, "gone"), within_s=240, what="the reason")
        nothing_is_shown(space, "gone")
        space.apply(from_volume(vmi("waits"), "gone"))
        assert space.vmi("waits").get("status", {}).get("phase", "Pending") == "Pending"
        habits.status = 0
        phase(space, "gone", "Succeeded", within_s=180)
    assert ("/disk", f"bytes={64 << 20}-{len(raw) - 1}") in habits.asked


def test_a_source_that_is_not_there_ends_it(space: Space) -> None:
    with served(space, Habits(b"x", status=404)) as url:
        space.apply(data_volume("missing", {"http": {"url": url}}))
        phase(space, "missing", "Failed")
    assert "404" in running_words(space, "missing")
    nothing_is_shown(space, "missing")
    eventually(lambda: any("404" in each for each in events(space, "missing")), within_s=30)


def test_an_importer_that_is_killed_while_a_disk_is_sent(space: Space, proxy: str) -> None:
    """The sender hears of it, nothing is shown as whole, and the next importer takes the disk."""
    waiting(space, "sent")
    disk = os.urandom(64 << 20)
    parts = urlsplit(proxy)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=120, context=ssl._create_unverified_context()
    )
    connection.putrequest("POST", "/v1beta1/upload")
    connection.putheader("Authorization", f"Bearer {token(space, 'sent')}")
    connection.putheader("Content-Length", str(len(disk)))
    connection.endheaders()
    connection.send(disk[: 32 << 20])
    eventually(lambda: percent(space, "sent") > 30, within_s=60, what="half of it has come")
    os.kill(importer_pid(space, "sent"), signal.SIGKILL)
    assert _answer(connection) in (0, 503)
    eventually(lambda: status(space, "sent").get("restartCount") == 1, within_s=60)
    nothing_is_shown(space, "sent")
    phase(space, "sent", "UploadReady")
    word = token(space, "sent")
    again = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=120, context=ssl._create_unverified_context()
    )
    again.request("POST", "/v1beta1/upload", body=disk, headers={"Authorization": f"Bearer {word}"})
    assert again.getresponse().status == 200
    again.close()
    phase(space, "sent", "Succeeded")


def _answer(connection: http.client.HTTPSConnection) -> int:
    """0: the connection broke."""
    try:
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_a_claim_that_goes_while_it_is_filled_leaves_nothing_behind(space: Space) -> None:
    habits = Habits(os.urandom(96 << 20), stall_after=64 << 20)
    with served(space, habits) as url:
        space.apply(data_volume("dropped", {"http": {"url": url}}))
        assert habits.stalled.wait(90)
        space.kubectl("delete", "dv", "dropped", "--timeout=60s", timeout=90)
        space.gone("pvc", within_s=90)
        space.gone("pods", within_s=90)
        habits.go_on.set()
