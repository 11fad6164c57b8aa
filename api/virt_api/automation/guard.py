"""Before each call: who asks, and whether there is a place for them. After it: whatever went wrong, as a gRPC status
that says nothing about our inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from virt_api.authn import Identity
from virt_api.automation import shares
from virt_api.automation.failures import Failure, from_api, from_problem
from virt_api.automation.shares import Places, address_of
from virt_api.problems import Problem
from virt_core.kube.errors import ApiError
from virt_core.rpc.status import RpcFailure
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter

log = get_logger(__name__)

CALLS = Counter("virt_api_automation_calls_total", "Calls of automation/v1 by method and outcome.", ("method", "code"))

#: Probes have no token; the answer says nothing about anybody's machines.
PUBLIC = "/grpc.health.v1.Health/"
_HEALTH_WATCH = f"{PUBLIC}Watch"
#: Who makes a call sends its message at once.
_MESSAGE_S = 10.0

ByToken = Callable[[str], Awaitable[Identity]]
#: Takes the requests and the context; what it gives is the answer, or the answers, to be awaited.
Behaviour = Callable[[AsyncIterator[Any], Any], Awaitable[Any]]
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
    """Each call gets its place before its first message is waited for: gRPC would wait for that without end, and with
    nobody's leave. So to gRPC every call is a stream of requests, which looks the same on the wire."""

    def __init__(self, by_token: ByToken, whose: Callable[[str], str] = address_of) -> None:
        """`whose` is the address of a peer as gRPC names it."""
        self._by_token, self._whose = by_token, whose
        self._checks, self._watches = Places(shares.HEALTH_CHECKS), Places(shares.HEALTH_WATCHES)
        self._newcomers, self._callers = Places(shares.NEWCOMERS), Places(shares.CALLERS)

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method: str = handler_call_details.method
        kind = f"{_kind(handler.request_streaming)}_{_kind(handler.response_streaming)}"
        behaviour = getattr(handler, kind)
        behaviour = _of_many_messages(behaviour) if handler.request_streaming else _of_one_message(behaviour)
        wrap, factory = self._unary, grpc.stream_unary_rpc_method_handler
        if handler.response_streaming:
            wrap, factory = self._stream, grpc.stream_stream_rpc_method_handler
        return factory(wrap(method, behaviour), handler.request_deserializer, handler.response_serializer)

    def _unary(self, method: str, behaviour: Behaviour) -> Behaviour:
        async def call(requests: AsyncIterator[Any], context: Any) -> Any:
            try:
                async with self._place(method, context):
                    response = await (await behaviour(requests, context))
            except Exception as error:
                await _abort(method, context, error)
            CALLS.inc(method, "OK")
            return response

        return call

    def _stream(self, method: str, behaviour: Behaviour) -> Behaviour:
        async def call(requests: AsyncIterator[Any], context: Any) -> None:
            try:
                async with self._place(method, context):
                    await _pass_on(await behaviour(requests, context), context)
            except Exception as error:
                await _abort(method, context, error)
            CALLS.inc(method, "OK")

        return call

    @asynccontextmanager
    async def _place(self, method: str, context: Any) -> AsyncIterator[None]:
        """For as long as the call lasts. Raises Failure, Problem."""
        address = self._whose(context.peer())
        if method.startswith(PUBLIC):
            with (self._watches if method == _HEALTH_WATCH else self._checks).one(address):
                yield
            return
        with self._newcomers.one(address):
            identity = await self._by_token(token_of(context.invocation_metadata()))
        with self._callers.one(identity.user):
            yield


def _kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _of_many_messages(behaviour: Callable[[Any, Any], Any]) -> Behaviour:
    async def begin(requests: AsyncIterator[Any], context: Any) -> Any:
        return behaviour(requests, context)

    return begin


def _of_one_message(behaviour: Callable[[Any, Any], Any]) -> Behaviour:
    async def begin(requests: AsyncIterator[Any], context: Any) -> Any:
        try:
            async with asyncio.timeout(_MESSAGE_S):
                request = await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            raise Failure(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message, or it did not come") from None
        return behaviour(request, context)

    return begin


async def _pass_on(answers: Any, context: Any) -> None:
    """What a streaming behaviour returns: a generator, or a coroutine that writes by itself."""
    if not hasattr(answers, "aclose"):
        await answers
        return
    async with aclosing(answers):
        async for answer in answers:
            await context.write(answer)


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
