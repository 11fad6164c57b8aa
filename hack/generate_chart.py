#!/usr/bin/env python3
"""Writes what the Helm chart shares with virt-local from the one source of both: core/virt_core/manifests.

The manifests are taken over as text, so that their comments stay: the namespace becomes the release's, every object
gets the chart's labels, the CA bundle is left out (virt-controller or cert-manager writes it), and the rights to make
virt-api's serving certificate are there only where virt-controller makes it. The definitions of our kinds are packed:
Helm keeps chart and manifest in one Secret of at most 1 MiB, and the schemas are by far the largest part of it.
`--check` only compares.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml
from chart_values import README_END, README_START, schema_text, values_table
from generate_supported import chart_section

from virt_core import __version__, manifests
from virt_core.apis.crds import plain_definitions
from virt_core.apis.datavolumecrd import config_definition, definition, roles
from virt_core.apis.support.table import TODAY

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "virtpod"
SHARED = ("rbac.yaml", "roles.yaml", "webhooks.yaml", "apiservice.yaml")
NAMESPACE = "{{ .Release.Namespace }}"
LABELS = '{{- include "virtpod.labels" . | nindent 4 }}'
SUPPORTED_START = "<!-- supported: made by `make generate` from the table of supported features -->"
SUPPORTED_END = "<!-- end of supported -->"
#: Roles that only those need for whom virt-controller makes virt-api's serving certificate.
BUILTIN = "virtpod:certificates:serving"
#: Elsewhere they are empty and not absent: Helm takes objects away last, and until then an old leader would write over
#: what cert-manager has made.
IF_BUILTIN = """{{- if eq .Values.certificates.provider "builtin" }}
rules:
%s{{- else }}
rules: []
{{- end }}
"""
#: Who gives out rights by himself takes our roles out of Kubernetes' own.
IF_AGGREGATED = """    {{- if ne (.Values.kubevirt.configuration.roleAggregationStrategy | default "") "Manual" }}
%s    {{- end }}
"""
ANNOTATIONS = """  {{- with include "virtpod.caAnnotations" . }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
"""


def render() -> dict[str, str]:
    """Path below the chart → text."""
    files = {f"templates/{name}": _header(name) + shared_template(manifests.text(name)) for name in SHARED}
    files |= {f"templates/crds/{name}": definition_template(crd) for name, crd in plain_definitions().items()}
    files["templates/datavolumes.yaml"] = data_volumes_template()
    files["templates/uploads.yaml"] = uploads_template()
    files["values.schema.json"] = schema_text()
    files["README.md"] = with_tables((CHART / "README.md").read_text(encoding="utf-8"))
    files["Chart.yaml"] = with_version((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return files


def shared_template(text: str) -> str:
    parts = [_transform(part) for part in re.split(r"(?m)^---\n", text) if "kind: Namespace\n" not in part]
    return "---\n".join(parts)


def _transform(text: str) -> str:
    if "{{" in text:
        raise ValueError(f"a manifest must hold no template of its own: {text[:80]!r}")
    text = re.sub(r"(?m)^ *caBundle: .*\n", "", text)
    text = re.sub(r"\bnamespace: virtpod\b", f"namespace: {NAMESPACE}", text)
    text = text.replace("The installer fills in", "virt-controller or cert-manager fills in")
    text = re.sub(r'(?m)^  labels: \{kubevirt\.io: ""\}\n', '  labels:\n    kubevirt.io: ""\n', text)
    text = re.sub(r'(?m)^    kubevirt\.io: ""\n', f'    kubevirt.io: ""\n    {LABELS}\n', text)
    if re.search(r"(?m)^kind: APIService$", text):
        text = re.sub(rf"(?m)^    {re.escape(LABELS)}\n", lambda found: found.group() + ANNOTATIONS, text)
    text = re.sub(
        r"(?m)^    rbac\.authorization\.k8s\.io/aggregate-to-.*\n", lambda found: IF_AGGREGATED % found[0], text
    )
    if f"\n  name: {BUILTIN}\n" in text:
        text = re.sub(r"(?ms)^rules:\n(.*)", lambda found: IF_BUILTIN % found[1], text)
    return text


def data_volumes_template() -> str:
    """The kind that CDI has as well, only where somebody asks for ours."""
    schema, start, crd = definition_template(definition()).partition("apiVersion: ")
    parts = [start + crd, *(_role_template(role) for role in roles())]
    return schema + "{{- if .Values.dataVolumes.enabled }}\n" + "---\n".join(parts) + "{{- end }}\n"


def uploads_template() -> str:
    """What belongs to it: the kind that says where disks are sent to, and what virt-api needs to take them."""
    schema, start, crd = definition_template(config_definition()).partition("apiVersion: ")
    parts = start + crd + "---\n" + shared_template(manifests.text("uploads.yaml"))
    return schema + "{{- if .Values.dataVolumes.enabled }}\n" + parts + "{{- end }}\n"


def _role_template(role: dict[str, Any]) -> str:
    text = _dump(role)
    return re.sub(r"(?m)^    kubevirt\.io: ''\n", f'    kubevirt.io: ""\n    {LABELS}\n', text)


def definition_template(crd: dict[str, Any]) -> str:
    """A definition whose versions share one schema holds it once, on one line."""
    name = crd["metadata"]["name"].partition(".")[0]
    schemas: list[str] = []
    versions = []
    for version in crd["spec"]["versions"]:
        schema = json.dumps(version["schema"]["openAPIV3Schema"], separators=(",", ":"), ensure_ascii=False)
        if schema not in schemas:
            schemas.append(schema)
        place = f"schema {schemas.index(schema)}"
        versions.append({**version, "schema": {"openAPIV3Schema": place}})
    text = "".join(_define(name, number, schema) for number, schema in enumerate(schemas))
    text += _definition_head(crd) + _dump({"spec": {**crd["spec"], "versions": versions}})
    include = f'{{{{ include "virtpod.crd.{name}.\\1" . }}}}'
    return _header(f"crds/{name}.yaml") + re.sub(r"(?m)(?<=openAPIV3Schema: )schema (\d)$", include, text)


def _define(name: str, number: int, schema: str) -> str:
    return f'{{{{- define "virtpod.crd.{name}.{number}" }}}}{schema}{{{{ end -}}}}\n'


def _definition_head(crd: dict[str, Any]) -> str:
    """Machines outlive the release: their definitions are updated with it and never removed."""
    labels = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in crd["metadata"]["labels"].items())
    return (
        f"apiVersion: {crd['apiVersion']}\nkind: {crd['kind']}\nmetadata:\n  name: {crd['metadata']['name']}\n"
        f"  annotations:\n    helm.sh/resource-policy: keep\n  labels:\n{labels}    {LABELS}\n"
    )


def _dump(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
    return text


def _header(name: str) -> str:
    return f"{{{{- /* Generated by hack/generate_chart.py from core/virt_core/manifests/{name}. Do not edit. */ -}}}}\n"


def with_tables(readme: str) -> str:
    table = values_table((CHART / "values.yaml").read_text(encoding="utf-8"))
    readme = _between(readme, README_START, table, README_END)
    return _between(readme, SUPPORTED_START, chart_section(TODAY), SUPPORTED_END)


def _between(readme: str, start: str, text: str, end: str) -> str:
    head, _, rest = readme.partition(start)
    _, _, tail = rest.partition(end)
    if not tail:
        raise ValueError(f"the chart's README has lost its marks {start} … {end}")
    return f"{head}{start}\n{text}{end}{tail}"


def with_version(chart: str) -> str:
    return re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {__version__}", chart)


def main() -> int:
    check = "--check" in sys.argv
    stale = []
    for name, text in render().items():
        path = CHART / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(("stale: " if check else "wrote ") + name)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
