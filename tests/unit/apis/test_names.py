"""Names that programs agree on."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.base import decode, encode
from virt_core.apis.handoffs import HANDOFFS
from virt_core.apis.netplan import NetPlan, NetPlanInterface


def test_a_long_name_becomes_a_unique_label_value() -> None:
    assert names.vmi_id("short") == "short"
    first, second = names.vmi_id("a" * 70 + "1"), names.vmi_id("a" * 70 + "2")
    assert len(first) == 63
    assert first != second


def test_places_in_the_pod() -> None:
    assert names.container_disk_path(2) == "/var/run/kubevirt-image-volume/disk_2"
    assert names.container_disk_volume(2) == "disk-2"
    assert names.service_account_user("virt-api") == "system:serviceaccount:virtpod:virt-api"
    assert names.cloud_init_secret_path("v") == "/var/run/kubevirt-private/secret/v"
    assert names.cloud_init_network_secret_path("v").endswith("/v-network")


def test_handoffs_have_unique_names_and_deadlines() -> None:
    assert len({kind.name for kind in HANDOFFS}) == len(HANDOFFS)
    assert all(kind.deadline_s > 0 for kind in HANDOFFS)


def test_a_network_plan_survives_the_pipe() -> None:
    plan = NetPlan(vmi_uid="u", interfaces=[NetPlanInterface(name="default", binding="masquerade", queues=2)])
    assert decode(encode(plan), NetPlan) == plan
    assert b'"vmiUid"' in encode(plan)
