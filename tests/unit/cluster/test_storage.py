"""Volumes for claims: one for each directory, bound to the node that has it."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import storage
from tests.cluster.layout import make_layout


def test_every_volume_is_a_directory_of_its_own_on_its_own_node(tmp_path: Path) -> None:
    layout = make_layout("virtpod", 240, 2, ipv6=False, root=tmp_path)
    kinds, volumes = storage.objects(layout)[:1], storage.objects(layout)[1:]
    assert kinds[0]["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    paths = [each["spec"]["local"]["path"] for each in volumes]
    assert len(set(paths)) == len({each["metadata"]["name"] for each in volumes}) == 2 * storage.EACH_NODE
    for each in volumes:
        (term,) = each["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert f"/nodes/{term['matchExpressions'][0]['values'][0]}/volumes/" in each["spec"]["local"]["path"]
