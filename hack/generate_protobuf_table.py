"""Writes the protobuf field numbers of the built-in kinds that typed Kubernetes clients send.

Arguments: git directories of kubernetes/api and kubernetes/apimachinery. One line of the table is one message:
`NAME field=NUMBER:TYPE …`, where `[]T` is repeated, `{}T` a map by text, and `^` marks a field whose
content stands in its parent in JSON. Only needed again when a kind is added.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOTS = [
    "core/v1.Namespace",
    "core/v1.ConfigMap",
    "core/v1.Secret",
    "core/v1.ServiceAccount",
    "core/v1.Service",
    "core/v1.Pod",
    "core/v1.Node",
    "core/v1.Event",
    "core/v1.Binding",
    "core/v1.PersistentVolumeClaim",
    "core/v1.PersistentVolume",
    "events/v1.Event",
    "authentication/v1.TokenRequest",
    "authentication/v1.TokenReview",
    "authentication/v1.SelfSubjectReview",
    "authorization/v1.SelfSubjectAccessReview",
    "authorization/v1.SelfSubjectRulesReview",
    "authorization/v1.SubjectAccessReview",
    "authorization/v1.LocalSubjectAccessReview",
    "coordination/v1.Lease",
    "policy/v1.Eviction",
    "policy/v1.PodDisruptionBudget",
    "rbac/v1.Role",
    "rbac/v1.RoleBinding",
    "rbac/v1.ClusterRole",
    "rbac/v1.ClusterRoleBinding",
    "scheduling/v1.PriorityClass",
    "storage/v1.StorageClass",
    "autoscaling/v1.Scale",
    "meta/v1.DeleteOptions",
    "apps/v1.ControllerRevision",
    "discovery/v1.EndpointSlice",
]
PACKAGES = {".k8s.io.apimachinery.pkg.apis.meta.v1.": "meta/v1.", ".k8s.io.apimachinery.pkg.runtime.": "runtime."}
PACKAGES |= {".k8s.io.apimachinery.pkg.api.resource.": "resource.", ".k8s.io.apimachinery.pkg.util.intstr.": "intstr."}
FIELD = re.compile(r"^  (?:optional |repeated )?(map<string, \S+>|\S+) (\w+) = (\d+);$", re.MULTILINE)
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
SCHEMA = Path(__file__).resolve().parent.parent / "local/virt_local/apiserver/schema"


def read(repo: str, path: str) -> str:
    return subprocess.run(
        ["git", "-C", repo, "show", f"HEAD:{path}"], check=True, capture_output=True, text=True
    ).stdout


def messages(api: str, machinery: str) -> dict[str, str]:
    listed = subprocess.run(
        ["git", "-C", api, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True
    )
    sources = {f"{m[1]}.": read(api, m[0]) for m in re.finditer(r"(\w+/v1)/generated\.proto", listed.stdout)}
    sources["meta/v1."] = read(machinery, "pkg/apis/meta/v1/generated.proto")
    return {prefix + m[1]: m[2] for prefix, text in sources.items() for m in MESSAGE.finditer(text)}


def type_code(text: str, prefix: str) -> str:
    if match := re.fullmatch(r"map<string, (\S+)>", text):
        return "{}" + type_code(match[1], prefix)
    if not text.startswith("."):
        return text if text in ("string", "bool", "int32", "int64", "bytes", "double") else prefix + text
    for package, short in PACKAGES.items():
        if text.startswith(package):
            return short + text.removeprefix(package)
    return text.removeprefix(".k8s.io.api.").replace(".v1.", "/v1.")


def json_names() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in (SCHEMA / "builtin_types.txt").read_text().splitlines():
        name, *fields = line.split(" ")
        short = re.sub("^(Core|Events|Authentication)?V1", "", name)
        found.setdefault(short, set()).update(field.split(":")[0].rstrip("!") for field in fields)
    return found


def line_of(name: str, body: str, known: dict[str, set[str]], found: set[str]) -> str:
    prefix, _, short = name.rpartition(".")
    parts = [name]
    for match in FIELD.finditer(body):
        line = body[match.start() : match.end()].strip()
        code = type_code(match[1], prefix + ".")
        found.add(code.removeprefix("{}"))
        inline = short in known and match[2] not in known[short] and "." in code
        parts.append(
            f"{match[2]}{'^' if inline else ''}={match[3]}:{'[]' if line.startswith('repeated') else ''}{code}"
        )
    return " ".join(parts)


def main() -> None:
    bodies, known = messages(*sys.argv[1:3]), json_names()
    lines: dict[str, str] = {}
    waiting = set(ROOTS)
    while waiting:
        name = waiting.pop()
        found: set[str] = set()
        lines[name] = line_of(name, bodies[name], known, found)
        waiting |= {code for code in found if code in bodies} - lines.keys()
    (SCHEMA / "protobuf_fields.txt").write_text("\n".join(lines[name] for name in sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
