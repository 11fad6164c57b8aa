"""virt-api's way to an exporter, from outside: with a real exporter behind it, and Kubernetes as a table."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from tests.functional.importer.rig import disk_bytes
from virt_api import exportproxy
from virt_api.app import _failures
from virt_api.exportproxy import ExportProxy
from virt_core.apis.base import from_plain
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.exportplan import PIECE, TOKEN_HEADER, ExportVolume
from virt_core.apis.pods import Pod
from virt_core.kube.errors import NotFound

from .rig import TOKEN, Exporter, exporting

DISK = disk_bytes(PIECE + 999)
BASE = "/api/export.kubevirt.io/v1/namespaces/default/virtualmachineexports/mine"


class Kubernetes:
    """One export, and its Pod on this machine."""

    def __init__(self, exporter: Exporter) -> None:
        self.asked = 0
        links = {"internal": {"cert": exporter.ca, "volumes": [], "manifests": []}}
        self.document: dict[str, Any] = {
            "metadata": {"name": "mine", "namespace": "default", "uid": "u1"},
            "spec": {"source": {"kind": "PersistentVolumeClaim", "name": "root"}},
            "status": {"phase": "Ready", "links": links},
        }
        owner = {"apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport", "name": "mine", "uid": "u1"}
        self.owner: dict[str, Any] = owner

    async def export(self, namespace: str, name: str) -> VirtualMachineExport:
        self.asked += 1
        if (namespace, name) != ("default", "mine"):
            raise NotFound(404, "NotFound", "not found")
        return from_plain(self.document, VirtualMachineExport)

    async def pod(self, namespace: str, name: str) -> Pod:
        assert (namespace, name) == ("default", "virt-export-mine")
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [self.owner]}
        return from_plain(
            {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Running", "podIP": "127.0.0.1"}},
            Pod,
        )


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    claim = tmp_path / "claim"
    claim.mkdir()
    (claim / "disk.img").write_bytes(DISK)
    with exporting(tmp_path, ExportVolume(name="root", path=str(claim))) as found:
        yield found


def ask(
    exporter: Exporter, kube: Kubernetes, path: str, method: str = "GET", token: str | None = TOKEN, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    async def act() -> tuple[int, dict[str, str], bytes]:
        app = web.Application(middlewares=[_failures])
        app.router.add_get(exportproxy.PATH, ExportProxy(kube, exporter.port).serve)
        async with TestClient(TestServer(app)) as client:
            sent = {key.replace("_", "-"): value for key, value in headers.items()}
            answer: ClientResponse = await client.request(
                method, path, headers=sent | ({TOKEN_HEADER: token} if token is not None else {})
            )
            return answer.status, {key.lower(): value for key, value in answer.headers.items()}, await answer.read()

    run: Callable[[Awaitable[Any]], Any] = asyncio.run  # type: ignore[assignment]
    found: tuple[int, dict[str, str], bytes] = run(act())
    return found


@pytest.fixture
def kube(exporter: Exporter) -> Kubernetes:
    return Kubernetes(exporter)


def test_a_disk_comes_through_in_parts_and_packed(exporter: Exporter, kube: Kubernetes) -> None:
    code, headers, body = ask(exporter, kube, f"{BASE}/volumes/root/disk.img", Range="bytes=100-")
    assert (code, headers["content-range"]) == (206, f"bytes 100-{len(DISK) - 1}/{len(DISK)}")
    assert body == DISK[100:]
    code, headers, body = ask(exporter, kube, f"{BASE}/volumes/root/disk.img.gz?from={PIECE}")
    assert (code, headers["x-virtpod-disk-size"]) == (200, str(len(DISK)))
    assert gzip.decompress(body) == DISK[PIECE:]
    old = BASE.replace("/v1/", "/v1beta1/")
    assert ask(exporter, kube, f"{old}/volumes/root/disk.img", "HEAD")[1]["content-length"] == str(len(DISK))


def test_who_has_no_token_is_not_even_looked_at(exporter: Exporter, kube: Kubernetes) -> None:
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img", token=None)[0] == 401
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img?{TOKEN_HEADER}={TOKEN}", token=None)[0] == 401
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img", token="x" * 5000)[0] == 401
    assert kube.asked == 0
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img", token="wrong")[0] == 401


def test_another_export_another_verb_and_another_path_lead_nowhere(exporter: Exporter, kube: Kubernetes) -> None:
    assert ask(exporter, kube, BASE.replace("mine", "other") + "/volumes/root/disk.img")[0] == 404
    assert ask(exporter, kube, BASE.replace("default", "kube-system") + "/volumes/root/disk.img")[0] == 404
    assert ask(exporter, kube, BASE.replace("/v1/", "/v2/") + "/volumes/root/disk.img")[0] == 404
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img", "POST")[0] == 405
    for path in ("%2e%2e/%2e%2e/token", "volumes/%2e%2e%2ftoken", "volumes/root/disk.img%00"):
        assert ask(exporter, kube, f"{BASE}/{path}")[0] == 404, path


def test_only_a_ready_export_and_its_own_pod(exporter: Exporter, kube: Kubernetes) -> None:
    kube.owner["uid"] = "somebody-else"
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img")[0] == 503
    kube.owner["uid"] = "u1"
    kube.document["status"]["phase"] = "Pending"
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img")[0] == 503


def test_an_exporter_with_another_certificate_gets_no_token(exporter: Exporter, kube: Kubernetes) -> None:
    from datetime import UTC, datetime, timedelta

    from virt_core.runtime.x509 import make_authority

    other = make_authority("other", datetime.now(UTC), timedelta(hours=1))
    kube.document["status"]["links"]["internal"]["cert"] = other.cert_pem.decode()
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img")[0] == 502
    kube.document["status"]["links"]["internal"]["cert"] = "nonsense"
    assert ask(exporter, kube, f"{BASE}/volumes/root/disk.img")[0] == 503
