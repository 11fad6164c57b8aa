"""Access credentials: what the Secrets hold, what cloud-init gets of it, and what the agent sets in the guest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_core.apis.base import from_plain
from virt_core.apis.credentials import Delivery, Way, by_agent, deliveries, secrets
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks import cloud_init
from virt_launcher.disks.credentials import keys_in, passwords_in
from virt_launcher.hypervisor.ports import AgentReport
from virt_launcher.machine.credentials import Credentials, CredentialsView
from virt_launcher.machine.manager import SyncOptions

KEYS = Delivery(Way.AGENT_KEYS, "keys", ("root", "web"))
MORE = Delivery(Way.AGENT_KEYS, "more", ("web",))
PASSWORDS = Delivery(Way.AGENT_PASSWORDS, "words")


def put(directory: Path, **values: str) -> Path:
    """As a node mounts a Secret: links to what stands in a hidden directory."""
    hidden = directory / "..2026"
    hidden.mkdir(parents=True, exist_ok=True)
    (directory / "..data").unlink(missing_ok=True)
    (directory / "..data").symlink_to("..2026")
    for name, text in values.items():
        (hidden / name).write_text(text)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    return directory


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    made = make_parts(tmp_path)
    made.manager.sync(plain_vmi(), SyncOptions(allow_emulation=True))
    made.hypervisor.report = AgentReport()
    return made


def delivering(parts: Parts, tmp_path: Path, told: list[CredentialsView | None]) -> Credentials:
    found = Credentials(
        parts.hypervisor,
        lambda: parts.hypervisor.report is not None,
        lambda secret: tmp_path / secret,
        lambda: told.append(found.view),
    )
    found._wanted = (KEYS, MORE, PASSWORDS)
    return found


def test_the_guest_has_what_the_secrets_say(parts: Parts, tmp_path: Path) -> None:
    put(tmp_path / "keys", a="ssh-rsa A\n\n# remark\nssh-rsa B\n")
    put(tmp_path / "more", b="ssh-rsa C", a="ssh-rsa A")
    put(tmp_path / "words", web="s3cret\n")
    told: list[CredentialsView | None] = []
    credentials = delivering(parts, tmp_path, told)
    credentials.apply()
    assert parts.hypervisor.ssh_keys == {
        "root": ("ssh-rsa A", "ssh-rsa B"),
        "web": ("ssh-rsa A", "ssh-rsa B", "ssh-rsa C"),
    }
    assert parts.hypervisor.passwords == {"web": "s3cret"}
    credentials.apply()
    assert told == [CredentialsView(True)]
    put(tmp_path / "keys", a="ssh-rsa D")
    credentials.apply()
    assert parts.hypervisor.ssh_keys["root"] == ("ssh-rsa D",)


def test_what_fails_is_named_and_keeps_nothing_else_back(parts: Parts, tmp_path: Path) -> None:
    put(tmp_path / "keys", a="ssh-rsa A")
    put(tmp_path / "words", web="s3cret", nobody="x")
    parts.hypervisor.no_users = {"root", "nobody"}
    told: list[CredentialsView | None] = []
    credentials = delivering(parts, tmp_path, told)
    credentials.apply()
    [view] = told
    assert view is not None
    assert not view.synced
    assert view.message == "keys of 'root': no user root; password of 'nobody': no user nobody"
    assert set(parts.hypervisor.ssh_keys) == {"web"}
    assert "s3cret" not in view.message
    soon = credentials._pause_s()
    parts.hypervisor.no_users = set()
    credentials.apply()
    assert told[-1] == CredentialsView(True)
    assert soon < credentials._pause_s()


def test_a_secret_that_cannot_be_read_is_tried_again(parts: Parts, tmp_path: Path) -> None:
    """Between the look at its names and the look at their values a Secret may change."""
    (put(tmp_path / "keys", a="ssh-rsa A") / "gone").symlink_to("..data/gone")
    told: list[CredentialsView | None] = []
    credentials = delivering(parts, tmp_path, told)
    credentials.apply()
    assert told[0] is not None
    assert "a Secret cannot be read" in told[0].message
    (tmp_path / "keys/gone").unlink()
    credentials.apply()
    assert told[-1] == CredentialsView(True)


def test_nothing_is_said_without_an_agent(parts: Parts, tmp_path: Path) -> None:
    told: list[CredentialsView | None] = []
    credentials = delivering(parts, tmp_path, told)
    parts.hypervisor.report = None
    credentials.apply()
    assert (told, credentials.view) == ([], None)


def test_a_secret_is_read_with_bounds(tmp_path: Path) -> None:
    directory = put(tmp_path / "s", **{f"k{n}": f"ssh-rsa {n}\n" * 20 for n in range(300)})
    assert len(keys_in([directory])) == 256
    assert len(passwords_in(directory)) == 256
    assert keys_in([tmp_path / "absent"]) == ()


def vmi(*credentials: dict[str, Any]) -> VirtualMachineInstance:
    return from_plain(
        {"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"accessCredentials": list(credentials)}},
        VirtualMachineInstance,
    )


def key(secret: str, **method: Any) -> dict[str, Any]:
    return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": method}}


def test_credentials_are_taken_apart() -> None:
    asked = vmi(key("a", noCloud={}), key("a", qemuGuestAgent={"users": ["u"]}), key("b", configDrive={}))
    ways = [(each.way, each.secret, each.users) for each in deliveries(asked)]
    assert ways == [(Way.NO_CLOUD, "a", ()), (Way.AGENT_KEYS, "a", ("u",)), (Way.CONFIG_DRIVE, "b", ())]
    assert [each.way for each in by_agent(asked)] == [Way.AGENT_KEYS]
    assert secrets(asked) == ("a", "b")


@pytest.mark.parametrize(
    ("make", "file", "field"),
    [
        (cloud_init.no_cloud, "meta-data", "public-keys"),
        (cloud_init.config_drive, "openstack/latest/meta_data.json", "public_keys"),
    ],
)
def test_cloud_init_carries_the_keys(make: Any, file: str, field: str, tmp_path: Path) -> None:
    dirs = cloud_init.SecretDirs(tmp_path, tmp_path)
    source = from_plain({"userData": "x"}, cloud_init.CloudInitNoCloudSource)
    plan = make(vmi(), source, "f", dirs, ("ssh-rsa A", "ssh-rsa B"))
    assert json.loads(plan.files[file])[field] == {"0": "ssh-rsa A", "1": "ssh-rsa B"}
    assert field not in json.loads(make(vmi(), source, "f", dirs).files[file])
