"""`kubectl get -o json` without a process for each question: tests ask many times a second until something is so."""

from __future__ import annotations

import argparse
import json
from typing import Any, NoReturn

from virt_core.apis.registry import RESOURCES, Resource
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.errors import ApiError

_SHORT = {"vm": "VirtualMachine", "vmi": "VirtualMachineInstance", "vmirs": "VirtualMachineInstanceReplicaSet"}
_SHORT |= {"vmpool": "VirtualMachinePool", "pvc": "PersistentVolumeClaim"}
_BY_NAME: dict[str, Resource] = {}
for _each in RESOURCES:
    _BY_NAME |= {_each.plural: _each, _each.kind.lower(): _each}
_BY_NAME |= {name: _BY_NAME[kind.lower()] for name, kind in _SHORT.items()}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LookupError(message)


_parser = _Parser(add_help=False, allow_abbrev=False)
_parser.add_argument("-n", dest="namespace", default="default")
_parser.add_argument("-l", dest="labels", default="")
_parser.add_argument("resource", choices=_BY_NAME)
_parser.add_argument("name", nargs="?", default="")


class QuickGet:
    """Asks one API server, as the user of one kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self._client = KubeClient(load_connection(kubeconfig), "kubectl")

    def __call__(self, *args: str) -> Any:
        """What `kubectl get ARGS -o json` prints. LookupError: kubectl itself must be asked."""
        asked = _parser.parse_args(args)
        resource = _BY_NAME[asked.resource]
        path = resource.path(asked.namespace if resource.namespaced else "", asked.name)
        query = {"labelSelector": asked.labels} if asked.labels else {}
        try:
            return json.loads(self._client.raw("GET", path, query=query))
        except ApiError as error:
            raise AssertionError(f"get {' '.join(args)}: {error}") from None

    def close(self) -> None:
        self._client.close()
