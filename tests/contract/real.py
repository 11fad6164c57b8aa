"""A bare Kubernetes control plane for the contract: etcd, kube-apiserver and controller-manager, without nodes.

The programs are those that `python -m tests.cluster` builds. It needs no root and disturbs no cluster, and it is empty,
so a recording depends on nothing else.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import urllib3
import yaml
from contract.engine import REAL, Engine
from cryptography.hazmat.primitives import serialization

from virt_local.up.instance import make_instance
from virt_local.up.material import Material, make_material

_START_S = 60.0
_STOP_S = 15.0


@contextmanager
def control_plane(programs: Path, directory: Path, host: str) -> Iterator[Engine]:
    """`host` is an address of this machine that is not loopback: EndpointSlices may hold no other."""
    material = make_material(make_instance("t", str(directory)))
    ports = {name: _free_port() for name in ("etcd", "peer", "api")}
    users = directory / "pki" / "users"
    engine = Engine(
        REAL,
        f"https://127.0.0.1:{ports['api']}",
        material.cluster_ca.pem,
        (users / "admin.crt").read_bytes(),
        (users / "admin.key").read_bytes(),
        host,
    )
    with ExitStack() as running:
        running.enter_context(_program(programs / "etcd", _etcd(directory, ports), directory))
        running.enter_context(_program(programs / "kube-apiserver", _apiserver(directory, material, ports), directory))
        _wait_ready(engine)
        config = _kubeconfig(directory, engine)
        running.enter_context(_program(programs / "kube-controller-manager", _manager(material, config), directory))
        yield engine
        engine.close()


def cluster_programs() -> Path:
    """Where `python -m tests.cluster` keeps what it built; the newest, when there are several."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(os.environ.get("VIRTPOD_CACHE") or f"{home}/virtpod")
    found = sorted(cache.glob("cluster/*/kube-apiserver"), key=lambda path: path.stat().st_mtime)
    assert found, f"there is no kube-apiserver under {cache}: build it with `make cluster`"
    return found[-1].parent


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def _etcd(directory: Path, ports: dict[str, int]) -> list[str]:
    clients, peers = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}"
    return [
        f"--data-dir={directory}/etcd",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(directory: Path, material: Material, ports: dict[str, int]) -> list[str]:
    private = serialization.load_pem_private_key(material.signing_key.read_bytes(), password=None)
    public = directory / "service-account.pub"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(serialization.Encoding.PEM, form))
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={ports['api']}",
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        "--etcd-compaction-interval=5s",  # so that the contract can ask for what is forgotten
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--tls-cert-file={material.api_cert}",
        f"--tls-private-key-file={material.api_key}",
        f"--client-ca-file={material.cluster_ca.path}",
        f"--requestheader-client-ca-file={material.front_proxy_ca.path}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={material.front_proxy_cert}",
        f"--proxy-client-key-file={material.front_proxy_key}",
        "--enable-aggregator-routing=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={material.signing_key}",
    ]


def _manager(material: Material, config: Path) -> list[str]:
    return [
        f"--kubeconfig={config}",
        "--secure-port=0",
        "--leader-elect=false",
        f"--root-ca-file={material.cluster_ca.path}",
        f"--service-account-private-key-file={material.signing_key}",
        "--use-service-account-credentials=true",
    ]


def _kubeconfig(directory: Path, engine: Engine) -> Path:
    """The controllers' own, with the address of this run."""
    path = directory / "kubeconfig" / "controllers.yaml"
    made = next(directory.rglob("controllers.yaml"), path)
    config = yaml.safe_load(made.read_text())
    config["clusters"][0]["cluster"]["server"] = engine.url
    made.write_text(yaml.safe_dump(config))
    return made


@contextmanager
def _program(path: Path, arguments: list[str], directory: Path) -> Iterator[None]:
    with (directory / f"{path.name}.log").open("wb") as log:
        process = subprocess.Popen([str(path), *arguments], stdout=log, stderr=log, cwd=directory)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)


def _wait_ready(engine: Engine) -> None:
    deadline = time.monotonic() + _START_S
    while not _is_ready(engine):
        assert time.monotonic() < deadline, "kube-apiserver did not become ready"
        time.sleep(0.1)


def _is_ready(engine: Engine) -> bool:
    try:
        answer = engine.pool().request("GET", f"{engine.url}/readyz", timeout=2)
    except urllib3.exceptions.HTTPError:
        return False
    return bool(answer.status == 200)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
