"""Volumes for claims: one for each directory, bound to the node that has it."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import commands, storage
from tests.cluster.layout import make_layout


def test_every_volume_is_a_directory_of_its_own_on_its_own_node(tmp_path: Path) -> None:
    layout = make_layout("virtpod", 240, 2, ipv6=False, root=tmp_path)
    made = storage.objects(layout)
    volumes = [each for each in made if each["kind"] == "PersistentVolume"]
    paths = [each["spec"]["local"]["path"] for each in volumes]
    assert len(set(paths)) == len({each["metadata"]["name"] for each in volumes}) == 2 * storage.EACH_NODE
    for each in volumes:
        (term,) = each["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert f"/nodes/{term['matchExpressions'][0]['values'][0]}/volumes/" in each["spec"]["local"]["path"]


def test_the_default_class_is_that_of_virt_local(tmp_path: Path) -> None:
    layout = make_layout("virtpod", 240, 2, ipv6=False, root=tmp_path)
    classes = [each for each in storage.objects(layout) if each["kind"] == "StorageClass"]
    default = "storageclass.kubernetes.io/is-default-class"
    marked = [each for each in classes if each["metadata"].get("annotations", {}).get(default) == "true"]
    assert [(each["metadata"]["name"], each["provisioner"]) for each in marked] == [("hostpath", "virt-local/hostpath")]
    program = next(each for each in commands.control_plane(layout, tmp_path) if each.name == "storage")
    assert f"--volume-dir={storage.volume_dir(layout)}" in program.argv
