"""Turns what a servicer raises into a gRPC status, and logs each failure exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

import grpc

from virt_core.rpc.status import RpcFailure
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

Behaviour = Callable[[Any, grpc.ServicerContext], Any]

if TYPE_CHECKING:
    # Generic only in the stubs.
    Interceptor = grpc.ServerInterceptor[Any, Any]
    MethodHandler = grpc.RpcMethodHandler[Any, Any]
else:
    Interceptor = grpc.ServerInterceptor
    MethodHandler = grpc.RpcMethodHandler


class FailureInterceptor(Interceptor):
    """`guard(context)` runs before every call, e.g. to check the peer's role; it raises RpcFailure to refuse."""

    def __init__(self, guard: Callable[[grpc.ServicerContext], object] | None = None) -> None:
        self._guard = guard

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], MethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> MethodHandler | None:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        streams = handler.response_streaming
        behaviour = _behaviour_of(handler)
        wrapped = self._stream(method, behaviour) if streams else self._unary(method, behaviour)
        return _factory_of(handler)(wrapped, handler.request_deserializer, handler.response_serializer)

    def _unary(self, method: str, behaviour: Behaviour) -> Behaviour:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                self._check(context)
                return behaviour(request, context)
            except Exception as error:
                _abort(method, context, error)

        return call

    def _stream(self, method: str, behaviour: Behaviour) -> Behaviour:
        def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                self._check(context)
                yield from behaviour(request, context)
            except Exception as error:
                _abort(method, context, error)

        return call

    def _check(self, context: grpc.ServicerContext) -> None:
        if self._guard is not None:
            self._guard(context)


def _behaviour_of(handler: MethodHandler) -> Behaviour:
    found = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    return cast(Behaviour, found)


def _factory_of(handler: MethodHandler) -> Callable[..., MethodHandler]:
    if handler.request_streaming:
        return (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
    return grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler


def _abort(method: str, context: grpc.ServicerContext, error: Exception) -> NoReturn:
    if cast(Any, context).code() is not None:
        raise error  # The servicer has aborted by itself; this is only how gRPC unwinds.
    if isinstance(error, RpcFailure):
        log.info("call refused", method=method, code=error.code.name, error=error.message)
        context.abort(error.code, error.message)
    elif not context.is_active():
        log.info("call cancelled by the caller", method=method)
        context.abort(grpc.StatusCode.CANCELLED, "cancelled by the caller")
    else:
        log.exception("call failed", method=method)
        context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
    raise AssertionError("abort always raises")
