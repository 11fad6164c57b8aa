"""credentials: keys and passwords in the Secrets of a VM."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube

from .conftest import Run

VM = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/one"
SECRETS = "/api/v1/namespaces/default/secrets"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def values(kube: FakeKube, name: str) -> list[str]:
    return [base64.b64decode(v).decode() for v in kube.objects[f"{SECRETS}/{name}"].get("data", {}).values()]


def ssh_credential(secret: str, user: str = "me") -> dict[str, Any]:
    method = {"qemuGuestAgent": {"users": [user]}}
    return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": method}}


def password_credential(secret: str) -> dict[str, Any]:
    source = {"secret": {"secretName": secret}}
    return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}


def vm(kube: FakeKube, *credentials: dict[str, Any], created: bool = False) -> str:
    spec = {"accessCredentials": list(credentials)} if credentials else {}
    obj = kube.put(VM, {"spec": {"template": {"spec": spec}}, "status": {"created": created}})
    return str(obj["metadata"]["uid"])


def secret(kube: FakeKube, name: str, owner: str = "", **data: str) -> None:
    owners = [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "one", "uid": owner}] if owner else []
    kube.put(
        f"{SECRETS}/{name}",
        {"metadata": {"ownerReferences": owners}, "data": {key: encoded(value) for key, value in data.items()}},
    )


def test_a_first_key_makes_a_secret_and_names_it(kube: FakeKube, run: Run, tmp_path: Path) -> None:
    uid = vm(kube)
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    result = run("credentials", "add-ssh-key", "one", "-u", "me", "-f", f"{tmp_path}/key.pub")
    assert result.exit_code == 0, result.output
    name = next(path for path in kube.objects if path.startswith(f"{SECRETS}/one-ssh-key-")).rpartition("/")[2]
    assert values(kube, name) == ["ssh-ed25519 AAAA me"]
    assert kube.objects[f"{SECRETS}/{name}"]["metadata"]["ownerReferences"][0]["uid"] == uid
    assert kube.objects[VM]["spec"]["template"]["spec"]["accessCredentials"] == [ssh_credential(name)]
    run("credentials", "add-ssh-key", "one", "-u", "you", "--value", "k")
    assert len(kube.objects[VM]["spec"]["template"]["spec"]["accessCredentials"]) == 2


def test_a_running_vm_would_not_see_a_new_secret(kube: FakeKube, run: Run) -> None:
    vm(kube, created=True)
    args = ["credentials", "add-ssh-key", "one", "--user=me", "--value=k"]
    assert "only after a restart: use --force" in run(*args).output
    assert run(*args, "--force").exit_code == 0


def test_another_key_goes_into_the_secret_that_there_is(kube: FakeKube, run: Run) -> None:
    secret(kube, "keys", vm(kube, ssh_credential("keys")), a="old key")
    args = ["credentials", "add-ssh-key", "one", "--user=me"]
    assert run(*args, "--value=new key").output == 'Successfully added the key to secret "keys"\n'
    assert values(kube, "keys") == ["old key", "new key"]
    assert "already contains this SSH key" in run(*args, "--value=new key").output
    assert values(kube, "keys") == ["old key", "new key"]


def test_a_foreign_secret_needs_force(kube: FakeKube, run: Run) -> None:
    vm(kube, ssh_credential("shared"))
    secret(kube, "shared", a="old key")
    args = ["credentials", "add-ssh-key", "one", "--user=me", "--value=new"]
    assert "does not belong to VM one" in run(*args).output
    assert run(*args, "--force").exit_code == 0
    assert values(kube, "shared") == ["old key", "new"]


def test_several_secrets_need_a_choice(kube: FakeKube, run: Run) -> None:
    uid = vm(kube, ssh_credential("a"), ssh_credential("b"))
    for name in ("a", "b"):
        secret(kube, name, uid)
    args = ["credentials", "add-ssh-key", "one", "--user=me", "--value=k"]
    assert "say which with --secret" in run(*args).output
    assert "c is not assigned" in run(*args, "--secret=c").output
    assert run(*args, "--secret=b").exit_code == 0
    assert (values(kube, "a"), values(kube, "b")) == ([], ["k"])


def test_removing_a_key(kube: FakeKube, run: Run) -> None:
    secret(kube, "keys", vm(kube, ssh_credential("keys")), a="key one\nkey two\n", b="key one")
    result = run("credentials", "remove-ssh-key", "one", "-u", "me", "--value", "key one")
    assert result.output == 'Successfully removed the key from secret "keys"\n'
    assert values(kube, "keys") == ["key two"]
    assert "No secrets associated" in run("credentials", "remove-ssh-key", "one", "-u", "you", "--value", "k").output


def test_setting_a_password(kube: FakeKube, run: Run) -> None:
    args = ["credentials", "set-password", "one", "-u", "me", "-p", "new"]
    vm(kube)
    assert "no access credential of type userPassword" in run(*args).output
    secret(kube, "words", vm(kube, password_credential("words")), me="old", you="same")
    assert run(*args).output == 'Successfully set password in secret "words"\n'
    assert values(kube, "words") == ["new", "same"]


@pytest.mark.parametrize(
    "args",
    [
        ["add-ssh-key", "one", "--value=k"],
        ["add-ssh-key", "one", "-u", "me"],
        ["add-ssh-key", "one", "-u", "me", "--value=k", "-f", "x"],
        ["add-ssh-key", "one", "-u", "me", "--value=k", "--create-secret", "--update-secret"],
        ["add-ssh-key", "one", "-u", "me", "-f", "/none"],
        ["remove-ssh-key", "one", "-u", "me"],
        ["set-password", "one", "-u", "me"],
    ],
)
def test_wrong_usage_changes_nothing(kube: FakeKube, run: Run, args: list[str]) -> None:
    assert run("credentials", *args).exit_code == 1
    assert not kube.requests
