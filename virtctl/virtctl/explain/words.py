"""The answer's shape, and the phrases that all situations share."""

from __future__ import annotations

from datetime import datetime

import msgspec

from virt_core.apis import names
from virt_core.apis.meta import Condition
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.facts import Facts


class Standing(msgspec.Struct, rename="camel"):
    sentence: str
    next: str
    #: Nothing more will happen by itself.
    final: bool = False
    failed: bool = False


def duration(seconds: float) -> str:
    """`0.42 s`, `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.2f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def describe(facts: Facts) -> str:
    return f"kubectl describe {'vmi' if facts.vmi else 'vm'} {facts.name} -n {facts.namespace}"


def pod_command(facts: Facts, verb: str) -> str:
    return f"kubectl {verb} pod {facts.pod.metadata.name if facts.pod else ''} -n {facts.namespace}"


def logs(facts: Facts, component: str) -> str:
    """Of virt-handler that of the machine's node: each node has one."""
    if facts.local_instance is None:
        return f"kubectl logs -n {names.INSTALL_NAMESPACE} -l {names.LABEL_APP}={component} --prefix --tail=100"
    which = f"{component}@{facts.node}" if component == "virt-handler" and facts.node else component
    return f"virt-local logs {which} --instance {facts.local_instance}"


def text_of(condition: Condition | None) -> str:
    return (condition.message or condition.reason) if condition else ""


def held_for(moment: str | None, now: datetime) -> str:
    return f" for {duration((now - parse_rfc3339(moment)).total_seconds())}" if moment else ""
