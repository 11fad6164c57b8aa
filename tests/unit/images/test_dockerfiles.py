"""What the four Dockerfiles promise one another, and what goes into them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "hack/images"))

import lock  # noqa: E402
import plan  # noqa: E402

CHECKOUT = plan.Checkout(ROOT)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: Where the name of a package and of what one imports differ.
IMPORTS = {
    "pyyaml": "yaml", "grpcio": "grpc", "protobuf": "google.protobuf", "googleapis-common-protos": "google.rpc",
    "grpcio-health-checking": "grpc_health", "grpcio-reflection": "grpc_reflection", "libvirt-python": "libvirt",
}  # fmt: skip
FOLDERS = {"handler": ("handler", "netsetup")}
SHARED = {"virt_core": "core", "virt_protos": "protos"}

images = pytest.mark.parametrize("image", plan.IMAGES, ids=lambda image: image.name)


def text(image: plan.Image) -> str:
    return (ROOT / image.dockerfile).read_text()


def imports(source: str) -> set[str]:
    """Every module that code names, also inside its functions and in programs that it holds as text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\nimport " in node.value:
            names |= imports(node.value)
    return names


def reachable(folders: tuple[str, ...]) -> set[str]:
    """All that the files in these folders import, by way of what our components share."""
    todo = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    seen: set[Path] = set()
    found: set[str] = set()
    while todo:
        path = todo.pop()
        seen.add(path)
        found |= (names := imports(path.read_text()))
        for name in names:
            top, _, rest = name.partition(".")
            if top in SHARED:
                module = ROOT / SHARED[top] / top / rest.replace(".", "/")
                places = (module.with_suffix(".py"), module / "__init__.py")
                todo += [place for place in places if place.is_file() and place not in seen]
    return found


def test_all_begin_alike_so_that_they_share_a_layer() -> None:
    beginnings = {
        text(image).partition("\nARG BASE=")[2].partition("RUN python3 /build/base.py")[0] for image in plan.IMAGES
    }
    assert len(beginnings) == 1
    assert "AS python" in beginnings.pop()


def test_the_base_is_named_with_its_release() -> None:
    assert re.fullmatch(r"debian:[a-z]+-slim", CHECKOUT.base())


@images
def test_the_last_stage_starts_from_nothing(image: plan.Image) -> None:
    last = text(image).rpartition("\nFROM ")[2]
    assert last.startswith("scratch\n")
    assert "RUN " not in last
    assert f'ENTRYPOINT ["{image.name}"]' in last
    assert re.search(r"^USER \d+:\d+$", last, re.MULTILINE)
    assert "HEALTHCHECK" not in text(image)


@images
def test_our_code_comes_after_everything_that_changes_less_often(image: plan.Image) -> None:
    copies = re.findall(r"^COPY --from=(\w+)", text(image).rpartition("\nFROM ")[2], re.MULTILINE)
    assert copies == [name for name in ("python", "system", "packages", "code") if name in copies]
    assert copies[-2:] == ["packages", "code"]


@images
def test_what_is_copied_exists_and_is_let_in(image: plan.Image) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")]
    for name in CHECKOUT.inputs(image):
        assert (ROOT / name).exists()
        if name not in (image.dockerfile, *plan.COMMON):
            assert any(name.startswith(entry) or entry.startswith(f"{name}/") for entry in allowed), name


@images
def test_a_lock_has_the_versions_of_the_constraints(image: plan.Image) -> None:
    constraints = {line.lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()}
    lines = lock.Locks(ROOT).path(image.component).read_text().splitlines()[1:]
    assert lines
    for line in lines:
        pin, _, digest = line.partition(" --hash=sha256:")
        assert pin in constraints
        assert len(digest) == 64


@images
def test_a_lock_belongs_to_the_requirements_of_today(image: plan.Image) -> None:
    assert lock.Locks(ROOT).fresh(image.component), "hack/images/build writes the lock anew"


@images
def test_nothing_is_installed_that_no_code_imports(image: plan.Image) -> None:
    names = reachable(FOLDERS.get(image.component, (image.component,)))
    for requirement in lock.requirements(PYPROJECT, image.component):
        name = re.split(r"[^\w-]", requirement.lower())[0]
        wanted = IMPORTS.get(name, name.replace("-", "_"))
        assert any(found == wanted or found.startswith(f"{wanted}.") for found in names), requirement
