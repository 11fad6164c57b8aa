"""The processes that `virt-local up` starts by command line. Hidden: nobody types them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_FILE = click.Path(path_type=Path)


@click.command(hidden=True)
@click.option("--data-dir", type=_FILE, required=True)
@click.option("--instance", default="vp")
@click.option("--listen", multiple=True, required=True)
@click.option("--tls-cert", required=True)
@click.option("--tls-key", required=True)
@click.option("--client-ca", required=True)
@click.option("--service-account-key", required=True)
@click.option("--front-proxy-cert", default="")
@click.option("--front-proxy-key", default="")
@click.option("--node-client-cert", default="")
@click.option("--node-client-key", default="")
@click.option("--token-file", default="")
@click.option("--service-range", multiple=True)
def apiserver(**flags: Any) -> None:
    """The API server."""
    from virt_core.runtime import logs
    from virt_local.apiserver.process import Options, run

    logs.configure("virt-local-apiserver")
    extra = {key: flags.pop(key) for key in ("node_client_cert", "node_client_key", "token_file")}
    flags["listen"], flags["service_ranges"] = list(flags["listen"]), list(flags.pop("service_range"))
    run(Options(**flags, extra=extra, idle_services=False))


@click.command(hidden=True)
@click.option("--kubeconfig", required=True)
@click.option("--volume-dir", type=_FILE, required=True)
@click.option("--data-dir", type=_FILE)
@click.option("--ready-file", type=_FILE)
def controllers(**flags: Any) -> None:
    """Scheduler, node lifecycle, Pod clean-up, volume claims, Services."""
    from virt_core.runtime import logs
    from virt_local.controllers.process import Options, run

    logs.configure("virt-local-controllers")
    run(Options(**flags))


@click.command(hidden=True)
@click.option("--kubeconfig", required=True)
@click.option("--volume-dir", type=_FILE, required=True)
def storage(**flags: Any) -> None:
    """Volumes and snapshots, for an API server other than virt-local's own."""
    from virt_core.runtime import logs
    from virt_local.storage.process import Options, run

    logs.configure("virt-local-storage")
    run(Options(**flags))


@click.command(hidden=True)
@click.option("--name", required=True)
@click.option("--instance", default="vp")
@click.option("--kubeconfig", default="")
@click.option("--root", type=_FILE, required=True)
@click.option("--image-dir", type=_FILE, required=True)
@click.option("--data-dir", type=_FILE)
@click.option("--node-info-dir", type=_FILE)
@click.option("--address", required=True)
@click.option("--port", type=int, default=10250)
@click.option("--pod-cidr", required=True)
@click.option("--pod-cidr-v6", default="")
@click.option("--cluster-dns", multiple=True)
@click.option("--tls-cert", default="")
@click.option("--tls-key", default="")
@click.option("--client-ca", default="")
@click.option("--purge", is_flag=True, help="Take the node's Pods apart instead of running it.")
def node(*, purge: bool, **flags: Any) -> None:
    """A node's agent."""
    from virt_core.runtime import logs
    from virt_local.node.options import NodeOptions

    logs.configure(f"virt-local-node@{flags['name']}")
    options = NodeOptions(**flags)
    if purge:
        from virt_local.node.cleanup import purge as take_apart

        take_apart(options.settings())
        return
    from virt_local.node.process import run

    run(options)


COMMANDS: tuple[click.Command, ...] = (apiserver, controllers, storage, node)
