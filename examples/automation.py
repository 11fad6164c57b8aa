"""Drives a VMI through its whole life over gRPC: create, wait, talk to it on its console, pause, delete.

    kubectl create serviceaccount robot
    kubectl create rolebinding robot --clusterrole=kubevirt.io:edit --serviceaccount=default:robot
    python examples/automation.py examples/vmi-guest.yaml --token "$(kubectl create token robot)"

The kubeconfig of virt-local says where the service is; elsewhere give --address and --ca-file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from virt_client import AutomationError, Client, Progress


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("manifest", type=Path, help="a VirtualMachineInstance, as YAML")
    parser.add_argument("--token", required=True)
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG, ~/.kube/config")
    parser.add_argument("--address", help="host:port of the service; default: what the kubeconfig says")
    parser.add_argument(
        "--ca-file", help="who vouches for the service's certificate; default: what the kubeconfig says"
    )
    parser.add_argument("--namespace", default="", help="default: that of the kubeconfig")
    args = parser.parse_args()
    options = {"address": args.address, "ca_file": args.ca_file, "namespace": args.namespace}
    try:
        with Client.from_kubeconfig(args.kubeconfig, token=args.token, **options) as client:
            live(client, yaml.safe_load(args.manifest.read_text()))
    except AutomationError as error:
        raise SystemExit(f"error: {error.message}") from error


def live(client: Client, manifest: dict[str, object]) -> None:
    name = client.create(manifest).name
    try:
        running = client.wait("vmi", name, phases=["Running"], timeout_s=180, on_progress=tell)
        assert running is not None
        print(f"{name} runs on {running.node_name} with {', '.join(running.ip_addresses)}")
        with client.console(name) as console:
            while "# " not in console.seen:
                console.send("\r")
                console.read(1)
            console.send("uname -a\r")
            begin = console.expect("\nLinux")
            end = console.expect("\n", after=begin)
            print(f"its guest says: Linux{console.seen[begin:end].rstrip()}")
        client.pause(name)
        client.wait("vmi", name, condition="Paused", timeout_s=30)
        print("paused; going on")
        client.unpause(name)
    finally:
        client.delete("vmi", name)
        client.wait("vmi", name, gone=True, timeout_s=90, on_progress=tell)


def tell(step: Progress) -> None:
    print(f"{step.elapsed_s:6.1f} s  {step.message}")


if __name__ == "__main__":
    main()
