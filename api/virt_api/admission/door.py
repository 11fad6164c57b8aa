"""What is not built is refused before it is stored: kinds that nobody would work on, fields that nobody would read.

A wrapper around the other webhooks, so that no rule has to know. On an update only what is new is refused: a VM that an
older version has stored can still be stopped and changed; its VMI will be refused when it shall be made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from virt_api.admission.causes import Cause, Denied, Refused, not_supported
from virt_api.admission.objects import document_of, inside, is_terminating
from virt_api.admission.review import Accepted, Admitter, PatchOps
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.support.paths import is_under
from virt_core.apis.support.table import Missing, Support

#: kind → where the spec of its VM stands ("" for none), and where that of its machine
PLACES = {
    "VirtualMachineInstance": ("", "spec"),
    "VirtualMachine": ("spec", "spec.template.spec"),
    "VirtualMachineInstanceReplicaSet": ("", "spec.template.spec"),
    "VirtualMachinePool": ("spec.virtualMachineTemplate.spec", "spec.virtualMachineTemplate.spec.template.spec"),
}
_GATE = re.compile(r"needs the feature gate (\w+)")


def known_kind(support: Support, admit: Admitter) -> Admitter:
    """The same webhook, without the kinds that are not built."""
    return partial(_by_kind, support, admit)


def known_fields(support: Support, admit: Admitter) -> Admitter:
    """The same webhook, without the objects that ask for what is not built."""
    return partial(_by_fields, support, admit)


def _by_kind(support: Support, admit: Admitter, request: AdmissionRequest) -> PatchOps | Accepted | None:
    feature = support.kind(request.kind.kind)
    if feature is not None and request.operation == "CREATE":
        raise Denied(f"{request.kind.kind}: {feature.refusal}", 422, "Invalid")
    return admit(request)


def _by_fields(support: Support, admit: Admitter, request: AdmissionRequest) -> PatchOps | Accepted | None:
    found = list(_new(support, request))
    if not found:
        return admit(request)
    raise Refused([*found, *_others(support, admit, request, [cause.field for cause in found])])


def _new(support: Support, request: AdmissionRequest) -> Iterator[Cause]:
    document = document_of(request.object)
    if request.kind.kind not in PLACES or is_terminating(document):
        return
    missing = missing_in(support, request.kind.kind, document)
    if missing and request.operation == "UPDATE":
        stored = missing_in(support, request.kind.kind, document_of(request.old_object))
        missing = [place for place in missing if place not in stored]
    for path, feature in missing:
        yield not_supported(path, feature.refusal)


def missing_in(support: Support, kind: str, document: dict[str, Any]) -> list[Missing]:
    """What an object asks for and cannot have, with the exact path of each."""
    vm, machine = PLACES[kind]
    above = machine.rpartition(".")[0]
    metadata = f"{above}.metadata" if above else "metadata"
    found = support.of_machine(inside(document, machine), machine) + support.of_metadata(
        inside(document, metadata), metadata
    )
    return found + (support.of_vm(inside(document, vm), vm) if vm else [])


def _others(support: Support, admit: Admitter, request: AdmissionRequest, paths: list[str]) -> Iterator[Cause]:
    """What else is wrong, without what is said of fields that cannot be had and of gates that never open."""
    try:
        admit(request)
    except Refused as refused:
        for cause in refused.causes:
            gate = _GATE.search(cause.message)
            if not is_under(cause.field, paths) and not (gate and gate[1] in support.missing_gates):
                yield cause
    except Denied:
        return
