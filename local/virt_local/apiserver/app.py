"""The HTTP side: one handler for every path. It asks who, whether, and what, and turns the answer into a response."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors, metrics
from virt_local.apiserver.documents import Documents
from virt_local.apiserver.hooks import ANONYMOUS, Attributes, User
from virt_local.apiserver.output.encode import EventEncoder, encode_answer, encode_list
from virt_local.apiserver.output.negotiate import negotiate
from virt_local.apiserver.request import Target, parse_target
from virt_local.apiserver.server import Server
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.dispatch import STREAMS, verb_of
from virt_local.apiserver.verbs.watch import watch

log = get_logger("virt-local.apiserver")

BODY_LIMIT = 3 << 20
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


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
            response = _failure(error)
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
        kind = self._server.catalog.find(target.group, target.version, target.resource)
        if kind is None:
            raise errors.path_not_found()
        call = Call(self._server, target, kind, user, request.query)
        call.user_agent = request.headers.get("User-Agent", "")
        if target.subresource in STREAMS and target.subresource in kind.subresources:
            return await self._stream(request, call)
        return await self._objects(request, call)

    async def _admit_user(self, request: web.Request, target: Target) -> User:
        hooks = self._server.hooks
        user = await hooks.authenticator.authenticate(request)
        if target.path in _OPEN_PATHS:
            return user or ANONYMOUS
        if user is None:
            raise errors.unauthorized()
        decision = await hooks.authorizer.authorize(user, _attributes(target))
        if not decision.allowed:
            raise _forbidden(user, target, decision.reason)
        return user

    async def _objects(self, request: web.Request, call: Call) -> web.StreamResponse:
        form = negotiate(request.headers.get("Accept", ""))
        include = request.query.get("includeObject", "Metadata")
        if call.target.verb == "watch":
            return await watch(call, request, EventEncoder(call.kind, form, include))
        verb = verb_of(call)
        if request.can_read_body:
            call.body = await request.read()
            call.content_type = request.headers.get("Content-Type", "application/json")
        answer = await verb(call)
        if isinstance(answer, Answer):
            body, code = encode_answer(call.kind, answer, form, include), answer.code
        else:
            body, code = encode_list(call.kind, answer, form, include), 200
        response = web.Response(body=body, status=code, headers={"Content-Type": "application/json"})
        _add_warnings(response, call.warnings)
        return response

    async def _stream(self, request: web.Request, call: Call) -> web.StreamResponse:
        pod = call.record().object()
        return await self._server.hooks.node_proxy.handle(request, call.user, pod, call.subresource)


def build_app(server: Server) -> web.Application:
    """The aiohttp application of a server. The server is started and closed by its owner."""
    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_route("*", "/{path:.*}", Application(server).handle)
    return app


def _attributes(target: Target) -> Attributes:
    return Attributes(
        verb=target.verb,
        path=target.path,
        is_resource=bool(target.resource),
        group=target.group,
        version=target.version,
        resource=target.resource,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
    )


def _forbidden(user: User, target: Target, reason: str) -> errors.ApiError:
    if not target.resource:
        text = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
        return errors.ApiError(403, "Forbidden", text)
    what = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    where = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
    why = f'User "{user.name}" cannot {target.verb} resource "{what}" in API group "{target.group}"{where}'
    if reason:
        why += f": {reason}"
    name = errors.qualified(target.resource, target.group)
    quoted = f'{name} "{target.name}"' if target.name else name
    text = f"{quoted} is forbidden: {why}"
    return errors.ApiError(403, "Forbidden", text, name=target.name, group=target.group, kind=target.resource)


def _failure(error: errors.ApiError) -> web.Response:
    headers = {"Content-Type": "application/json", **error.headers}
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    return web.Response(body=error.body(), status=error.code, headers=headers)


def _add_warnings(response: web.Response, warnings: list[str]) -> None:
    for text in dict.fromkeys(warnings):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{quoted}"')


def _count(target: Target, code: int, seconds: float) -> None:
    metrics.REQUESTS.inc(target.verb, target.group, target.version, target.resource, target.subresource, str(code))
    if target.verb != "watch":
        metrics.SECONDS.observe(seconds, target.verb, target.resource)
