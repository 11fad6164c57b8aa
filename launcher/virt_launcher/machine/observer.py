"""Says how the machine is, from what libvirt, the guest agent and QEMU's own end tell."""

from __future__ import annotations

from dataclasses import replace

from virt_core.apis.arrival import SPLIT_REASONS
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import UnavailableError
from virt_launcher.hypervisor.ports import ALIVE, Facts, Hypervisor, State
from virt_launcher.machine.disk_trouble import stands_still, words
from virt_launcher.machine.guest_agent import GuestAgent
from virt_launcher.machine.monitor import Monitor
from virt_launcher.machine.state import MachineView, agent_channel_connected, compose
from virt_launcher.machine.stats import stats_json
from virt_launcher.settings import Settings


class Observer:
    def __init__(self, settings: Settings, hypervisor: Hypervisor, monitor: Monitor, agent: GuestAgent) -> None:
        self._settings = settings
        self._hypervisor = hypervisor
        self._monitor = monitor
        self._agent = agent
        self._last_known: MachineView | None = None
        self._sentence = ""

    def view(self) -> MachineView:
        """The machine as it is now. Once it has ended, that stays true even if libvirt is gone or has forgotten it."""
        try:
            facts = self._hypervisor.facts()
        except UnavailableError:
            if self._monitor.qemu_ended is None:
                raise
            facts = None
        if not self._monitor.started and not _is_machine(facts):
            return MachineView(name=self._settings.domain_name)
        if facts is None or self._died_unnoticed(facts):
            return self._after_the_end()
        return self._remember(self._read(facts))

    def stats(self) -> bytes:
        facts = self._hypervisor.facts()
        if facts is None:
            return b""
        return stats_json(self._settings.domain_name, facts.uuid, self._hypervisor.stats())

    def _read(self, facts: Facts) -> MachineView:
        domain = from_xml(self._hypervisor.describe())
        # An agent's answer goes through the guest's memory: QEMU would wait for what is still at the other node, and
        # hear nobody meanwhile, not even who brings the rest.
        whole = facts.reason not in SPLIT_REASONS
        self._agent.channel_is(facts.state in ALIVE and whole and agent_channel_connected(domain))
        view = compose(self._settings.domain_name, facts, domain, self._agent.view)
        if self._monitor.panicked and not view.alive:
            # By now libvirt has cleaned up and only says that the machine is off.
            view = replace(view, state=State.CRASHED, reason="Panicked")
        message = "" if view.alive or view.ended_well else self._how_it_ended()
        if stands_still(view):
            message = words(self._hypervisor.disk_errors(), view.disk_targets)
        return replace(view, message=message, graceful_shutdown_requested=self._monitor.stopping)

    def _how_it_ended(self) -> str:
        self._sentence = self._sentence or self._monitor.how_it_ended()
        return self._sentence

    def _died_unnoticed(self, facts: Facts) -> bool:
        """QEMU is gone and libvirt has not seen it, because its daemon is just starting again."""
        return self._monitor.qemu_ended is not None and facts.state is State.ABSENT

    def _after_the_end(self) -> MachineView:
        last = self._last_known or MachineView(name=self._settings.domain_name)
        if not last.alive and last.state is not State.ABSENT:
            return last
        message = self._how_it_ended()
        reason = "Crashed" if message else "Shutdown"
        return self._remember(replace(last, state=State.SHUTOFF, reason=reason, message=message))

    def _remember(self, view: MachineView) -> MachineView:
        self._last_known = view
        return view


def _is_machine(facts: Facts | None) -> bool:
    """Neither a mere definition is one yet, nor a QEMU that libvirt is still setting up."""
    return facts is not None and facts.state in ALIVE and facts.reason != "StartingUp"
