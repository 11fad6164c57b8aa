"""Every subresource, as nobody, as somebody without the right, and past the API server straight at virt-api."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import pytest

from .conftest import Space
from .engine import Engine, VirtLocal, eventually
from .manifests import kernel_boot
from .subresource import Subresources

pytestmark = pytest.mark.e2e

VMI = "virtualmachineinstances"
VM = "virtualmachines"
#: Written out, not taken from the program: a route that changes by mistake is noticed here.
ROUTES = [
    *(("PUT", VM, sub) for sub in ("start", "stop", "restart", "addvolume", "removevolume", "evacuate/cancel")),
    *(("GET", VM, sub) for sub in ("expand-spec", "objectgraph", "portforward/22", "portforward/22/tcp")),
    *(("PUT", VMI, sub) for sub in ("pause", "unpause", "freeze", "unfreeze", "softreboot", "reset")),
    *(("PUT", VMI, sub) for sub in ("addvolume", "removevolume", "evacuate/cancel")),
    *(("GET", VMI, sub) for sub in ("guestosinfo", "userlist", "filesystemlist", "objectgraph", "networkreport")),
    *(("GET", VMI, sub) for sub in ("console", "vnc", "vnc/screenshot", "usbredir", "vsock?port=1")),
    *(("GET", VMI, sub) for sub in ("portforward/22", "portforward/22/udp")),
]


def path(resource: str, sub: str, name: str = "guarded") -> str:
    return f"{resource}/{name}/{sub}"


def token_of(space: Space, account: str) -> str:
    space.kubectl("create", "serviceaccount", account)
    return space.kubectl("create", "token", account).strip()


def allow(space: Space, account: str, resources: list[str], verbs: list[str]) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": account},
        "rules": [{"apiGroups": ["subresources.kubevirt.io"], "resources": resources, "verbs": verbs}],
    }
    space.apply(role)
    subject = f"--serviceaccount={space.namespace}:{account}"
    space.kubectl("create", "rolebinding", account, f"--role={account}", subject)


def test_no_right_no_route(space: Space) -> None:
    """403 for an account without rights, 401 or 403 for nobody, on each route, whether the object exists or not."""
    stranger, nobody = Subresources(space, token_of(space, "stranger")), Subresources(space, "")
    liar = Subresources(space, "not-a-token")
    for method, resource, sub in [*ROUTES, ("PUT", "expand-vm-spec", "")]:
        address = path(resource, sub) if sub else resource
        assert stranger.call(method, address, {}).status == 403, address
        assert nobody.call(method, address, {}).status in (401, 403), address
        assert liar.call(method, address, {}).status == 401, address


def test_a_right_opens_exactly_its_route(space: Space) -> None:
    """Who may pause may nothing else; a right for the VMI is none for a subresource."""
    space.boot(kernel_boot("guarded"))
    token = token_of(space, "pauser")
    allow(space, "pauser", [f"{VMI}/pause", VMI, f"{VMI}/vnc"], ["get", "update"])
    calls = Subresources(space, token)
    for method, resource, sub in ROUTES:
        allowed = resource == VMI and sub in ("pause", "vnc")
        answer = calls.call(method, path(resource, sub), {"dryRun": ["All"]})
        assert (answer.status == 403) is not allowed, (sub, answer.status)
    assert calls.put(path(VMI, "pause"), {"dryRun": ["All"]}).status == 200
    assert calls.get(path(VMI, "vnc/screenshot")).status == 403


#: One of each way that virtctl calls the server.
CALLS = (
    "start guarded", "pause vmi guarded", "console guarded", "vnc guarded --proxy-only", "vnc screenshot guarded -f -",
    "port-forward vmi/guarded 1:7 --stdio", "guestosinfo guarded", "expand --vm=guarded", "permitted-devices",
    "removevolume guarded --volume-name=x", "expose vmi guarded --name=a --port=1", "evacuate-cancel vmi guarded",
)  # fmt: skip


def test_virtctl_says_in_one_sentence_that_you_may_not(space: Space) -> None:
    """Exit code 1, and who may not do what; or that nobody knows you. The flag wins over the kubeconfig's user."""
    stranger = token_of(space, "stranger")
    for call in CALLS:
        for token, words in ((stranger, "is forbidden: User"), ("not-a-token", "does not know you")):
            done = space.engine.run("virtctl", "-n", space.namespace, f"--token={token}", *call.split())
            assert (done.returncode, done.stdout) == (1, ""), call
            assert words in done.stderr, (call, done.stderr)
            assert len(done.stderr.splitlines()) == 1, (call, done.stderr)


def test_editors_reach_the_guests_ports(space: Space) -> None:
    """The role that comes with the installation is enough for port-forward, which ssh and scp go through."""
    token = token_of(space, "editor")
    subject = f"--serviceaccount={space.namespace}:editor"
    space.kubectl("create", "rolebinding", "editor", "--clusterrole=kubevirt.io:edit", subject)
    space.boot(kernel_boot("guarded"))
    command = ("virtctl", "-n", space.namespace, f"--token={token}", "port-forward", "vmi/guarded", "1:7", "--stdio")

    def echoed() -> bool:
        done = space.engine.run(*command, stdin="hello\n")
        assert "forbidden" not in done.stderr, done.stderr
        return done.stdout == "hello\n"

    eventually(echoed, within_s=60, what="an echo from the guest")


def test_virt_api_itself_lets_nobody_in(space: Space) -> None:
    """Straight at its port, with forged headers, without and with a bad token: 401. Only probes are answered."""
    slices = space.engine.get("-n", "virtpod", "endpointslices")["items"]
    ours = [s for s in slices if s["metadata"]["labels"].get("kubernetes.io/service-name") == "virt-api"]
    found = next(each for each in ours if each.get("endpoints"))
    host = found["endpoints"][0]["addresses"][0]
    port = next(each["port"] for each in found["ports"] if each.get("name") != "automation")
    root = f"https://{host}:{port}"
    api = f"{root}/apis/subresources.kubevirt.io/v1"
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    for headers in ({}, forged, {"Authorization": "Bearer x"}):
        for method, resource, sub in ROUTES:
            address = f"{api}/namespaces/{space.namespace}/{path(resource, sub)}"
            assert status(method, address, headers) == 401, address
        for place in (f"{api}/version", api, f"{api}/guestfs", f"{root}/apis", f"{root}/metrics", f"{root}/openapi/v2"):
            assert status("GET", place, headers) == 401, place
    assert status("GET", f"{root}/healthz", {}) == 200


def status(method: str, url: str, headers: dict[str, str]) -> int:
    """Whose certificate it is does not matter here: we want to be let in, not to trust."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE

    async def run() -> Any:
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, ssl=unchecked, data=b"{}") as response,
        ):
            return response.status

    return int(asyncio.run(asyncio.wait_for(run(), 30)))


def test_what_virt_handler_keeps_is_its_own(engine: Engine) -> None:
    """It runs with umask 0: an open directory let any user of the machine plant a link where root writes."""
    if not isinstance(engine, VirtLocal):
        pytest.skip("looks into virt-local's data directory")
    kept = [path for path in engine.data.glob("nodes/*/virt-handler/**") if path.is_dir()]
    assert kept
    assert [str(path) for path in kept if path.stat().st_mode & 0o077] == []
