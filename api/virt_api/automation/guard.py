"""Before each call: who asks. After it: whatever went wrong, as a gRPC status that says nothing about our inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from virt_api.authn import Identity
from virt_api.automation.failures import Failure, from_api, from_problem
from virt_api.problems import Problem
from virt_core.kube.errors import ApiError
from virt_core.rpc.status import RpcFailure
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter

log = get_logger(__name__)

CALLS = Counter("virt_api_automation_calls_total", "Calls of automation/v1 by method and outcome.", ("method", "code"))

#: Probes have no token; the answer says nothing about anybody's machines.
PUBLIC = "/grpc.health.v1.Health/"

ByToken = Callable[[str], Awaitable[Identity]]
_TOKEN_LIMIT = 16 << 10


def token_of(metadata: Sequence[tuple[str, str | bytes]] | None) -> str:
    """The one bearer token of a call. Raises Problem 401."""
    given = [value for key, value in metadata or () if key == "authorization"]
    if len(given) != 1 or not isinstance(given[0], str):
        raise Problem(401, "Unauthorized: the metadata must have exactly one `authorization: Bearer TOKEN`")
    scheme, _, token = given[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _TOKEN_LIMIT or not _printable(token):
        raise Problem(401, "Unauthorized: the metadata must have `authorization: Bearer TOKEN`")
    return token


def _printable(token: str) -> bool:
    """It becomes a header of our own request."""
    return token.isascii() and token.isprintable() and " " not in token


if TYPE_CHECKING:
    # Generic only in the stubs.
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor


class Guard(_Interceptor):
    def __init__(self, by_token: ByToken) -> None:
        self._by_token = by_token

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(PUBLIC):
            return handler
        wrap = self._stream if handler.response_streaming else self._unary
        kind = ("stream" if handler.request_streaming else "unary", "stream" if handler.response_streaming else "unary")
        behaviour = getattr(handler, "_".join(kind))
        factory = getattr(grpc, f"{'_'.join(kind)}_rpc_method_handler")
        return factory(wrap(method, behaviour), handler.request_deserializer, handler.response_serializer)

    def _unary(self, method: str, behaviour: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            try:
                await self._check(context)
                response = await behaviour(request, context)
            except Exception as error:
                await _abort(method, context, error)
            CALLS.inc(method, "OK")
            return response

        return call

    def _stream(self, method: str, behaviour: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                await self._check(context)
                async for response in behaviour(request, context):
                    yield response
            except Exception as error:
                await _abort(method, context, error)
            CALLS.inc(method, "OK")

        return call

    async def _check(self, context: Any) -> None:
        await self._by_token(token_of(context.invocation_metadata()))


def failure_of(error: Exception) -> Failure | None:
    """None: a surprise."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, Problem):
        return from_problem(error)
    if isinstance(error, ApiError):
        return from_api(error)
    if isinstance(error, RpcFailure):
        return Failure(error.code, error.message)
    return None


async def _abort(method: str, context: Any, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error  # The servicer has aborted by itself; this is only how gRPC unwinds.
    failure = failure_of(error)
    if failure is None:
        log.error("call failed", method=method, exc_info=error)
        failure = Failure(grpc.StatusCode.INTERNAL, "internal error; see the log of virt-api")
    else:
        log.info("call refused", method=method, code=failure.code.name, error=failure.message)
    CALLS.inc(method, failure.code.name)
    await context.abort(failure.code, failure.message, failure.trailer())
    raise AssertionError("abort always raises")
