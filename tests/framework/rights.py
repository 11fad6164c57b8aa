"""Which rights a component's code uses, read from the code: every call of the Kubernetes client, with verb and kind.

A call names its kind itself (`client.get(Node, …)`, `Informer(client, Pod)`), or by a parameter's annotation
(`def stop(vm: VirtualMachine): client.patch(vm, …)`); of the rest somebody must say so (rules/test_rbac.py).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virt_core.apis.registry import RESOURCES, resource_by_kind

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "virt_api": ROOT / "api",
    "virt_controller": ROOT / "controller",
    "virt_handler": ROOT / "handler",
    "virt_core": ROOT / "core",
}
#: Methods of KubeClient → verbs of RBAC. A raw call says nothing about itself.
METHODS = {
    "get": ("get",),
    "list": ("list",),
    "watch": ("watch",),
    "create": ("create",),
    "replace": ("update",),
    "patch": ("patch",),
    "delete": ("delete",),
    "raw": (),
    "document": ("get",),
}
#: Kinds of others, which the registry does not hold.
DOCUMENTS = {
    "DataVolume": "cdi.kubevirt.io/datavolumes",
    "DataSource": "cdi.kubevirt.io/datasources",
    "VolumeSnapshot": "snapshot.storage.k8s.io/volumesnapshots",
}
#: Functions that lead to the client → verbs, and the place of the argument that tells the kind.
FUNCTIONS = {
    "Informer": (("list", "watch"), 1),
    "_watch": (("list", "watch"), 0),
    "write_difference": (("patch",), 1),
    "write_operations": (("patch",), 1),
    "write_status": (("patch",), 1),
    "owner_reference": (("update",), 0),
    "OwnerReference": (("update",), 0),
    "ws_connect": ((), 0),
}
SUBRESOURCE = {"write_status": "status", "owner_reference": "finalizers", "OwnerReference": "finalizers"}
#: What a client is called. `call.kube.patch`, `self._client.get`, …
RECEIVERS = frozenset(("client", "_client", "kube", "_kube", "cluster", "_cluster", "lookup"))
_KINDS = frozenset(resource.kind for resource in RESOURCES)


@dataclass(frozen=True, slots=True)
class Right:
    verb: str
    resource: str  #: group/plural[/subresource]; the core group is left out

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the code that calls the API server."""

    where: str  #: module:function:method
    rights: frozenset[Right]  #: Empty: the code alone does not tell.


@functools.cache
def sites_of(component: str) -> dict[str, Site]:
    """All of a component's own code and of what it imports from virt_core, by place."""
    found: dict[str, Site] = {}
    for module in sorted(_modules(component)):
        for site in _sites(module, ast.parse(_path(module).read_text(encoding="utf-8"))):
            known = found.get(site.where)
            # Two calls in one function count as one; if one of them does not tell its kind, neither do both.
            rights = site.rights if known is None else known.rights | site.rights
            vague = not site.rights or (known is not None and not known.rights)
            found[site.where] = Site(site.where, frozenset() if vague else rights)
    return found


def right(verb: str, kind: str, subresource: str = "") -> Right:
    resource = resource_by_kind(kind)
    parts = [part for part in (resource.group, resource.plural, subresource) if part]
    return Right(verb, "/".join(parts))


def _modules(component: str) -> set[str]:
    seen: set[str] = set()
    waiting = {_name(path, SOURCES[component]) for path in (SOURCES[component] / component).rglob("*.py")}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        tree = ast.parse(_path(module).read_text(encoding="utf-8"))
        waiting |= {name for name in _imports(tree) if name.startswith("virt_core.") and _exists(name)} - seen
    # The client itself, and what only describes, call nobody.
    return {name for name in seen if name != "virt_core.kube.client" and not name.startswith("virt_core.apis")}


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _path(module: str) -> Path:
    base = SOURCES[module.partition(".")[0]].joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _exists(module: str) -> bool:
    return _path(module).is_file()


def _sites(module: str, tree: ast.Module) -> Iterator[Site]:
    for qualname, function in _functions(tree, ()):
        kinds = _annotated(function)
        for call in _calls(function):
            yield from _site(f"{module}:{qualname}", call, kinds)


def _functions(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    """Functions with their qualified names; what stands outside of all counts as `<module>`."""
    if not path:
        yield "<module>", node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, (*path, child.name))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield ".".join((*path, child.name)), child


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    if isinstance(function, ast.Module):
        bodies = [n for n in function.body if not isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    else:
        bodies = [function]  # type: ignore[list-item]
    for body in bodies:
        yield from (node for node in ast.walk(body) if isinstance(node, ast.Call))


def _annotated(function: ast.AST) -> dict[str, str]:
    """Parameter or variable → kind, where its annotation, or the call that makes or gets it, names one."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return {}
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    texts = {arg.arg: ast.unparse(arg.annotation) for arg in given if arg.annotation is not None}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            made = node.value.args[0] if _last(node.value.func) == "get" and node.value.args else node.value.func
            texts[ast.unparse(node.targets[0])] = ast.unparse(made)
    return {name: text for name, text in texts.items() if text in _KINDS}


def _site(where: str, call: ast.Call, kinds: dict[str, str]) -> Iterator[Site]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in FUNCTIONS:
        verbs, place = FUNCTIONS[name]
        rights = _rights(verbs, call, place, kinds, SUBRESOURCE.get(name, ""))
        if rights or name != "_watch":  # Others watch files.
            yield Site(f"{where}:{name}", rights)
    elif name in METHODS and isinstance(call.func, ast.Attribute) and _last(call.func.value) in RECEIVERS:
        if name in ("get", "list") and call.args and isinstance(call.args[0], ast.Constant):
            return  # A dict of that name.
        yield Site(f"{where}:{name}", _rights(METHODS[name], call, 0, kinds, _subresource(call)))


def _rights(
    verbs: tuple[str, ...], call: ast.Call, place: int, kinds: dict[str, str], subresource: str
) -> frozenset[Right]:
    if len(call.args) <= place or subresource == "?":
        return frozenset()
    argument = call.args[place]
    if isinstance(argument, ast.Constant) and argument.value in DOCUMENTS:
        return frozenset(Right(verb, DOCUMENTS[argument.value]) for verb in verbs)
    text = ast.unparse(argument.func if isinstance(argument, ast.Call) else argument)
    kind = text if text in _KINDS else kinds.get(text, "")
    return frozenset(right(verb, kind, subresource) for verb in verbs) if kind else frozenset()


def _subresource(call: ast.Call) -> str:
    """`?` where it is not written out."""
    for keyword in call.keywords:
        if keyword.arg == "subresource":
            return str(keyword.value.value) if isinstance(keyword.value, ast.Constant) else "?"
    return ""


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
