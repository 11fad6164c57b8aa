"""An exporter on a port of this machine, with directories as its claims."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from virt_core.apis.exportplan import TOKEN_HEADER, ExportPlan, ExportVolume
from virt_core.runtime.x509 import SERVER, Leaf, make_authority, make_leaf
from virt_launcher.exporter.handler import Served
from virt_launcher.exporter.main import serve
from virt_launcher.exporter.server import Places

TOKEN = "abcdefghij0123456789"


@dataclass
class Exporter:
    port: int
    ca: str

    def connect(self, timeout_s: float = 20.0) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=self.ca)
        return http.client.HTTPSConnection("localhost", self.port, timeout=timeout_s, context=context)

    def ask(
        self, path: str, token: str | None = TOKEN, method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = self.connect()
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=sent | ({TOKEN_HEADER: token} if token is not None else {}))
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@contextmanager
def exporting(
    folder: Path, *volumes: ExportVolume, manifests: str = "", places: Places | None = None
) -> Iterator[Exporter]:
    tls, token = folder / "tls", folder / "token"
    tls.mkdir()
    token.mkdir()
    (token / "token").write_text(TOKEN)
    now = datetime.now(UTC)
    ca = make_authority("test", now, timedelta(hours=1))
    pair = make_leaf(
        ca,
        Leaf("localhost", names=("localhost", "virt-export-mine.default.svc"), usage=(SERVER,)),
        now,
        timedelta(hours=1),
    )
    (tls / "tls.crt").write_bytes(pair.cert_pem)
    (tls / "tls.key").write_bytes(pair.key_pem)
    if manifests:
        (tls / "manifests.json").write_text(manifests)
    plan = ExportPlan(name="mine", namespace="default", volumes=list(volumes))
    served = Served(plan, token_directory=str(token), tls_directory=str(tls), places=places or Places())
    server = serve(served, ("127.0.0.1", 0))
    try:
        yield Exporter(server.server_address[1], ca.cert_pem.decode())
    finally:
        server.shutdown()
        server.server_close()
