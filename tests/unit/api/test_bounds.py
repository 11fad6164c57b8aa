"""Objects that are too large: every list has an end, the refusal names it, and no rule takes more than its share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import FrameType
from typing import Any

import pytest
from msgspec import inspect as types
from tests.unit.api.reviews import CONFIG, CREATE, HOOKS, create, review, vm, vmi

from virt_api.admission import bounds, deadline
from virt_api.admission.causes import Denied
from virt_api.admission.document import Shape, _shape_of
from virt_api.admission.review import MAX_TEXT, BadReview, answer
from virt_api.admission.rules import CREATE_RULES, SPEC_RULES, general
from virt_api.admission.rules.base import Check
from virt_api.admission.vm.base import VMCheck
from virt_api.admission.vm.requests import fulfilled
from virt_api.admission.vm.rules import VM_RULES
from virt_core.apis.base import from_plain
from virt_core.apis.vm import VirtualMachineSpec, VirtualMachineVolumeRequest
from virt_core.apis.vmi import VirtualMachineInstanceSpec as VMISpec

Path = tuple[str, ...]
THOUSANDS = 5000
SIZES = (20, 40, 80)


def lists_of(shape: Shape, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every list and map of a struct; `[]` in a path is the first entry of a list, `{}` that of a map."""
    for name, field in shape.fields.items():
        yield from _lists_at(field, (*path, name))


def _lists_at(shape: Shape, path: Path) -> Iterator[tuple[Path, str]]:
    if shape.item is not None:
        yield path, shape.kind
        yield from _lists_at(shape.item, (*path, "[]" if shape.kind == "list" else "{}"))
    yield from lists_of(shape, path)


VMI_LISTS = list(lists_of(_shape_of(VMISpec)))


def placed(path: Path, value: Any) -> Any:
    for step in reversed(path):
        value = [value] if step == "[]" else {"x" if step == "{}" else step: value}
    return value


def merged(into: Any, other: Any) -> Any:
    if isinstance(into, dict) and isinstance(other, dict):
        return {**into, **{key: merged(into.get(key), value) for key, value in other.items()}}
    return other


def written(path: Path) -> str:
    return ".".join(path).replace(".[]", "[0]").replace("{}", "x")


@pytest.mark.parametrize(("path", "kind"), VMI_LISTS, ids=lambda part: written(part) if isinstance(part, tuple) else "")
def test_no_list_has_thousands_of_entries(path: Path, kind: str) -> None:
    many = [{}] * THOUSANDS if kind == "list" else {str(n): {} for n in range(THOUSANDS)}
    obj = vmi()
    obj["spec"] = merged(obj["spec"], placed(path, many))
    verdict = create(obj)
    assert verdict.code == 422
    assert f"spec.{written(path)}" in verdict.fields
    assert f"spec.{written(path)}: has {THOUSANDS} entries; at most" in verdict.message


def test_there_are_lists_to_test() -> None:
    names = {path[-1] for path, _ in VMI_LISTS}
    assert {"disks", "volumes", "interfaces", "networks", "tolerations", "accessCredentials", "nodeSelector"} <= names


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"])
def test_the_lists_of_templates_end_as_well(kind: str) -> None:
    machine = vm(template={"spec": {**vmi()["spec"], "tolerations": [{}] * THOUSANDS}})["spec"]
    spec, at = {
        "VirtualMachine": (machine, "spec.template.spec"),
        "VirtualMachineInstanceReplicaSet": (
            {"selector": {}, "template": machine["template"]},
            "spec.template.spec",
        ),
        "VirtualMachinePool": (
            {"selector": {}, "virtualMachineTemplate": {"spec": machine}},
            "spec.virtualMachineTemplate.spec.template.spec",
        ),
    }[kind]
    verdict = create({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "t"}, "spec": spec})
    assert (verdict.code, f"{at}.tolerations" in verdict.fields) == (422, True), verdict


