"""Access credentials: keys by cloud-init, keys and passwords by the agent into the running guest, and their change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .console import Console
from .engine import eventually
from .manifests import vmi, with_user_data

pytestmark = pytest.mark.e2e


def secret(space: Space, name: str, **values: str) -> None:
    space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values})


def key(name: str, **method: Any) -> dict[str, Any]:
    return {"sshPublicKey": {"source": {"secret": {"secretName": name}}, "propagationMethod": method}}


def told(space: Space) -> tuple[str, str]:
    given = space.vmi("keys")["status"].get("conditions", [])
    found = next((one for one in given if one["type"] == "AccessCredentialsSynchronized"), {})
    return found.get("status", ""), found.get("message", "")


def sees(console: Console, command: str) -> None:
    """The guest itself says so."""
    check = f"{command} && echo seen-$((6*7))"
    eventually(lambda: "seen-42" in console.shell(check), within_s=180, what=command)


def test_keys_and_passwords_reach_the_running_guest_and_follow_their_secrets(space: Space) -> None:
    secret(space, "keys", one="ssh-ed25519 AAAAfirst me@here\n")
    secret(space, "words", root="open sesame")
    password = {"source": {"secret": {"secretName": "words"}}, "propagationMethod": {"qemuGuestAgent": {}}}
    given = [key("keys", qemuGuestAgent={"users": ["root"]}), {"userPassword": password}]
    space.apply(vmi("keys", accessCredentials=given))
    eventually(lambda: told(space)[0] == "True", within_s=120, what="the condition")
    with space.console("keys") as console:
        console.prompt()
        sees(console, "grep -q AAAAfirst /root/.ssh/authorized_keys")
        hashed = 'h=$(cut -d: -f2 /etc/shadow); s=$(echo "$h" | cut -d\\$ -f3)'
        sees(console, f'{hashed}; [ "$(mkpasswd -m sha512 -S "$s" "open sesame")" = "$h" ]')
        secret(space, "keys", one="ssh-ed25519 AAAAsecond me@here\n")
        sees(console, "grep -q AAAAsecond /root/.ssh/authorized_keys")
        sees(console, "! grep -q AAAAfirst /root/.ssh/authorized_keys")


def test_a_user_that_the_guest_has_not_is_named(space: Space) -> None:
    secret(space, "keys", one="ssh-ed25519 AAAAfirst me@here\n")
    space.apply(vmi("keys", accessCredentials=[key("keys", qemuGuestAgent={"users": ["stranger"]})]))
    eventually(lambda: told(space)[0] == "False", within_s=120, what="the condition")
    assert "keys of 'stranger'" in told(space)[1]
    events = json.loads(space.kubectl("get", "events", "-o", "json"))["items"]
    assert "AccessCredentialsSyncFailed" in {event["reason"] for event in events}


def test_keys_by_cloud_init(space: Space) -> None:
    """The guest mounts the volume and reads what its cloud-init would."""
    secret(space, "keys", one="ssh-ed25519 AAAAfirst me@here\n")
    space.apply(with_user_data(vmi("keys", accessCredentials=[key("keys", noCloud={})]), "#!/bin/sh\ntrue\n"))
    space.ready("keys")
    with space.console("keys") as console:
        console.prompt()
        sees(console, "mkdir -p /mnt && mount -o ro /dev/vdb /mnt; grep -q AAAAfirst /mnt/meta-data")
