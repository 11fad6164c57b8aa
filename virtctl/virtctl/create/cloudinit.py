"""The cloud-init volume, and the credentials that are put into the guest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from virtctl.create.machine import Machine
from virtctl.create.params import flag_error, parse, prefixed, required

ACCESS = "access-cred"
ACCESS_SHAPE = {"type": "str", "src": "str", "method": "str", "user": "str"}
_DISK = "cloudinitdisk"
_HEADER = "#cloud-config"
_SOURCES = {"nocloud": "cloudInitNoCloud", "configdrive": "cloudInitConfigDrive"}
_BY_CLOUD_INIT = {"nocloud": "noCloud", "configdrive": "configDrive"}


@dataclass
class CloudInit:
    """What was asked for. `kind` is None where it was not said."""

    kind: str | None = None
    user: str = ""
    password_file: str = ""
    ssh_keys: tuple[str, ...] = ()
    ga_manage_ssh: bool | None = None
    user_data: str = ""
    network_data: str = ""

    def add_to(self, machine: Machine) -> None:
        kind = (self.kind or "nocloud").lower()
        if self.password_file:
            click.echo("WARNING: --password-file: The password is stored in cleartext in the VM definition!", err=True)
        if kind == "none":
            if self._contents():
                click.echo("WARNING: --cloud-init is none, so the other cloud-init options are left out", err=True)
            return
        if kind not in _SOURCES:
            supported = "supported values are: nocloud, configdrive, none"
            raise flag_error("cloud-init", f'invalid cloud-init data source type "{self.kind}", {supported}')
        if not self.kind and not self._contents() and not self.user:
            return
        if machine.volume(_DISK) is not None:
            raise click.ClickException(f'there is already a volume with name "{_DISK}"')
        machine.volumes.append({"name": _DISK, _SOURCES[kind]: self._source()})

    def _contents(self) -> bool:
        return bool(self.password_file or self.ssh_keys or self.ga_manage_ssh or self.user_data or self.network_data)

    def _source(self) -> dict[str, str]:
        source = {"networkDataBase64": self.network_data} if self.network_data else {}
        if self.user_data:
            return {**source, "userDataBase64": self.user_data}
        return {**source, "userData": "\n".join(self._lines())}

    def _lines(self) -> list[str]:
        lines = [_HEADER]
        if self.user:
            lines.append(f"user: {self.user}")
        if password := self._password():
            lines += [f"password: {password}", "chpasswd: { expire: False }"]
        if self.ssh_keys:
            lines += ["ssh_authorized_keys:", *(f"  - {key}" for key in self.ssh_keys)]
        if self.ga_manage_ssh:
            lines += ["runcmd:", "  - [ setsebool, -P, 'virt_qemu_ga_manage_ssh', 'on' ]"]
        return lines

    def _password(self) -> str:
        if not self.password_file:
            return ""
        try:
            return Path(self.password_file).read_text().strip()
        except OSError as error:
            raise flag_error("password-file", f"cannot read {self.password_file}: {error.strerror}") from error

    def credential(self, text: str) -> dict[str, Any]:
        """One `--access-cred`. SSH keys by cloud-init decide its kind; by the agent they need its leave."""
        params = parse(ACCESS, text, ACCESS_SHAPE)
        required(ACCESS, params, "src")
        namespace, secret = prefixed(ACCESS, params["src"], "src invalid: ")
        if namespace:
            raise flag_error(ACCESS, f'not allowed to specify namespace of secret "{secret}"')
        kind, method = (params.get("type") or "ssh").lower(), (params.get("method") or "ga").lower()
        source = {"secret": {"secretName": secret}}
        if kind == "ssh":
            return {"sshPublicKey": {"source": source, "propagationMethod": self._ssh_method(method, params)}}
        if kind != "password":
            supported = "supported values are: ssh, password"
            raise flag_error(ACCESS, f'invalid access credential type "{kind}", {supported}')
        if method != "ga":
            message = f'invalid access credentials password method "{method}", supported values are: ga'
            raise flag_error(ACCESS, message)
        _no_user(params)
        return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}

    def _ssh_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "ga":
            user = params.get("user") or self.user
            if not user:
                message = 'user must be specified with access credential ssh method ga ("--user" flag or param "user")'
                raise flag_error(ACCESS, message)
            if self.ga_manage_ssh is None:
                self.ga_manage_ssh = True
            return {"qemuGuestAgent": {"users": [user]}}
        if method not in _BY_CLOUD_INIT:
            supported = "supported values are: ga, nocloud, configdrive"
            raise flag_error(ACCESS, f'invalid access credentials ssh method "{method}", {supported}')
        _no_user(params)
        self.kind = self.kind or method
        if self.kind.lower() != method:
            message = f"method param and value passed to --cloud-init have to match: {method} vs {self.kind}"
            raise flag_error(ACCESS, message)
        return {_BY_CLOUD_INIT[method]: {}}


def _no_user(params: dict[str, Any]) -> None:
    if params.get("user"):
        raise flag_error(ACCESS, "user cannot be specified with selected access credential type and method")
