"""`virtctl create vm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from virt_core.apis import names
from virtctl.cli import command as declare
from virtctl.create.cloudinit import ACCESS, ACCESS_SHAPE, CloudInit
from virtctl.create.imports import COMMON, SHAPES, special
from virtctl.create.machine import CONTAINER_DISK, PVC, SYSPREP, SYSPREP_SHAPE, VOLUME, Machine
from virtctl.create.manifest import check_quantity, metadata, output_option, random_name, show
from virtctl.create.params import described, flag_error, prefixed
from virtctl.options import Settings

_STRATEGIES = (
    names.STRATEGY_ALWAYS,
    names.STRATEGY_MANUAL,
    names.STRATEGY_HALTED,
    names.STRATEGY_ONCE,
    names.STRATEGY_RERUN_ON_FAILURE,
)
_OLD_IMPORTS = {"volume-datasource": "ds", "volume-clone-pvc": "pvc", "volume-blank": "blank"}
#: At most one of each line.
_EXCLUSIVE = (
    ("memory", "instancetype", "infer-instancetype", "infer-instancetype-from"),
    ("preference", "infer-preference", "infer-preference-from"),
    *(("cloud-init-user-data", flag) for flag in ("user", "password-file", "ssh-key", "ga-manage-ssh")),
)
_IMPORT_HELP = "; ".join(f"type:{kind} {described(special(kind))}".rstrip() for kind in SHAPES) + "."


def _text(name: str, help: str, default: str = "") -> Callable[[Any], Any]:
    return click.option(f"--{name}", default=default, show_default=bool(default), help=help)


def _many(name: str, help: str, **attributes: Any) -> Callable[[Any], Any]:
    return click.option(f"--{name}", multiple=True, metavar="PARAMS", help=help, **attributes)


def _infer(what: str, name: str) -> Callable[[Any], Any]:
    flag = f"infer-{what}"
    return click.option(f"--{flag}/--no-{flag}", default=True, help=f"Take the {name} from the first boot disk.")


@declare("vm")
@_text("name", "Name of the VM. Default: a random one.")
@_text("run-strategy", f"One of {', '.join(_STRATEGIES)}.", "Always")
@click.option(
    "--termination-grace-period",
    type=int,
    default=180,
    show_default=True,
    help="Seconds that the guest has to shut down.",
)
@_text("memory", "Memory of the guest, e.g. 2Gi.", "512Mi")
@_text("instancetype", "Instance type: [virtualmachineinstancetype/|virtualmachineclusterinstancetype/]NAME.")
@_infer("instancetype", "instance type")
@_text("infer-instancetype-from", "Take the instance type from this volume.")
@_text("preference", "Preference: [virtualmachinepreference/|virtualmachineclusterpreference/]NAME.")
@_infer("preference", "preference")
@_text("infer-preference-from", "Take the preference from this volume.")
@_many(CONTAINER_DISK, f"A container disk. Parameters: {described(VOLUME)}")
@_many(PVC, f"A PersistentVolumeClaim. Parameters: {described(VOLUME)}")
@_many("volume-import", f"A DataVolume. Parameters: {described(COMMON)}, and more of them by type: {_IMPORT_HELP}")
@_text(SYSPREP, f"A ConfigMap or Secret for sysprep. Parameters: {described(SYSPREP_SHAPE)}")
@_text("user", "User in the cloud-init data.")
@_text("password-file", "File with the password in the cloud-init data.")
@click.option("--ssh-key", multiple=True, help="Authorized SSH key in the cloud-init data. May be repeated.")
@click.option("--ga-manage-ssh/--no-ga-manage-ssh", default=None, help="Let the guest agent change SSH keys.")
@_many(ACCESS, f"A credential to put into the guest. Parameters: {described(ACCESS_SHAPE)}")
@click.option("--cloud-init", help="Kind of cloud-init data: nocloud (default), configdrive or none.")
@_text("cloud-init-user-data", "Cloud-init user data, in base64.")
@_text("cloud-init-network-data", "Cloud-init network data, in base64.")
@_many("volume-datasource", "Deprecated: use --volume-import=type:ds,…", hidden=True)
@_many("volume-clone-pvc", "Deprecated: use --volume-import=type:pvc,…", hidden=True)
@_many("volume-blank", "Deprecated: use --volume-import=type:blank,…", hidden=True)
@output_option
def command(settings: Settings, **options: Any) -> None:
    """Print the manifest of a VirtualMachine.

    Without boot orders the volumes boot in this order: container disks, claims, imported volumes.
    """
    given = _given_flags()
    for group in _EXCLUSIVE:
        if len(both := [f"--{flag}" for flag in group if flag in given]) > 1:
            raise click.UsageError(f"{both[0]} and {both[1]} exclude each other")
    name = options["name"] or random_name("vm-")
    machine = Machine(name, check_quantity("memory", options["memory"]), options["termination_grace_period"])
    _match(machine, options)
    _add_volumes(machine, options)
    _add_cloud_init(machine, options)
    _infer_matchers(machine, options, given)
    show(machine.manifest(metadata(settings, name), _strategy(options["run_strategy"])), options["output"])


def _given_flags() -> set[str]:
    """The flags that were on the command line, or in its environment."""
    from click.core import ParameterSource

    ctx = click.get_current_context()
    default = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    return {name.replace("_", "-") for name in ctx.params if ctx.get_parameter_source(name) not in default}


def _strategy(text: str) -> str:
    for strategy in _STRATEGIES:
        if strategy.lower() == text.lower():
            return strategy
    message = f'invalid run strategy "{text}", supported values are: {", ".join(_STRATEGIES)}'
    raise flag_error("run-strategy", message)


def _match(machine: Machine, options: dict[str, Any]) -> None:
    for matcher in ("instancetype", "preference"):
        if not options[matcher]:
            continue
        kind, name = prefixed(matcher, options[matcher])
        kinds = (f"virtualmachine{matcher}", f"virtualmachinecluster{matcher}")
        if kind and kind.lower() not in kinds:
            message = f'invalid {matcher} kind "{kind}", supported values are: {", ".join(kinds)}'
            raise flag_error(matcher, message)
        # Without a kind, virt-api fills in the one of the whole cluster.
        machine.matchers[matcher] = {"name": name} | ({"kind": kind.lower()} if kind else {})
    if options["instancetype"]:
        machine.memory = None


def _add_volumes(machine: Machine, options: dict[str, Any]) -> None:
    for index, text in enumerate(options["volume_containerdisk"]):
        machine.add_container_disk(index, text)
    for text in options["volume_pvc"]:
        machine.add_claim(text)
    for flag, kind in _OLD_IMPORTS.items():
        for text in options[flag.replace("-", "_")]:
            click.echo(f"Flag --{flag} has been deprecated, use flag --volume-import instead", err=True)
            machine.add_import(f"type:{kind},{text}")
    for text in options["volume_import"]:
        machine.add_import(text)
    if options["volume_sysprep"]:
        machine.add_sysprep(options["volume_sysprep"])


def _add_cloud_init(machine: Machine, options: dict[str, Any]) -> None:
    cloud_init = CloudInit(
        kind=options["cloud_init"],
        user=options["user"],
        password_file=options["password_file"],
        ssh_keys=tuple(key for keys in options["ssh_key"] for key in keys.split(",")),
        ga_manage_ssh=options["ga_manage_ssh"],
        user_data=options["cloud_init_user_data"],
        network_data=options["cloud_init_network_data"],
    )
    machine.credentials = [cloud_init.credential(text) for text in options["access_cred"]]
    cloud_init.add_to(machine)


def _infer_matchers(machine: Machine, options: dict[str, Any], given: set[str]) -> None:
    """An instance type and the default memory: the latter stays as the answer to a volume that names none."""
    for matcher in ("instancetype", "preference"):
        if options[matcher] or not options[f"infer_{matcher}"]:
            continue
        if matcher == "instancetype" and "memory" in given:
            continue
        explicit = bool({f"infer-{matcher}", f"infer-{matcher}-from"} & given)
        machine.infer(matcher, options[f"infer_{matcher}_from"] or None, explicit=explicit)
        if matcher == "instancetype" and explicit:
            machine.memory = None
