"""At which frequency a guest's time stamp counter runs, where the guest relies on it: the lowest that all nodes have.

virt-handler says of its node how fast the counter is, and whether the processor can give a guest a slower one.
"""

from __future__ import annotations

from virt_controller.launcher_pod.contributions import NotPermittedError, Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.counter import place, relies
from virt_core.apis.scheduling import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from virt_core.apis.selectors import GREATER, IN, LESS
from virt_core.apis.vmi import VirtualMachineInstance

_FREQUENCY = f"{names.LABEL_PREFIX_CPU_TIMER}tsc-frequency"
_SCALABLE = f"{names.LABEL_PREFIX_CPU_TIMER}tsc-scalable"
#: Guests take so much for the same: 250 parts of a million.
_TOLERANCE = 4000


class NoFrequencyError(NotPermittedError):
    """No node says how fast its counter runs."""

    reason = names.REASON_NO_TOPOLOGY_HINTS


def counter(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Raises NoFrequencyError for a guest that cannot do without."""
    hz = frequency(vmi, config)
    if not hz and place(vmi) is not None:
        where = f"spec.domain.cpu.features[{place(vmi)}]"
        raise NoFrequencyError(f"{where}: no node says how fast its time stamp counter runs ({_FREQUENCY})")
    return Parts(annotations={names.ANNOTATION_TSC_FREQUENCY: str(hz)}) if hz else Parts()


def frequency(vmi: VirtualMachineInstance, config: TemplateConfig) -> int:
    """0: the guest does not rely on it, or nobody knows. What was found once stays, wherever the guest moves."""
    hints = vmi.status.topology_hints
    if hints is not None and hints.tsc_frequency:
        return hints.tsc_frequency
    if not relies(vmi):
        return 0
    told = [int(text) for labels in config.node_labels if (text := labels.get(_FREQUENCY, "")).isdecimal()]
    return config.cluster.minimum_tsc_hz or min(told, default=0)


def reach(vmi: VirtualMachineInstance, config: TemplateConfig) -> tuple[NodeSelector, ...]:
    """Nodes that run at it, or that are quicker and can be slowed down."""
    hz = frequency(vmi, config)
    if not hz:
        return ()
    off = hz // _TOLERANCE
    enough = NodeSelectorRequirement(key=_FREQUENCY, operator=GREATER, values=[str(hz - off - 1)])
    same = NodeSelectorRequirement(key=_FREQUENCY, operator=LESS, values=[str(hz + off + 1)])
    scalable = NodeSelectorRequirement(key=_SCALABLE, operator=IN, values=["true"])
    terms = [NodeSelectorTerm(match_expressions=[enough, each]) for each in (same, scalable)]
    return (NodeSelector(node_selector_terms=terms),)
