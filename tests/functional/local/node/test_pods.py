"""Pods with real runc, conmon and CNI plugins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from functional.local.node.support import IMAGE, Node, eventually, shell, terminated, waiting

from virt_local.node.runtime import cgroups

pytestmark = pytest.mark.root


def test_a_pod_runs_and_ends_well(node: Node) -> None:
    """The log, the exit code and the addresses of a short Pod are reported."""
    uid = node.run({"containers": [shell("echo hello; echo $FROM_IMAGE; hostname; sleep 0.3")]}, name="short")
    status = node.wait_phase(uid, "Running")
    assert status.pod_ip.startswith("10.199.7.")
    assert status.pod_ips[1].ip.startswith("fd00:199:7:")
    assert {c.type: c.status for c in status.conditions}["Ready"] == "True"
    ended = node.wait_phase(uid, "Succeeded")
    assert terminated(ended).exit_code == 0
    assert terminated(ended).reason == "Completed"
    assert node.log(uid) == "hello\nyes\nshort\n"


def test_a_start_is_one_write(node: Node) -> None:
    """From the binding to the running process with a single status write."""
    for _ in range(2):
        uid = node.run({"containers": [shell("sleep 100")]})
        node.wait_phase(uid, "Running")
        assert [phase for who, phase, _ in node.pods.writes if who == uid] == ["Running"]


def test_delete_asks_first_and_kills_later(node: Node, tmp_path: Path) -> None:
    """The container hears the request, stays nevertheless, and is killed when its time is over."""
    stubborn = shell(
        "trap 'touch /told/asked' TERM; echo up; while :; do sleep 0.1; done",
        volumeMounts=[{"name": "told", "mountPath": "/told"}],
    )
    volumes = [{"name": "told", "hostPath": {"path": str(tmp_path)}}]
    uid = node.run({"containers": [stubborn], "volumes": volumes})
    node.wait_phase(uid, "Running")
    eventually(lambda: node.log(uid) == "up\n")
    node.pods.request_delete(uid, 5)
    eventually((tmp_path / "asked").exists)
    node.wait_gone(uid)
    assert not (node.settings.root / "pods" / uid).exists()
    assert not (node.settings.root / "netns" / uid).exists()
    assert not (node.settings.root / "sandboxes" / uid).exists()


def test_exit_code_and_last_words_of_a_failure(node: Node) -> None:
    """A failed Pod says its code and, when asked to, the end of its log."""
    uid = node.run({"containers": [shell("echo it broke; exit 3", terminationMessagePolicy="FallbackToLogsOnError")]})
    status = node.wait_phase(uid, "Failed")
    assert (terminated(status).exit_code, terminated(status).reason) == (3, "Error")
    assert terminated(status).message == "it broke"


def test_the_message_file_wins(node: Node) -> None:
    uid = node.run({"containers": [shell("echo from the file > /dev/termination-log; exit 1")]})
    assert terminated(node.wait_phase(uid, "Failed")).message == "from the file"


def test_a_signal_is_128_and_its_number(node: Node) -> None:
    uid = node.run({"containers": [shell("sleep 100 & kill -9 $!; wait $!; exit $?")]})
    assert terminated(node.wait_phase(uid, "Failed")).exit_code == 137


def test_too_much_memory_is_named(node: Node) -> None:
    script = "x=a; while :; do x=$x$x$x$x; done"
    uid = node.run({"containers": [shell(script, resources={"limits": {"memory": "32Mi"}})]})
    status = node.wait_phase(uid, "Failed")
    assert (terminated(status).exit_code, terminated(status).reason) == (137, "OOMKilled")


def test_a_missing_program_fails_the_pod(node: Node) -> None:
    uid = node.run({"containers": [{"name": "c", "image": IMAGE, "command": ["/no/such/program"]}]})
    status = node.wait_phase(uid, "Failed")
    assert (terminated(status).exit_code, terminated(status).reason) == (128, "StartError")
    assert "no such file" in terminated(status).message


def test_a_missing_image_waits_and_says_how_to_bring_it(node: Node) -> None:
    spec = {"containers": [{"name": "c", "image": "test.internal/absent:v1", "imagePullPolicy": "Never"}]}
    uid = node.run(spec)
    eventually(lambda: bool(node.status(uid).container_statuses))
    why = waiting(node.status(uid))
    assert why.reason == "ErrImageNeverPull"
    assert "test.internal/absent:v1" in why.message
    assert "virt-local image import" in why.message
    assert node.phase(uid) == "Pending"


def test_init_containers_run_in_order_and_a_sidecar_stays(node: Node) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    uid = node.run(
        {
            "initContainers": [
                shell("echo one >> /v/order", **mount) | {"name": "one"},
                shell("echo side >> /v/order; while :; do sleep 0.1; done", **mount)
                | {"name": "side", "restartPolicy": "Always"},
                shell("sleep 0.2; echo two >> /v/order", **mount) | {"name": "two"},
            ],
            "containers": [shell("echo main >> /v/order; cat /v/order; sleep 0.5", **mount)],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1,
        }
    )
    status = node.wait_phase(uid, "Running")
    assert {c.type: c.status for c in status.conditions}["Initialized"] == "True"
    ended = node.wait_phase(uid, "Succeeded")
    assert node.log(uid) == "one\nside\ntwo\nmain\n"
    assert [s.name for s in ended.init_container_statuses if terminated(ended, s.name).exit_code == 0] == ["one", "two"]


def test_a_failed_init_container_fails_the_pod(node: Node) -> None:
    uid = node.run({"initContainers": [shell("exit 7") | {"name": "i"}], "containers": [shell("echo never")]})
    status = node.wait_phase(uid, "Failed")
    assert terminated(status, "i").exit_code == 7
    assert waiting(status).reason == "PodInitializing"


def test_restart_is_immediate_once_and_then_backs_off(node: Node) -> None:
    uid = node.run({"restartPolicy": "Always", "containers": [shell("echo run; exit 1")]})
    eventually(
        lambda: (
            "CrashLoopBackOff" in str(node.status(uid)) and node.status(uid).container_statuses[0].restart_count == 1
        )
    )
    status = node.status(uid)
    assert status.phase == "Running"
    assert "back-off 10s" in waiting(status).message
    before = status.container_statuses[0].last_state
    assert before is not None
    assert before.terminated is not None
    assert node.log(uid, attempt=0) == node.log(uid, attempt=1) == "run\n"


def test_active_deadline(node: Node) -> None:
    uid = node.run({"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0, "containers": [shell("sleep 100")]})
    status = node.wait_phase(uid, "Failed")
    assert status.reason == "DeadlineExceeded"


def test_pods_reach_each_other_and_only_they_have_their_ports(node: Node) -> None:
    server = node.run({"containers": [shell("echo hi > /www/x; httpd -f -p 8080 -h /www")]})
    address = node.wait_phase(server, "Running").pod_ip
    client = node.run({"containers": [shell(f"while ! wget -qO- http://{address}:8080/x; do sleep 0.1; done")]})
    node.wait_phase(client, "Succeeded")
    assert node.log(client).endswith("hi\n")


def test_restrictions_hold(node: Node) -> None:
    """User, groups, capabilities, no new privileges, seccomp, a read-only root."""
    uid = node.run(
        {
            "securityContext": {"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000]},
            "containers": [
                shell(
                    "id -u; id -g; id -G; grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/self/status;"
                    " touch /x 2>/dev/null || echo read-only",
                    securityContext={
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                )
            ],
        }
    )
    node.wait_phase(uid, "Succeeded")
    lines = [" ".join(line.split()) for line in node.log(uid).splitlines()]
    assert lines[:3] == ["1000", "2000", "2000 3000 4000"]
    assert lines[3:6] == ["CapBnd: 0000000000000400", "NoNewPrivs: 1", "Seccomp: 2"]
    assert lines[-1] == "read-only"


def test_run_as_non_root_refuses_root(node: Node) -> None:
    uid = node.run({"containers": [shell("id", securityContext={"runAsNonRoot": True})]})
    eventually(lambda: bool(node.status(uid).container_statuses))
    assert waiting(node.status(uid)).reason == "CreateContainerConfigError"
    assert "runAsNonRoot" in waiting(node.status(uid)).message


def test_leftovers_in_the_pods_cgroup_die_with_it(node: Node) -> None:
    """What others put into the Pod's cgroup, as virt-netsetup does with its DHCP server, does not outlive it."""
    uid = node.run({"containers": [shell("sleep 0.5")]})
    node.wait_phase(uid, "Running")
    stray = subprocess.Popen(["sleep", "100"])
    cgroups.join(f"{node.settings.cgroup}/pod{uid}/stray", stray.pid)
    node.wait_phase(uid, "Succeeded")
    assert stray.wait(5) == -9


def test_a_burst_of_pods(node: Node) -> None:
    """Twenty at once: all run, and none shares an address."""
    uids = [node.run({"terminationGracePeriodSeconds": 0, "containers": [shell("sleep 100")]}) for _ in range(20)]
    for uid in uids:
        node.wait_phase(uid, "Running", within_s=60)
    assert len({node.status(uid).pod_ip for uid in uids}) == 20
