"""The console over gRPC: the caller's stream on one side, the node's on the other, one chunk at most in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio

from virt_api.automation.failures import invalid
from virt_api.automation.objects import Target, target_of
from virt_api.nodeproblems import from_node
from virt_api.nodes import Endpoint
from virt_api.subresources.streams import CHUNK_BYTES, STREAMS
from virt_protos.automation.v1 import automation_pb2 as pb
from virt_protos.node.v1 import node_pb2

#: Missing in the stubs.
_EOF = cast(Any, grpc.aio).EOF
_FIRST_S = 10.0
_GOOD_ENDS = (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)


async def opening(requests: AsyncIterator[pb.ConsoleRequest]) -> Target:
    """Which console, as the first message says."""
    try:
        async with asyncio.timeout(_FIRST_S):
            first = await anext(requests)
    except (TimeoutError, StopAsyncIteration):
        raise invalid("the first message of a console must be `open`; there was none") from None
    if not first.HasField("open"):
        raise invalid("the first message of a console must be `open`")
    return target_of(first.open.ref)


async def splice(
    requests: AsyncIterator[pb.ConsoleRequest], call: Any, node: Endpoint
) -> AsyncGenerator[pb.ConsoleResponse, None]:
    """Copies both ways until one side ends, then ends the other. Raises Problem when the node failed."""
    upwards = asyncio.create_task(_upwards(requests, call))
    reading: asyncio.Task[Any] | None = None
    STREAMS.inc("console")
    try:
        yield pb.ConsoleResponse(opened=pb.ConsoleOpened(node_name=node.name))
        while True:
            reading = asyncio.create_task(call.read())
            await asyncio.wait({upwards, reading}, return_when=asyncio.FIRST_COMPLETED)
            if upwards.done() and not reading.done():
                upwards.result()
                return
            response, reading = await _answer(reading, node), None
            if response is _EOF:
                await _raise_unless_good(call, node)
                return
            if response.data:
                yield pb.ConsoleResponse(data=response.data)
    finally:
        STREAMS.inc("console", by=-1)
        call.cancel()
        tasks = [task for task in (upwards, reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _upwards(requests: AsyncIterator[pb.ConsoleRequest], call: Any) -> None:
    async for request in requests:
        if not request.HasField("data"):
            raise invalid("all messages of a console after the first carry `data`")
        for start in range(0, len(request.data), CHUNK_BYTES):
            await call.write(node_pb2.StreamRequest(data=request.data[start : start + CHUNK_BYTES]))


async def _answer(reading: asyncio.Task[Any], node: Endpoint) -> Any:
    try:
        return await reading
    except grpc.aio.AioRpcError as error:
        if error.code() in _GOOD_ENDS:
            return _EOF
        raise from_node(error.code(), error.details() or "", node.name) from error


async def _raise_unless_good(call: Any, node: Endpoint) -> None:
    code = await call.code()
    if code not in _GOOD_ENDS:
        raise from_node(code, await call.details() or "the node ended the stream", node.name)
