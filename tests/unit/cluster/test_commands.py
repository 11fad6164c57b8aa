"""What is typed, and the cluster that a test is given."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cluster import Cluster, ClusterError
from tests.cluster.__main__ import main, parser
from tests.cluster.layout import Layout, make_layout, save


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = make_layout("aa", 225, 2, ipv6=True, root=tmp_path)
    save(layout)
    layout.kubeconfig.write_text("{}")
    return layout


def test_an_image_and_a_cluster_have_names_of_their_own() -> None:
    options = parser().parse_args(["load", "--cluster", "aa", "--name", "virtpod.internal/guest:v1", "x"])
    assert (options.cluster, options.name, options.paths) == ("aa", "virtpod.internal/guest:v1", [Path("x")])


def test_the_environment_chooses_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTPOD_CLUSTER", "bb")
    assert parser().parse_args(["status"]).cluster == "bb"


def test_an_error_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubeconfig", "--cluster", "No-Name"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: A cluster's name is")
    assert err.count("\n") == 1


def test_a_cluster_that_is_not_there_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="start it with `make cluster`"):
        Cluster.attach("aa", tmp_path)


def test_our_own_kubeconfig_gives_our_own_cluster(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(layout.kubeconfig))
    cluster = Cluster.from_environment()
    assert cluster.owned
    assert cluster.nodes == ["node1", "node2"]
    assert cluster.pids("kubelet") == []
    assert not cluster.alive("node1")


def test_somebodys_kubeconfig_gives_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text("{}")
    monkeypatch.setenv("KUBECONFIG", str(path))
    cluster = Cluster.from_environment()
    assert not cluster.owned
    with pytest.raises(ClusterError, match="is not ours"):
        cluster.pids("kubelet")


def test_a_copy_of_our_kubeconfig_elsewhere_is_somebodys(layout: Layout, tmp_path: Path) -> None:
    copy = layout.state / "copy"
    copy.write_text("{}")
    assert not Cluster.from_kubeconfig(copy).owned


def test_a_component_that_does_not_exist_is_named(layout: Layout) -> None:
    with pytest.raises(ClusterError, match="no component 'kublet'; there are etcd, apiserver"):
        Cluster.attach("aa", layout.root).pids("kublet")


def test_a_dead_node_takes_no_commands(layout: Layout) -> None:
    cluster = Cluster.attach("aa", layout.root)
    with pytest.raises(ClusterError, match="node2 is dead"):
        cluster.run_on("node2", "true")
    with pytest.raises(ClusterError, match="node2 is dead already"):
        cluster.kill_node("node2")


def test_the_settings_are_plain_json(layout: Layout) -> None:
    assert json.loads((layout.state / "settings.json").read_text())["octet"] == 225


def test_make_cluster_brings_helm() -> None:
    """README goes on with `helm install`, also on a machine that has kubectl and no helm."""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(["make", "-n", "cluster"], cwd=root, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.index("hack/kubectl helm") < done.stdout.index("tests.cluster up")
