"""The way through an upload proxy, as CDI has one and virt-api is one: a token for the claim, then one POST with it."""

from __future__ import annotations

import http.client
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from virt_core.apis import upload
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.upload import CDIConfig, UploadTokenRequest, UploadTokenRequestSpec
from virt_core.kube.errors import Forbidden, NotFound
from virt_core.runtime.record import record
from virtctl.imageupload.bar import Bar
from virtctl.imageupload.send import SendError

if TYPE_CHECKING:
    from virtctl.session import Session

_SYNC, _ASYNC = upload.PATHS[:2]
_CONNECT_S, _ANSWER_S = 30.0, 600.0
_CHUNK = 1 << 18
_TEXT = 4096
#: Another attempt would end the same way; a token that has expired is asked for anew.
_FINAL = frozenset({400, 404, 409, 411, 413, 415, 422})


@record(frozen=True, slots=True)
class Proxy:
    """Where it is, and whom to trust there beside the usual ones."""

    url: str
    ca: str = ""
    insecure: bool = False


def find(cluster: Session, given: str, *, insecure: bool) -> Proxy | None:
    """What the user says, else what the cluster says; None: nobody says anything."""
    try:
        config = cluster.client.get(CDIConfig, upload.CONFIG_NAME)
    except (NotFound, Forbidden):
        config = CDIConfig()
    url = given or config.spec.upload_proxy_url_override or config.status.upload_proxy_url or ""
    return Proxy(url, config.status.upload_proxy_ca or "", insecure) if url else None


def send(cluster: Session, proxy: Proxy, claim: str, path: Path) -> str:
    """What the proxy says. Raises SendError, ApiError, OSError."""
    parts = _parts(proxy.url)
    asked = UploadTokenRequest(
        metadata=ObjectMeta(generate_name="token-for-virtctl-", namespace=cluster.namespace),
        spec=UploadTokenRequestSpec(pvc_name=claim),
    )
    token = cluster.client.create(asked).status.token
    try:
        where = _ASYNC if _probe(parts, proxy, token) else _SYNC
        return _post(parts, proxy, token, where, path)
    except ssl.SSLCertVerificationError as error:
        words = f"the certificate of {proxy.url} is not trusted ({error.verify_message}); --insecure takes any"
        raise SendError(words, final=True) from error
    except (OSError, http.client.HTTPException) as error:
        raise SendError(f"{proxy.url}: {error}", final=False) from error


def _parts(url: str) -> SplitResult:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    if parts.scheme != "https" or not parts.hostname:
        raise SendError(f"{url!r} is no https URL: a disk and its token are not sent in the clear", final=True)
    return parts


def _connect(parts: SplitResult, proxy: Proxy, timeout_s: float) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    if proxy.ca:
        context.load_verify_locations(cadata=proxy.ca)
    if proxy.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)


def _probe(parts: SplitResult, proxy: Proxy, token: str) -> bool:
    connection = _connect(parts, proxy, _CONNECT_S)
    try:
        connection.request("HEAD", parts.path.rstrip("/") + _ASYNC, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _post(parts: SplitResult, proxy: Proxy, token: str, where: str, path: Path) -> str:
    connection = _connect(parts, proxy, _ANSWER_S)
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            connection.putrequest("POST", parts.path.rstrip("/") + where)
            connection.putheader("Authorization", f"Bearer {token}")
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Content-Length", str(length))
            connection.endheaders()
            bar, sent = Bar(length), 0
            try:
                while data := file.read(_CHUNK):
                    connection.send(data)
                    sent += len(data)
                    bar.show(sent)
            except (BrokenPipeError, ConnectionResetError):
                pass  # It has said why before it had everything.
            finally:
                bar.end()
        answer = connection.getresponse()
        text = answer.read(_TEXT).decode(errors="replace").strip()
        if answer.status != 200:
            raise SendError(text or f"HTTP {answer.status}", final=answer.status in _FINAL)
        return text
    finally:
        connection.close()
