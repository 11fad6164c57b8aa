"""What makes a webhook configuration invalid."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_qualified_name
from virt_local.apiserver.schema.validate import bad_value, required, unsupported

Object = dict[str, Any]

_CHOICES = {
    "sideEffects": ["None", "NoneOnDryRun"],
    "failurePolicy": ["Fail", "Ignore"],
    "matchPolicy": ["Equivalent", "Exact"],
}
_LONGEST_S = 30


def check_webhooks(configuration: Object, _old: Object | None) -> list[Cause]:
    # Expressions need the evaluator, which most servers never load.
    from virt_local.apiserver.security.webhooks.conditions import check_conditions

    causes: list[Cause] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        if not is_qualified_name(webhook.get("name", "")) or webhook["name"].count(".") < 2:
            causes.append(bad_value(f"{path}.name", webhook.get("name", ""), "should be a domain with three segments"))
        for name, allowed in _CHOICES.items():
            if webhook.get(name) not in allowed:
                causes.append(unsupported(f"{path}.{name}", webhook.get(name), allowed))
        if not webhook.get("admissionReviewVersions"):
            causes.append(required(f"{path}.admissionReviewVersions"))
        if not 0 < webhook.get("timeoutSeconds", 10) <= _LONGEST_S:
            why = f"the timeout value must be between 1 and {_LONGEST_S} seconds"
            causes.append(bad_value(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], why))
        causes += _check_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
        causes += _check_rules(webhook.get("rules") or [], f"{path}.rules")
        causes += check_conditions(webhook.get("matchConditions") or [], f"{path}.matchConditions")
    return causes


def _check_client(client: Object, path: str) -> list[Cause]:
    if bool(client.get("url")) == bool(client.get("service")):
        return [required(path, "exactly one of url or service is required")]
    if client.get("url") and not client["url"].startswith("https://"):
        return [bad_value(f"{path}.url", client["url"], "'https' is the only allowed URL scheme")]
    return []


def _check_rules(rules: list[Object], path: str) -> list[Cause]:
    needed = ("operations", "apiGroups", "apiVersions", "resources")
    return [
        required(f"{path}[{index}].{name}") for index, rule in enumerate(rules) for name in needed if not rule.get(name)
    ]
