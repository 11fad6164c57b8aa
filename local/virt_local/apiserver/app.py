"""The HTTP side: one handler for every path. It asks who, whether, and what, and turns the answer into a response."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors, metrics
from virt_local.apiserver.attributes import attributes_of, refusal
from virt_local.apiserver.documents import Documents
from virt_local.apiserver.hooks import User
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.output.encode import EventEncoder, check_encoding, encode_answer, encode_list, reencoded
from virt_local.apiserver.output.negotiate import JSON, Wanted, error_media, negotiate
from virt_local.apiserver.request import Target, parse_target
from virt_local.apiserver.server import Server
from virt_local.apiserver.verbs.call import Answer, Call, ListAnswer
from virt_local.apiserver.verbs.dispatch import STREAMS, check_place, verb_of
from virt_local.apiserver.verbs.watch import watch

log = get_logger("virt-local.apiserver")

BODY_LIMIT = 3 << 20
#: One warning, and all of an answer, as Kubernetes cuts them.
_WARNING_LENGTH, _WARNING_BYTES = 256, 4096
#: What load balancers and start scripts ask, before there are any roles.
_ALWAYS_ALLOWED = ("/healthz", "/livez", "/readyz")


class Application:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._documents = Documents(server)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        started = time.monotonic()
        target = Target(request.path, request.method.lower())
        try:
            target = parse_target(request.method, request.path, request.query)
            response = await self._serve(request, target)
        except errors.ApiError as error:
            response = _failure(error, error_media(request.headers.get("Accept", "")))
        except errors.PageNotFound:
            response = web.Response(status=404, text="404 page not found\n", content_type="text/plain", charset="utf-8")
        except errors.Unreachable as error:
            response = web.Response(status=503, text=f"{error}\n", content_type="text/plain", charset="utf-8")
        except web.HTTPRequestEntityTooLarge:
            response = _failure(errors.too_large(BODY_LIMIT))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request has failed", method=request.method, path=request.path)
            response = _failure(errors.internal("the request failed, see the log of the API server"))
        _count(target, response.status, time.monotonic() - started)
        return response

    async def _serve(self, request: web.Request, target: Target) -> web.StreamResponse:
        user = await self._admit_user(request, target)
        aggregator = self._server.hooks.aggregator
        if aggregator.match(request.path):
            return await aggregator.handle(request, user)
        if not target.resource:
            return await self._documents.answer(request)
        kind = self._find(target)
        call = Call(self._server, target, kind, user, request.query)
        call.user_agent = request.headers.get("User-Agent", "")
        if target.subresource in STREAMS and target.subresource in kind.subresources:
            return await self._stream(request, call)
        return await self._objects(request, call)

    def _find(self, target: Target) -> Kind:
        """A path of a built-in group is refused with a Status, every other one as a page that is not there."""
        catalog = self._server.catalog
        kind = catalog.find(target.group, target.version, target.resource)
        if kind is None:
            served = not target.group or catalog.of(target.group, target.version)
            builtin = served and not catalog.is_custom(target.group)
            raise errors.path_not_found() if builtin else errors.PageNotFound
        check_place(kind, target)
        return kind

    async def _admit_user(self, request: web.Request, target: Target) -> User:
        hooks = self._server.hooks
        user = await hooks.authenticator.authenticate(request)
        if user is None:
            raise errors.unauthorized()
        if target.path in _ALWAYS_ALLOWED:
            return user
        asked = attributes_of(target, request.query)
        decision = await hooks.authorizer.authorize(user, asked)
        if not decision.allowed:
            raise refusal(user, asked, decision.reason)
        return user

    async def _objects(self, request: web.Request, call: Call) -> web.StreamResponse:
        try:
            wanted = negotiate(request.headers.get("Accept", ""), request.query.get("includeObject", ""))
            check_encoding(call.kind, call.target.verb, wanted)
        except errors.ApiError as error:
            error.bare = error.bare and not call.kind.custom
            raise
        if call.target.verb == "watch":
            return await watch(call, request, EventEncoder(call.kind, wanted))
        verb = verb_of(call)
        call.content_type = request.headers.get("Content-Type", "application/json")
        if request.can_read_body:
            call.body = await request.read()
        try:
            answer = await verb(call)
            response = _success(call, answer, wanted)
        except errors.ApiError as error:
            response = _failure(error, wanted.media)
        return _add_warnings(response, call.warnings)

    async def _stream(self, request: web.Request, call: Call) -> web.StreamResponse:
        pod = call.record().object()
        return await self._server.hooks.node_proxy.handle(request, call.user, pod, call.subresource)


def build_app(server: Server) -> web.Application:
    """The aiohttp application of a server. The server is started and closed by its owner."""
    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_route("*", "/{path:.*}", Application(server).handle)
    return app


def _success(call: Call, answer: Answer | ListAnswer, wanted: Wanted) -> web.Response:
    if isinstance(answer, Answer):
        body, code = encode_answer(call.kind, answer, wanted), answer.code
    else:
        body, code = encode_list(call.kind, answer, wanted), 200
    return _response(body, code, wanted.media, {})


def _failure(error: errors.ApiError, media: str = JSON) -> web.Response:
    headers = dict(error.headers)
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    return _response(error.body(), error.code, media, headers)


def _response(body: bytes, code: int, media: str, headers: dict[str, str]) -> web.Response:
    body = reencoded(body, media)
    return web.Response(body=body, status=code, headers={"Content-Type": media, **headers})


def _add_warnings(response: web.Response, warnings: list[str]) -> web.Response:
    """As many as fit: the texts name fields as the caller wrote them."""
    room = _WARNING_BYTES
    for text in dict.fromkeys(warnings):
        clean = "".join(letter if letter.isprintable() else " " for letter in text[:_WARNING_LENGTH])
        quoted = clean.replace("\\", "\\\\").replace('"', '\\"')
        room -= len(quoted.encode())
        if room < 0:
            break
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _count(target: Target, code: int, seconds: float) -> None:
    metrics.REQUESTS.inc(target.verb, target.group, target.version, target.resource, target.right, str(code))
    if target.verb != "watch":
        metrics.SECONDS.observe(seconds, target.verb, target.resource)
