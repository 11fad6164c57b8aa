"""From a Pod's container to config.json."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.pods import Container, Pod
from virt_core.runtime.seccomp import default_profile
from virt_local.node.images.layout import RunConfig
from virt_local.node.images.root import Root
from virt_local.node.oci.context import BundleContext, ContainerConfigError, Device, User
from virt_local.node.oci.downward import DownwardFacts, needs_pod_ip, pod_field
from virt_local.node.oci.env import command_line, environment, expand
from virt_local.node.oci.security import (
    ALL_CAPABILITIES,
    capabilities,
    choose_user,
    lookup_user,
    seccomp_profile,
)
from virt_local.node.oci.spec import render
from virt_local.node.users import PodUsers

FACTS = DownwardFacts("node1", ("10.0.0.1",), ("10.1.0.2", "fd00::2"), "host", Decimal(4), 8 << 30)
EVERYTHING = frozenset(ALL_CAPABILITIES)


class Objects:
    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return ConfigMap(data={"K": "v", "bad key": "x"}) if name == "cm" else None

    def secret(self, namespace: str, name: str) -> Secret | None:
        return Secret(data={"S": base64.b64encode(b"hush").decode()}) if name == "s" else None


def pod_of(container: dict[str, Any] | None = None, **spec: Any) -> Pod:
    one = {"name": "c", "image": "i", "command": ["run"], **(container or {})}
    plain = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "1", "c": 'say "hi"'}},
        "spec": {"containers": [one], **spec},
    }
    return from_plain(plain, Pod)


def spec_of(container: dict[str, Any] | None = None, root: Root | None = None, **fields: Any) -> dict[str, Any]:
    spec = fields.pop("pod_spec", {})
    pod = pod_of(container, **spec)
    made = {
        "pod": pod,
        "container": pod.spec.containers[0],
        "root": root or Root("i", "id", Path("/lower")),
        "root_path": Path("/bundle/rootfs"),
        "user": User(107, 107, (107,)),
        "env": {"PATH": "/bin"},
        "hostname": "host",
        "cgroup": "/virtpod-vp/node1/podu/cid",
        "netns": Path("/ns"),
        **fields,
    }
    return render(BundleContext(**made))


@pytest.mark.parametrize(
    ("text", "result"),
    [("$(A)", "1"), ("$$(A)", "$(A)"), ("$(NO)", "$(NO)"), ("x$(A)y$(A)", "x1y1"), ("$", "$"), ("$$$(A)", "$1")],
)
def test_expansion(text: str, result: str) -> None:
    assert expand(text, {"A": "1"}) == result


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ([], [], ["entry", "cmd"]),
        ([], ["arg"], ["entry", "arg"]),
        (["own"], [], ["own"]),
        (["own"], ["$(V)"], ["own", "value"]),
    ],
)
def test_command_line(command: list[str], args: list[str], expected: list[str]) -> None:
    config = RunConfig(entrypoint=["entry"], cmd=["cmd"])
    assert command_line(Container(name="c", command=command, args=args), config, {"V": "value"}) == expected


def test_no_command_at_all_is_an_error() -> None:
    with pytest.raises(ContainerConfigError, match="names a command"):
        command_line(Container(name="c"), RunConfig(), {})


def env_of(*variables: dict[str, Any], **fields: Any) -> dict[str, str]:
    pod = pod_of({"env": list(variables), **fields})
    return environment(pod, pod.spec.containers[0], RunConfig(env=["PATH=/image", "I=1"]), FACTS, Objects())


def test_environment_from_everywhere() -> None:
    found = env_of(
        {"name": "A", "value": "$(I)$(HOSTNAME)"},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}},
        {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "S"}}},
        {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "K", "optional": True}}},
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "none", "optional": True}}],
    )
    assert found == {
        "PATH": "/image", "I": "1", "HOSTNAME": "host", "A": "1host", "N": "node1", "IPS": "10.1.0.2,fd00::2",
        "L": "1", "CPU": "4", "S": "hush", "P_K": "v",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "K"}}, "no ConfigMap n/none with the key 'K'"),
        ({"secretKeyRef": {"name": "s", "key": "X"}}, "no Secret n/s with the key 'X'"),
        ({"fieldRef": {"fieldPath": "spec.containers"}}, "is not one that a Pod can learn"),
        ({"resourceFieldRef": {"resource": "cpu"}}, "is not limits.NAME"),
    ],
)
def test_a_variable_without_a_value(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerConfigError, match=message):
        env_of({"name": "X", "valueFrom": source})


def test_labels_as_a_file() -> None:
    assert pod_field(pod_of(), "metadata.labels", FACTS) == 'a/b="1"\nc="say \\"hi\\""'


def test_who_must_wait_for_the_network() -> None:
    field = {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert needs_pod_ip(pod_of({"env": [field]}).spec.containers[0])
    assert not needs_pod_ip(pod_of().spec.containers[0])


def caps(**wish: Any) -> set[str]:
    pod = pod_of({"securityContext": wish})
    sets = capabilities(pod.spec.containers[0], EVERYTHING)
    assert sets["bounding"] == sets["effective"] == sets["permitted"]
    return set(sets["bounding"])


def test_capabilities() -> None:
    assert len(caps()) == 14
    assert caps(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}) == {"CAP_NET_BIND_SERVICE"}
    assert "CAP_CHOWN" not in caps(capabilities={"drop": ["cap_chown"]})
    assert len(caps(privileged=True)) == len(ALL_CAPABILITIES)
    with pytest.raises(ContainerConfigError, match="unknown capability 'FLY'"):
        caps(capabilities={"add": ["FLY"]})


def test_only_what_we_hold_can_be_given() -> None:
    pod = pod_of({"securityContext": {"privileged": True}})
    assert capabilities(pod.spec.containers[0], frozenset({"CHOWN"}))["bounding"] == ["CAP_CHOWN"]


def test_the_user_comes_from_container_pod_image(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0\nweb:x:33:44:\n")
    (tmp_path / "etc/group").write_text("staff:x:50:\n")
    outer = {"securityContext": {"runAsUser": 5, "runAsGroup": 6, "fsGroup": 7, "supplementalGroups": [8, 7]}}

    def user(container: dict[str, Any], spec: dict[str, Any], image: str = "") -> User:
        pod = pod_of(container, **spec)
        return choose_user(pod, pod.spec.containers[0], image, tmp_path)

    assert user({}, outer) == User(5, 6, (8, 7))
    assert user({"securityContext": {"runAsUser": 9}}, outer) == User(9, 6, (8, 7))
    assert user({}, {}, "web") == User(33, 44)
    assert user({}, {}, "web:staff") == User(33, 50)
    assert user({}, {}, "12:13") == User(12, 13)
    with pytest.raises(ContainerConfigError, match="no 'who' in /etc/passwd"):
        user({}, {}, "who")
    with pytest.raises(ContainerConfigError, match="would run as root"):
        user({"securityContext": {"runAsNonRoot": True}}, {})


def test_an_images_passwd_may_not_point_outside(tmp_path: Path) -> None:
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "passwd").write_text("me:x:1:1\n")
    (tmp_path / "root/etc/passwd").symlink_to(tmp_path / "passwd")
    with pytest.raises(ContainerConfigError, match="cannot be read"):
        lookup_user("me", tmp_path / "root")


def test_seccomp_profiles(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text('{"defaultAction": "SCMP_ACT_ALLOW"}')

    def profile(**wish: Any) -> dict[str, Any] | None:
        pod = pod_of({"securityContext": {"seccompProfile": wish}} if wish else {})
        return seccomp_profile(pod, pod.spec.containers[0], tmp_path)

    assert profile() is None
    assert profile(type="Unconfined") is None
    assert profile(type="RuntimeDefault") == default_profile()
    assert profile(type="Localhost", localhostProfile="own.json") == {"defaultAction": "SCMP_ACT_ALLOW"}
    with pytest.raises(ContainerConfigError, match="cannot be read"):
        profile(type="Localhost", localhostProfile="../../etc/passwd")


def test_the_default_profile_denies_what_breaks_out() -> None:
    rules = default_profile()["syscalls"]
    plain = {
        name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule for name in rule["names"]
    }
    denied = "mount umount2 unshare setns bpf kexec_load init_module open_by_handle_at userfaultfd io_uring_setup clone"
    assert not plain & set(denied.split())
    assert {"read", "execve", "futex", "epoll_wait", "openat", "memfd_create"} <= plain
    assert default_profile()["defaultAction"] == "SCMP_ACT_ERRNO"


def test_a_launchers_bundle() -> None:
    spec = spec_of(
        {
            "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "1500m", "memory": "64Mi"}},
            "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
            "workingDir": "/work",
        },
        devices=[Device("/dev/net/tun", 10, 200)],
        seccomp={"defaultAction": "x"},
    )
    assert spec["root"] == {"path": "/bundle/rootfs", "readonly": True}
    assert spec["hostname"] == "host"
    process = spec["process"]
    assert (process["args"], process["cwd"], process["noNewPrivileges"]) == (["run"], "/work", True)
    assert process["user"] == {"uid": 107, "gid": 107, "additionalGids": [107]}
    assert "oomScoreAdj" not in process
    linux = spec["linux"]
    assert linux["cgroupsPath"] == "/virtpod-vp/node1/podu/cid"
    assert linux["resources"]["cpu"] == {"shares": 204, "quota": 150000, "period": 100000}
    assert linux["resources"]["memory"] == {"limit": 64 << 20}
    assert linux["resources"]["devices"] == [
        {"allow": False, "access": "rwm"},
        {"allow": True, "type": "c", "major": 10, "minor": 200, "access": "rwm"},
    ]
    assert linux["devices"][0]["fileMode"] == 0o666
    assert {"type": "network", "path": "/ns"} in linux["namespaces"]
    assert linux["seccomp"] == {"defaultAction": "x"}
    assert "/proc/kcore" in linux["maskedPaths"]
    json.dumps(spec)


def test_mounts_are_sorted_and_the_pods_win() -> None:
    def bind(destination: str) -> dict[str, Any]:
        return {"destination": destination, "type": "bind", "source": "/x", "options": ["rbind", "rprivate"]}

    root = Root("i", "id", Path("/l"), mounts=(bind("/usr"), bind("/tmp")))
    mounts = [bind("/a/b/c"), bind("/tmp"), bind("/a")]
    found = [mount["destination"] for mount in spec_of(root=root, mounts=mounts)["mounts"]]
    assert found.index("/a") < found.index("/a/b/c")
    assert found.index("/dev") < found.index("/dev/shm")
    assert found.count("/tmp") == 1
    assert "/sys/fs/cgroup" not in found
    assert "/sys/fs/cgroup" in [m["destination"] for m in spec_of(unified_cgroups=True)["mounts"]]


def test_on_the_hosts_network() -> None:
    spec = spec_of(
        netns=None, pod_spec={"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net.x", "value": "1"}]}}
    )
    kinds = [namespace["type"] for namespace in spec["linux"]["namespaces"]]
    assert "network" not in kinds
    assert "uts" not in kinds
    assert "hostname" not in spec
    assert "sysctl" not in spec["linux"]


def test_privileged_sees_devices_and_all_of_proc() -> None:
    spec = spec_of({"securityContext": {"privileged": True}})
    assert spec["linux"]["maskedPaths"] == []
    assert spec["linux"]["resources"]["devices"] == [{"allow": True, "access": "rwm"}]
    assert {"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind", "rslave"]} in spec["mounts"]


def test_users_of_its_own() -> None:
    """Devices come as mounts then, and only the cgroup speaks of them."""
    made = spec_of(users=PodUsers(Path("/ns/user"), 70000), devices=[Device("/dev/kvm", 10, 232)])
    linux = made["linux"]
    assert {"type": "user", "path": "/ns/user"} in linux["namespaces"]
    assert linux["uidMappings"] == linux["gidMappings"] == [{"containerID": 0, "hostID": 70000, "size": 65536}]
    assert linux["devices"] == []
    assert linux["resources"]["devices"][1] == {"allow": True, "type": "c", "major": 10, "minor": 232, "access": "rwm"}
