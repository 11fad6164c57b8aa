"""`virtctl create vm`: cloud-init and access credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from framework.creating import refusal, run, template


def cloud_init(*args: str) -> Any:
    volumes = template(*args).get("volumes", [])
    return {key: value for key, value in volumes[-1].items() if key != "name"} if volumes else None


def test_cloud_init(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    user_data = cloud_init(
        "--user=me", f"--password-file={tmp_path}/password", "--ssh-key=one,two", "--ssh-key=three", "--ga-manage-ssh"
    )["cloudInitNoCloud"]["userData"]
    assert user_data.startswith("#cloud-config\n")
    assert yaml.safe_load(user_data) == {
        "user": "me",
        "password": "secret",
        "chpasswd": {"expire": False},
        "ssh_authorized_keys": ["one", "two", "three"],
        "runcmd": [["setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"]],
    }


def test_cloud_init_kinds_and_raw_data() -> None:
    assert cloud_init("--cloud-init=ConfigDrive") == {"cloudInitConfigDrive": {"userData": "#cloud-config"}}
    data = cloud_init("--cloud-init-user-data=eA==", "--cloud-init-network-data=eQ==")
    assert data == {"cloudInitNoCloud": {"networkDataBase64": "eQ==", "userDataBase64": "eA=="}}
    assert cloud_init("--cloud-init=none", "--user=me") is None
    assert "are left out" in run("vm", "--cloud-init=none", "--ssh-key=k").stderr
    assert "invalid cloud-init data source type" in refusal("vm", "--cloud-init=tape")
    assert "cannot read" in refusal("vm", "--password-file=/none")
    assert "already a volume" in refusal("vm", "--volume-pvc=src:a,name:cloudinitdisk", "--user=me")


def test_access_credentials_by_the_agent() -> None:
    spec = template("--user=me", "--access-cred=src:keys", "--access-cred=type:password,src:words")
    assert spec["accessCredentials"] == [
        {
            "sshPublicKey": {
                "source": {"secret": {"secretName": "keys"}},
                "propagationMethod": {"qemuGuestAgent": {"users": ["me"]}},
            }
        },
        {
            "userPassword": {
                "source": {"secret": {"secretName": "words"}},
                "propagationMethod": {"qemuGuestAgent": {}},
            }
        },
    ]
    assert "setsebool" in spec["volumes"][0]["cloudInitNoCloud"]["userData"]


def test_access_credentials_by_cloud_init() -> None:
    spec = template("--access-cred=src:keys,method:configdrive")
    assert spec["accessCredentials"][0]["sshPublicKey"]["propagationMethod"] == {"configDrive": {}}
    assert "cloudInitConfigDrive" in spec["volumes"][0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("type:ssh", "src must be specified"),
        ("src:ns/keys", "not allowed to specify namespace of secret"),
        ("src:keys", "user must be specified"),
        ("type:card,src:keys", "invalid access credential type"),
        ("src:keys,method:post", "invalid access credentials ssh method"),
        ("type:password,src:keys,method:nocloud", "invalid access credentials password method"),
        ("type:password,src:keys,user:me", "user cannot be specified"),
        ("src:keys,method:nocloud,user:me", "user cannot be specified"),
    ],
)
def test_access_credential_refusals(params: str, message: str) -> None:
    assert message in refusal("vm", f"--access-cred={params}")


def test_access_credential_and_cloud_init_must_agree() -> None:
    assert "have to match: nocloud vs configdrive" in refusal(
        "vm", "--cloud-init=configdrive", "--access-cred=src:keys,method:nocloud"
    )
