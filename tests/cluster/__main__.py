"""`python -m tests.cluster build|up|down|status|load|kubeconfig`: what `make cluster` and its relatives call."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from virt_local.up.errors import NetworkError
from virt_local.up.progress import Progress

from . import binaries, supervise
from .cluster import Cluster
from .commands import CONTROL_PLANE, NODE
from .down import take_down
from .errors import ClusterError
from .layout import DEFAULT_NAME, check_name, load
from .loading import project_images
from .preflight import check_root


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        check_name(options.cluster)
        code: int = options.body(options) or 0
        return code
    except (ClusterError, NetworkError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Kubernetes on this machine.")
    verbs = top.add_subparsers(required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--cluster", default=os.environ.get("VIRTPOD_CLUSTER") or DEFAULT_NAME, metavar="NAME")
    build = verbs.add_parser("build", parents=[common], help="only build the programs that are missing")
    build.set_defaults(body=_build)
    up = verbs.add_parser("up", parents=[common], help="build what is missing and start the cluster")
    up.add_argument("--nodes", type=int, help="how many [default: 2]")
    up.add_argument("--no-images", action="store_true", help="do not import what `make images` and `make guest` made")
    up.set_defaults(body=_up)
    down = verbs.add_parser("down", parents=[common], help="end the cluster and remove everything of it")
    down.set_defaults(body=_down)
    status = verbs.add_parser("status", parents=[common], help="what runs; exit code 1: not all of it")
    status.set_defaults(body=_status)
    loading = verbs.add_parser("load", parents=[common], help="import OCI archives or layouts on every node")
    loading.add_argument("--name", default="", metavar="IMAGE", help="REGISTRY/NAME:TAG, for an image without a name")
    loading.add_argument("paths", nargs="*", type=Path, help="[default: what `make images` and `make guest` made]")
    loading.add_argument("--if-running", action="store_true", help="do nothing where no cluster runs")
    loading.set_defaults(body=_load)
    config = verbs.add_parser("kubeconfig", parents=[common], help="print the path of the administrator's kubeconfig")
    config.set_defaults(body=_kubeconfig)
    hidden = verbs.add_parser("supervise", parents=[common])
    hidden.add_argument("programs", type=Path)
    hidden.add_argument("role")
    hidden.set_defaults(body=_supervise)
    agent = verbs.add_parser("networks", parents=[common])
    agent.add_argument("kubeconfig", type=Path)
    agent.add_argument("node")
    agent.set_defaults(body=_networks)
    return top


def _build(_: argparse.Namespace) -> None:
    progress = Progress()
    print(binaries.ensure(progress.step))


def _up(options: argparse.Namespace) -> None:
    from .up import start

    with _alone(options.cluster):
        cluster = start(options.cluster, options.nodes, Progress(), images=not options.no_images)
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _down(options: argparse.Namespace) -> None:
    with _alone(options.cluster):
        take_down(options.cluster, Progress())


def _status(options: argparse.Namespace) -> int:
    layout = load(options.cluster)
    if layout is None:
        print(f"There is no cluster {options.cluster!r} here.")
        return 1
    cluster = Cluster.attach(options.cluster)
    rows = [("control plane", name, cluster.pids(name)) for name in CONTROL_PLANE]
    rows += [(node.name, name, cluster.pids(name, node.name)) for node in layout.nodes for name in NODE]
    for where, name, pids in rows:
        print(f"{where:14} {name:20} {'pid ' + str(pids[0]) if pids else 'not running'}")
    return 0 if all(pids for _, _, pids in rows) else 1


def _load(options: argparse.Namespace) -> None:
    if options.if_running and load(options.cluster) is None:
        return
    cluster = Cluster.attach(options.cluster)
    chosen = [(path, options.name) for path in options.paths] or project_images()
    if not chosen:
        raise ClusterError("There is nothing to load: name archives, or build some with `make images`.")
    for path, name in chosen:
        for loaded in cluster.load(path, name=name):
            print(loaded, flush=True)


def _kubeconfig(options: argparse.Namespace) -> None:
    print(Cluster.attach(options.cluster).kubeconfig)


def _supervise(options: argparse.Namespace) -> None:
    layout = load(options.cluster)
    if layout is None:
        raise ClusterError(f"There is no cluster {options.cluster!r} here.")
    supervise.run(layout, options.programs, options.role)


def _networks(options: argparse.Namespace) -> None:
    from .networks import run

    run(options.kubeconfig, options.node)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Two starts at once, or a start and an end, would work against each other. The file goes with its last holder."""
    check_root()
    path = Path("/run", f"virtpod-cluster-{name}.lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino
        except BlockingIOError:
            held = False
        if not held:
            raise ClusterError(f"Another start or end of the cluster {name!r} is under way: wait for it.")
        try:
            yield
        finally:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
