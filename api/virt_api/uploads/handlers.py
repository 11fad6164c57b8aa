"""What is served: token requests, behind the API server; and disks, for whoever has a token.

A token is looked at before anything of the body is read. The disk is passed on as it comes: nothing is kept here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

import msgspec
from aiohttp import BodyPartReader, hdrs, web
from msgspec.structs import replace

from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.kube import Kube
from virt_api.problems import Problem
from virt_api.serving.crowd import Rank
from virt_api.serving.limits import OPTIONS_BYTES
from virt_api.serving.requests import Handler, flowing, has_shown, read_body
from virt_api.subresources.call import json_response, not_json
from virt_api.subresources.router import is_name
from virt_api.uploads.places import Places
from virt_api.uploads.target import claim_for, importer_of, listens
from virt_api.uploads.tokens import Grant, Tokens
from virt_api.uploads.tunnel import Forwarder, Tunnel
from virt_core.apis import importplan, upload
from virt_core.apis.base import UNREADABLE, decode, to_plain
from virt_core.apis.upload import UploadTokenRequest, UploadTokenRequestStatus
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339

log = get_logger(__name__)

#: A sender that is silent for so long has gone, and one that needs longer than a day is none.
SILENCE_S, WHOLE_S = 60.0, 24 * 3600.0
#: For an importer that has only just begun to listen.
_READY_S, _LOOK_S = 10.0, 1.0
#: The part of a form that is the disk.
_PART = "file"


@dataclass(frozen=True, slots=True)
class Uploads:
    kube: Kube
    authenticator: Authenticator
    authorizer: Authorizer
    tokens: Tokens
    forwarder: Forwarder
    clock: Clock
    places: Places = field(default_factory=Places)

    def add_to(self, app: web.Application) -> None:
        path = f"/apis/{upload.GROUP}/{upload.VERSION}/namespaces/{{namespace}}/{upload.RESOURCE}"
        app.router.add_post(path, self._token)
        for path in upload.PATHS:
            app.router.add_route(hdrs.METH_HEAD, path, partial(_in_words, self._probe))
            app.router.add_post(path, partial(_in_words, self._take))
        for path in upload.FORM_PATHS:
            app.router.add_route(hdrs.METH_HEAD, path, partial(_in_words, self._probe))
            app.router.add_post(path, partial(_in_words, self._take_form))

    # Tokens

    async def _token(self, request: web.Request) -> web.StreamResponse:
        who = await self.authenticator.identify(request)
        has_shown(request, Rank.KNOWN)
        namespace = request.match_info["namespace"]
        await self.authorizer.require(
            who, method="POST", group=upload.GROUP, version=upload.VERSION, namespace=namespace,
            resource=upload.RESOURCE, name="", subresource="",
        )  # fmt: skip
        asked = await _asked(request)
        name = asked.spec.pvc_name
        if not is_name(namespace) or not is_name(name):
            raise Problem(422, "spec.pvcName must be the name of a claim")
        claim = await claim_for(self.kube, namespace, name)
        log.info("upload token", claim=f"{namespace}/{name}", user=who.user)
        token = self.tokens.issue(namespace, name, claim.metadata.uid)
        return json_response(_answered(asked, namespace, token, rfc3339(self.clock.now())), 201)

    # Disks

    async def _probe(self, request: web.Request) -> web.StreamResponse:
        await self._importer(self._grant(request))
        return web.Response()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        grant = self._grant(request)
        if request.content_length is None:
            raise Problem(411, "Content-Length is needed: how long the disk is")
        if request.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
            raise Problem(415, "send the file as it is: Content-Encoding is not taken")
        body = request.content.iter_any()
        return await self._pass_on(request, grant, body, f"Content-Length: {request.content_length}\r\n")

    async def _take_form(self, request: web.Request) -> web.StreamResponse:
        grant = self._grant(request)
        if request.content_type != "multipart/form-data":
            raise Problem(415, f"a form is multipart/form-data, not {request.content_type}")
        return await self._pass_on(request, grant, _chunked(request), "Transfer-Encoding: chunked\r\n")

    def _grant(self, request: web.Request) -> Grant:
        """Raises Problem 401."""
        scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem(401, "Unauthorized: an upload needs the token of an UploadTokenRequest")
        grant = self.tokens.read(token.strip())
        has_shown(request, Rank.KNOWN)
        return grant

    async def _importer(self, grant: Grant) -> str:
        """The Pod that waits for the disk. Raises Problem."""
        for _ in range(int(_READY_S / _LOOK_S)):
            claim = await claim_for(self.kube, grant.namespace, grant.claim)
            if claim.metadata.uid != grant.uid:
                raise Problem(404, f"the claim {grant.claim} that the token is for is gone; there is another one")
            if listens(claim):
                return await importer_of(self.kube, claim)
            await asyncio.sleep(_LOOK_S)
        raise Problem(503, f"the importer of {grant.claim} does not listen yet; try again")

    async def _pass_on(
        self, request: web.Request, grant: Grant, body: AsyncIterator[bytes], length: str
    ) -> web.StreamResponse:
        with self.places.one(grant.namespace, grant.uid):
            pod = await self._importer(grant)
            try:
                async with asyncio.timeout(WHOLE_S):
                    code, text = await self._send(request, grant, pod, body, length)
            except TimeoutError as error:
                raise Problem(408, f"the disk did not come within {WHOLE_S:.0f} s") from error
        log.info("upload ended", claim=f"{grant.namespace}/{grant.claim}", code=code, said=text)
        return web.Response(status=code, text=text)

    async def _send(
        self, request: web.Request, grant: Grant, pod: str, body: AsyncIterator[bytes], length: str
    ) -> tuple[int, str]:
        head = f"POST {importplan.PATH_UPLOAD} HTTP/1.1\r\nHost: importer\r\n{length}\r\n"
        async with await self.forwarder.open(grant.namespace, pod, importplan.UPLOAD_PORT) as tunnel:
            flowing(request)
            await tunnel.send(head.encode("ascii"))
            while not tunnel.over and (piece := await _next(body, tunnel)):
                await tunnel.send(piece)
            return await tunnel.answer()


async def _next(body: AsyncIterator[bytes], tunnel: Tunnel) -> bytes:
    """Empty: that was all, or the other side has gone. Raises Problem 408."""
    piece = asyncio.ensure_future(_piece(body))
    done, _ = await asyncio.wait({piece, tunnel.ended}, timeout=SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
    if piece in done:
        return piece.result()
    piece.cancel()
    await asyncio.wait([piece])
    if not done:
        raise Problem(408, f"nothing of the disk came for {SILENCE_S:.0f} s")
    return b""


async def _piece(body: AsyncIterator[bytes]) -> bytes:
    return await anext(body, b"")


async def _chunked(request: web.Request) -> AsyncIterator[bytes]:
    """The disk in a form, in chunks of HTTP: a part does not say how long it is. Raises Problem 400."""
    try:
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader) and part.name == _PART:
                while piece := await part.read_chunk(1 << 16):
                    yield b"%x\r\n%b\r\n" % (len(piece), piece)
                yield b"0\r\n\r\n"
                return
    except (ValueError, AssertionError) as error:
        raise Problem(400, f"the form cannot be read: {error}") from error
    raise Problem(400, f"the form has no part {_PART!r}")


async def _asked(request: web.Request) -> UploadTokenRequest:
    body = await read_body(request, OPTIONS_BYTES)
    try:
        return decode(body, UploadTokenRequest)
    except msgspec.ValidationError as error:
        raise Problem(400, f"the body is no UploadTokenRequest: {error}") from error
    except UNREADABLE as error:
        raise not_json() from error


def _answered(asked: UploadTokenRequest, namespace: str, token: str, now: str) -> object:
    meta = asked.metadata
    name = meta.name or f"{meta.generate_name[:200]}{secrets.token_hex(3)}"
    made = replace(
        asked,
        metadata=replace(meta, name=name, namespace=namespace, creation_timestamp=now),
        status=UploadTokenRequestStatus(token=token),
    )
    return {"apiVersion": made.api_version, "kind": made.kind, **to_plain(made)}


async def _in_words(handler: Handler, request: web.Request) -> web.StreamResponse:
    """Clients show the body as it is, so it is a sentence."""
    try:
        return await handler(request)
    except Problem as problem:
        return web.Response(status=problem.code, text=problem.message)
