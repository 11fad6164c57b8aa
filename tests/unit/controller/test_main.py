"""The program as a whole: elected, healthy, at work, and gone in good order."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from framework.fake_kube import fake_kube
from framework.vmis import plain_vmi
from framework.waiting import eventually

VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/virtpod/leases/virt-controller"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def page(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def ready(port: int) -> bool:
    try:
        return page(port, "/readyz").endswith("ok\n")
    except OSError:
        return False


@pytest.mark.parametrize("elect", [True, False])
def test_leads_works_and_leaves(tmp_path: Path, elect: bool) -> None:
    with fake_kube() as kube:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{kube.port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        port = free_port()
        flags = [f"--kubeconfig={tmp_path}/kubeconfig", "--launcher-image=i", f"--health-listen=127.0.0.1:{port}"]
        code = "from virt_controller.main import main; main()"
        election = [] if elect else ["--no-leader-elect"]
        process = subprocess.Popen([sys.executable, "-c", code, *flags, *election], stderr=subprocess.DEVNULL)
        try:
            kube.put(VMI, plain_vmi())
            eventually(lambda: kube.objects[VMI]["status"]["phase"] == "Scheduling", within_s=20)
            eventually(lambda: ready(port))
            assert json.loads(page(port, "/leader")) == {"apiserver": {"leader": "true"}}
            assert json.loads(page(port, "/healthz")) == {"status": "ok", "config-resource-version": "0"}
            counted = 'virt_reconciles_total{controller="vmi",result="ok"}'
            eventually(lambda: counted in page(port, "/metrics"))  # It is counted when it is over.
            assert (LEASE in kube.objects) is elect
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
            assert not elect or not kube.objects[LEASE]["spec"].get("holderIdentity")
        finally:
            process.kill()
            process.wait(5)
