"""Subresources of guests whose memory AMD SEV hides from the node: what their owner needs to trust the launch.

The order is the owner's: fetch the platform's certificates, set up a session, read the measurement of the paused guest,
inject the secret, unpause. What is asked for out of order, or of a guest that wants no attestation, is a conflict.
"""

from __future__ import annotations

from aiohttp import web

from virt_api.problems import Problem, from_api
from virt_api.subresources import checks
from virt_api.subresources.actions import vmi_ref
from virt_api.subresources.bodies import SEVSecretOptions, SEVSessionOptions
from virt_api.subresources.call import Call, accepted, json_response
from virt_core.apis import gates, names
from virt_core.apis.domain import SEV
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError
from virt_core.kube.patch import JsonPatch, op
from virt_protos.node.v1 import node_pb2

GATE = "WorkloadEncryptionSEV"
#: Blobs of a few kilobytes each; the API server would take more than a megabyte.
MAX_BLOB = 64 << 10
_SEV = "/spec/domain/launchSecurity/sev"


async def fetch_cert_chain(call: Call) -> web.Response:
    vmi = await _attested(call)
    _in_phase(vmi, names.PHASE_SCHEDULED, names.PHASE_RUNNING)
    node = await call.nodes.of(vmi)
    found = await node.call("GetSevInfo", node_pb2.VMIRequest(vmi=vmi_ref(vmi)))
    return _kinded("SEVPlatformInfo", pdh=found.pdh, certChain=found.cert_chain)


async def query_launch_measurement(call: Call) -> web.Response:
    vmi = await _attested(call)
    _waits_for_its_owner(vmi)
    node = await call.nodes.of(vmi)
    found = await node.call("GetLaunchMeasurement", node_pb2.VMIRequest(vmi=vmi_ref(vmi)))
    return _kinded(
        "SEVMeasurementInfo",
        measurement=found.measurement,
        apiMajor=found.api_major,
        apiMinor=found.api_minor,
        buildID=found.build_id,
        policy=found.policy,
        loaderSHA=found.loader_sha,
    )


async def set_up_session(call: Call) -> web.Response:
    """The session and the owner's key become part of the machine, which starts only then."""
    _require_gate(call)
    options = await call.body(SEVSessionOptions, required=True)
    _filled(session=options.session, dhCert=options.dh_cert)
    vmi = await _attested(call)
    _in_phase(vmi, names.PHASE_SCHEDULED)
    sev = _sev(vmi)
    if sev is None or sev.session or sev.dh_cert:
        raise Problem(409, f"VMI {vmi.metadata.name} already has a session", name=vmi.metadata.name)
    guard = op.test("/metadata/resourceVersion", vmi.metadata.resource_version)
    fields = {f"{_SEV}/session": options.session, f"{_SEV}/dhCert": options.dh_cert}
    patch = JsonPatch([guard, *(op.add(path, value) for path, value in fields.items())])
    try:
        await call.kube.patch(vmi, patch)
    except ApiError as error:
        raise from_api(error, vmi.metadata.name) from error
    return accepted()


async def inject_launch_secret(call: Call) -> web.Response:
    _require_gate(call)
    options = await call.body(SEVSecretOptions, required=True)
    _filled(header=options.header, secret=options.secret)
    vmi = await _attested(call)
    _waits_for_its_owner(vmi)
    node = await call.nodes.of(vmi)
    request = node_pb2.InjectLaunchSecretRequest(vmi=vmi_ref(vmi), header=options.header, secret=options.secret)
    await node.call("InjectLaunchSecret", request)
    return web.Response()


def _require_gate(call: Call) -> None:
    if not call.config.has(GATE):
        raise Problem(400, gates.why_off(GATE))


async def _attested(call: Call) -> VirtualMachineInstance:
    _require_gate(call)
    vmi = await call.vmi()
    sev = _sev(vmi)
    if sev is None or sev.attestation is None:
        raise Problem(409, f"VMI {vmi.metadata.name} asks for no SEV attestation", name=vmi.metadata.name)
    return vmi


def _sev(vmi: VirtualMachineInstance) -> SEV | None:
    security = vmi.spec.domain.launch_security
    return security.sev if security is not None else None


def _in_phase(vmi: VirtualMachineInstance, *phases: str) -> None:
    phase = vmi.status.phase
    if phase not in phases:
        words = f"VMI {vmi.metadata.name} is not {' or '.join(phases)}: its phase is {phase or 'unset'}"
        raise Problem(409, words, name=vmi.metadata.name)


def _waits_for_its_owner(vmi: VirtualMachineInstance) -> None:
    checks.running(vmi)
    if not checks.has_condition(vmi, names.CONDITION_PAUSED):
        raise Problem(409, f"VMI {vmi.metadata.name} is not paused: its launch is over", name=vmi.metadata.name)


def _filled(**fields: str) -> None:
    for name, value in fields.items():
        if not value:
            raise Problem(400, f"{name} is required")
        if len(value) > MAX_BLOB:
            raise Problem(400, f"{name} is longer than {MAX_BLOB} bytes")


def _kinded(kind: str, **fields: object) -> web.Response:
    return json_response({"apiVersion": names.API_VERSION, "kind": kind, "metadata": {}, **fields})