def test_lists_in_lists_end_too() -> None:
    """Each is short enough; together they are not."""
    ports = [{"port": 1}] * 400
    obj = vmi()
    obj["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}, "ports": ports}] * 200
    verdict = create(obj)
    assert verdict.code == 422
    assert f"more than {bounds.MAX_VALUES} values" in verdict.message


def test_what_the_api_server_keeps_in_an_object_does_not_count() -> None:
    obj = vmi()
    fields = {f"f:{n}": {} for n in range(bounds.MAX_VALUES + 1)}
    obj["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": fields}]
    obj["metadata"]["annotations"] = {"commas": "," * bounds.MAX_VALUES}
    assert create(obj).code == 201


def test_a_long_word_comes_back_short() -> None:
    verdict = create(vmi(hostname="x" * 100_000, networks=[{"name": "y" * 100_000, "pod": {}}]))
    assert verdict.code == 422
    assert len(verdict.message) < 20 * MAX_TEXT


@pytest.mark.parametrize("path", sorted(HOOKS))
@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_what_is_nested_too_deeply_is_refused(path: str, depth: int) -> None:
    """Under the names that some webhook might follow."""
    deep = '{"x":' * depth + "{}" + "}" * depth
    obj = f'{{"metadata":{{"name":"t"}},"spec":{{"dataVolumeTemplates":[{{"spec":{deep}}}],"template":{deep}}}}}'
    body = (
        '{"request":{"uid":"r","kind":{"group":"kubevirt.io","version":"v1","kind":"VirtualMachine"},'
        f'"operation":"CREATE","object":{obj},"oldObject":{obj}}}}}'
    )
    try:
        response = json.loads(answer(body.encode(), HOOKS[path]))["response"]
    except BadReview:
        return
    assert response["allowed"] or response["status"]["code"] in (400, 403, 404, 422), response


HUGE = "1" * 4299


@pytest.mark.parametrize(
    "number", [HUGE, f'"{HUGE}"', f'"1e{HUGE}"', f'"{HUGE}Gi"', f'"{HUGE}\\n"', "1" * 4400, "1e999"]
)
@pytest.mark.parametrize(
    "path",
    [
        ("domain", "memory", "guest"),
        ("domain", "resources", "requests", "memory"),
        ("domain", "resources", "limits", "cpu"),
        ("domain", "cpu", "cores"),
        ("domain", "cpu", "maxSockets"),
        ("domain", "memory", "hugepages", "pageSize"),
        ("terminationGracePeriodSeconds",),
        ("volumes", "[]", "emptyDisk", "capacity"),
        ("domain", "devices", "disks", "[]", "bootOrder"),
        ("domain", "devices", "disks", "[]", "blockSize", "custom", "logical"),
    ],
    ids=written,
)
def test_a_number_of_thousands_of_digits_is_refused_by_name(path: Path, number: str) -> None:
    obj = vmi()
    obj["spec"] = merged(obj["spec"], placed(path, "NUMBER"))
    body = json.dumps({"request": {"uid": "r", "kind": {"kind": "VirtualMachineInstance"}, "operation": "CREATE"}})
    body = body[:-2] + f', "object": {json.dumps(obj)}}}}}'
    body = body.replace('"NUMBER"', number)
    response = json.loads(answer(body.encode(), CREATE))["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] in (400, 422)
    too_much_for_json = number in ("1" * 4400, "1e999")
    assert too_much_for_json or path[-1] in response["status"]["message"]
    assert len(response["status"]["message"]) < 10 * MAX_TEXT


def test_a_percentage_of_thousands_of_digits_is_refused() -> None:
    spec = {"selector": {}, "maxUnavailable": f"{HUGE}{HUGE}%", "virtualMachineTemplate": {"spec": vm()["spec"]}}
    obj = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {"name": "p"}}
    assert "spec.maxUnavailable" in create({**obj, "spec": spec}).fields


def test_a_review_ends_at_its_deadline() -> None:
    def refused() -> dict[str, Any]:
        return review(CREATE, vmi(architecture="amd64"))

    assert deadline.limited(refused, within_s=60.0)["allowed"]
    late = deadline.limited(refused, within_s=-1.0)
    assert (late["allowed"], late["status"]["code"]) == (False, 504)
    with pytest.raises(Denied):
        deadline.limited(deadline.check, within_s=-1.0)
    deadline.check()


# Work, counted in steps of the interpreter: a clock would say what else the machine does.


