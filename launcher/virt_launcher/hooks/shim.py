"""`sidecar-shim`: a hook sidecar that runs a script for each point. Process 1 of a container of its own.

    sidecar-shim --version v1alpha3

Scripts are called onDefineDomain and preCloudInitIso; they are looked for where the launcher Pod puts those of
ConfigMaps, then in the PATH. One is run with `--vmi JSON --domain XML`, or `--vmi JSON --cloud-init JSON`, and what it
prints is the answer.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from virt_core.apis import names
from virt_core.apis.hooksidecars import ON_DEFINE_DOMAIN, PRE_CLOUD_INIT_ISO, PROGRAMS, SHUTDOWN, VERSIONS
from virt_protos.hooks.v1 import info_pb2
from virt_protos.hooks.v1alpha3 import callbacks_pb2 as pb

_SCRIPT_S = 50.0
_USAGE = f"usage: sidecar-shim [--version {'|'.join(sorted(VERSIONS))}]"


class ScriptError(Exception):
    """What the launcher is told of a script that failed."""


class Shim:
    def __init__(self, version: str, path: str) -> None:
        self._version = version
        self._path = path
        self.ended = threading.Event()

    def info(self, _request: info_pb2.InfoParams, _context: Any) -> info_pb2.InfoResult:
        points = [point for point, program in PROGRAMS.items() if shutil.which(program, path=self._path)]
        if self._version == VERSIONS[0]:
            points.append(SHUTDOWN)
        wanted = [info_pb2.HookPoint(name=point, priority=0) for point in points]
        return info_pb2.InfoResult(name="shim", versions=[self._version], hookPoints=wanted)

    def on_define_domain(self, request: pb.OnDefineDomainParams, context: Any) -> pb.OnDefineDomainResult:
        arguments = ["--vmi", request.vmi.decode(), "--domain", request.domainXML.decode()]
        return pb.OnDefineDomainResult(domainXML=self._run(ON_DEFINE_DOMAIN, arguments, context))

    def pre_cloud_init_iso(self, request: pb.PreCloudInitIsoParams, context: Any) -> pb.PreCloudInitIsoResult:
        arguments = ["--vmi", request.vmi.decode(), "--cloud-init", request.cloudInitData.decode()]
        return pb.PreCloudInitIsoResult(cloudInitData=self._run(PRE_CLOUD_INIT_ISO, arguments, context))

    def shut_down(self, _request: pb.ShutdownParams, _context: Any) -> pb.ShutdownResult:
        self.ended.set()
        return pb.ShutdownResult()

    def _run(self, point: str, arguments: list[str], context: Any) -> bytes:
        try:
            return self._output(point, arguments)
        except ScriptError as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))
            raise

    def _output(self, point: str, arguments: list[str]) -> bytes:
        program = shutil.which(PROGRAMS[point], path=self._path)
        if program is None:
            raise ScriptError(f"there is no {PROGRAMS[point]}")
        try:
            done = subprocess.run([program, *arguments], capture_output=True, timeout=_SCRIPT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ScriptError(f"{PROGRAMS[point]} could not be run: {error}"[:500]) from error
        sys.stderr.buffer.write(done.stderr)
        sys.stderr.flush()
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()[-400:]
            raise ScriptError(f"{PROGRAMS[point]} exited with code {done.returncode}: {words}")
        return done.stdout


def serve(shim: Shim, socket: str) -> grpc.Server:
    # Two, so that Shutdown is heard while a script runs.
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 8 << 20)])
    asked = {
        ON_DEFINE_DOMAIN: _handler(shim.on_define_domain, pb.OnDefineDomainParams),
        PRE_CLOUD_INIT_ISO: _handler(shim.pre_cloud_init_iso, pb.PreCloudInitIsoParams),
        SHUTDOWN: _handler(shim.shut_down, pb.ShutdownParams),
    }
    services = {f"kubevirt.hooks.{version}.Callbacks": asked for version in VERSIONS}
    services["kubevirt.hooks.info.Info"] = {"Info": _handler(shim.info, info_pb2.InfoParams)}
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items())
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _handler(answer: Callable[[Any, Any], Any], request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def main() -> int:
    words = sys.argv[1:] or ["--version", VERSIONS[0]]
    if len(words) != 2 or words[0] != "--version" or words[1] not in VERSIONS:
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    directory = os.environ.get("HOOK_SOCKETS") or names.PATH_HOOKS
    scripts = os.environ.get("HOOK_SCRIPTS") or names.PATH_HOOK_SCRIPTS
    shim = Shim(words[1], f"{scripts}:{os.environ.get('PATH', os.defpath)}")
    signal.signal(signal.SIGTERM, lambda *_: shim.ended.set())
    server = serve(shim, f"{directory}/shim-{uuid.uuid4().hex[:8]}.sock")
    shim.ended.wait()
    server.stop(grace=1).wait(2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