def steps(act: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def is_linear(work: Callable[[int], int]) -> bool:
    """Twice as many more entries may cost twice as much more: a constant part does not count."""
    small, middle, large = (work(many) for many in SIZES)
    return large - middle <= 2.5 * (middle - small) + 2000


def full(info: Any, many: int, depth: int = 0) -> Any:
    """A document with everything in it that a type has, and long lists of all of it."""
    info = _bare(info)
    if isinstance(info, types.StructType):
        return {field.encode_name: full(field.type, many, depth) for field in info.fields}
    if isinstance(info, types.ListType):
        # Lists in lists stay short: they would multiply by themselves.
        return [full(info.item_type, 1, depth + 1) for _ in range(many if depth == 0 else 1)]
    if isinstance(info, types.DictType):
        return {f"k{n}": full(info.value_type, 1, depth + 1) for n in range(many if depth == 0 else 1)}
    samples = {types.StrType: "1", types.IntType: 1, types.BoolType: True, types.FloatType: 1.0}
    return samples.get(type(info), "1")


def _bare(info: Any) -> Any:
    while isinstance(info, types.Metadata | types.UnionType):
        rest = info.types if isinstance(info, types.UnionType) else (info.type,)
        info = next(member for member in rest if not isinstance(member, types.NoneType))
    return info


def numbered(document: Any) -> Any:
    """Names that differ, as most have them."""
    if isinstance(document, list):
        return [
            {**numbered(item), "name": f"n{index}"} if isinstance(item, dict) and "name" in item else numbered(item)
            for index, item in enumerate(document)
        ]
    return {key: numbered(value) for key, value in document.items()} if isinstance(document, dict) else document


@cache
def machine(many: int) -> VMISpec:
    return from_plain(numbered(full(types.type_info(VMISpec), many)), VMISpec)


@pytest.mark.parametrize(
    "rule", SPEC_RULES + CREATE_RULES, ids=lambda rule: f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
)
def test_no_rule_of_a_machine_is_more_than_linear(rule: Any) -> None:
    checks = {many: Check(machine(many), CONFIG) for many in SIZES}
    assert is_linear(lambda many: steps(lambda: list(rule(checks[many]))))


def keys_for_the_guest(many: int) -> VMISpec:
    """Each asks for a volume that is not there."""
    key = {"source": {"secret": {"secretName": "s"}}, "propagationMethod": {"noCloud": {}}}
    volumes = [{"name": f"v{n}"} for n in range(many)]
    return from_plain({"accessCredentials": [{"sshPublicKey": key}] * many, "volumes": volumes, "domain": {}}, VMISpec)


def test_lists_that_are_compared_are_not_multiplied() -> None:
    """Credentials and volumes once were."""

    def work(many: int) -> int:
        check = Check(keys_for_the_guest(many), CONFIG)
        return steps(lambda: list(general.access_credentials(check)))

    assert is_linear(work)


@pytest.mark.parametrize("rule", VM_RULES, ids=lambda rule: rule.__name__)
def test_no_rule_of_a_vm_is_more_than_linear(rule: Any) -> None:
    def work(many: int) -> int:
        spec = from_plain(numbered(full(types.type_info(VirtualMachineSpec), many)), VirtualMachineSpec)
        check = VMCheck(spec, machine(many), CONFIG)
        return steps(lambda: list(rule(check)))

    assert is_linear(work)


def test_wishes_for_volumes_are_not_more_than_linear() -> None:
    def work(many: int) -> int:
        volumes = [{"name": f"v{n}"} for n in range(many)]
        disks = [{"name": f"v{n}"} for n in range(many)]
        spec = from_plain({"volumes": volumes, "domain": {"devices": {"disks": disks}}}, VMISpec)
        asked = [{"removeVolumeOptions": {"name": f"v{many - n}"}} for n in range(many)]
        requests = from_plain(asked, list[VirtualMachineVolumeRequest])
        return steps(lambda: fulfilled(spec, requests))

    assert is_linear(work)


def test_the_count_sees_what_is_quadratic() -> None:
    def work(many: int) -> int:
        return steps(lambda: [1 for _ in range(many) if any(n < 0 for n in range(many))])

    assert not is_linear(work)
