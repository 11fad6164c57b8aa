"""setup, check and teardown: observe, compose, apply."""

from __future__ import annotations

from msgspec.structs import replace

from virt_core.apis.bindings import MASQUERADE
from virt_core.apis.netplan import NetPlan, NetPlanInterface, NetReport, NetReportInterface
from virt_netsetup import apply, compose, observe
from virt_netsetup.bindings.wiring import Wiring
from virt_netsetup.dhcp import DhcpServers
from virt_netsetup.model import NetsetupError, Record
from virt_netsetup.state import State
from virt_netsetup.steps import Sysctl, World, describe, name_of


def setup(plan: NetPlan, world: World, state: State) -> NetReport:
    """The plan is the whole wish: what is wired and not in it is taken down first. Of the new ones all or none: one
    that fails takes those before it down again."""
    _forget_other_namespaces(world, state)
    _drop_unwanted(plan, world, state)
    done: dict[str, NetReportInterface] = {}
    fresh: list[str] = []
    for interface in sorted(plan.interfaces, key=_order):
        known = state.load(interface.pod_interface) is not None
        try:
            done[interface.name] = _setup_interface(plan, interface, world, state)
        except (NetsetupError, OSError) as error:
            if not known and getattr(error, "undone", True):
                state.remove(interface.pod_interface)
            _take_back(fresh, world, state)
            raise
        if not known:
            fresh.append(interface.pod_interface)
    return _report(plan, [done[interface.name] for interface in plan.interfaces], world)


def _report(plan: NetPlan, done: list[NetReportInterface], world: World) -> NetReport:
    servers = [world.dhcp.process(interface.pod_interface) for interface in plan.interfaces]
    return NetReport(interfaces=done, servers=[server for server in servers if server is not None])


def _order(interface: NetPlanInterface) -> bool:
    """Masquerade makes the Pod a router for all links that there are; what must not be routed comes after it."""
    return interface.binding != MASQUERADE


def _drop_unwanted(plan: NetPlan, world: World, state: State) -> None:
    """What these put back of the Pod's settings, the others bring about again when they are set up after this."""
    wanted = {interface.pod_interface for interface in plan.interfaces}
    for record in list(state.all()):
        if record.nic.name not in wanted:
            apply.apply(compose.teardown(record), world)
            state.remove(record.nic.name)


def _position(interface: NetPlanInterface, plan: NetPlan, state: State) -> int:
    """A number that no other NIC of the Pod has, and that stays whoever comes or goes."""
    others = {r.nic.name: r.position for r in state.all()}
    if (known := others.get(interface.pod_interface, -1)) >= 0:
        return known
    first = [each.pod_interface for each in plan.interfaces].index(interface.pod_interface)
    taken = set(others.values())
    return first if first not in taken else next(n for n in range(len(taken) + 1) if n not in taken)


def _forget_other_namespaces(world: World, state: State) -> None:
    """What a former sandbox of the same Pod left behind; its namespace is gone, or none of our business."""
    for record in list(state.all()):
        if record.namespace != world.namespace:
            world.dhcp.stop(record.nic.name)
            state.remove(record.nic.name)


def _setup_interface(plan: NetPlan, interface: NetPlanInterface, world: World, state: State) -> NetReportInterface:
    position = _position(interface, plan, state)
    known = state.load(interface.pod_interface)
    if known is not None and known.binding != interface.binding:
        raise NetsetupError("binding", f"{interface.pod_interface} is already wired as {known.binding}", critical=True)
    nic = known.nic if known is not None else observe.pod_nic(world.kernel, interface.pod_interface)
    wiring = compose.setup(plan, interface, nic, position)
    if known is None:
        # Before the first change: whoever finds a half-made wiring can go on from here, or take it down.
        sysctls = _present_sysctls(wiring, world)
        record = Record(nic=nic, binding=interface.binding, namespace=world.namespace, sysctls=sysctls)
        state.save(replace(record, position=position))
    apply.apply(wiring.steps, world)
    return wiring.report


def _present_sysctls(wiring: Wiring, world: World) -> dict[str, str]:
    """Those of links that we make ourselves do not exist yet, and go with them."""
    own = wiring.report.bridge
    names = [step.name for step in wiring.steps if isinstance(step, Sysctl) and f"/{own}/" not in step.name]
    return {name: world.kernel.read_sysctl(name) for name in names}


def _take_back(nics: list[str], world: World, state: State) -> None:
    for name in reversed(nics):
        record = state.load(name)
        if record is not None:
            apply.apply(compose.teardown(record), world)
            state.remove(name)


def check(plan: NetPlan, world: World, state: State) -> NetReport:
    done = []
    for interface in plan.interfaces:
        record = state.load(interface.pod_interface)
        if record is None:
            raise NetsetupError("check", f"{interface.pod_interface} was never set up")
        wiring = compose.setup(plan, interface, record.nic, _position(interface, plan, state))
        missing = apply.first_missing(wiring.steps, world)
        if missing is not None:
            raise NetsetupError(name_of(missing), f"{interface.pod_interface}: not in place: {describe(missing)}")
        done.append(wiring.report)
    return _report(plan, done, world)


def teardown(world: World, state: State) -> NetReport:
    _forget_other_namespaces(world, state)
    for record in list(state.all()):
        apply.apply(compose.teardown(record), world)
        state.remove(record.nic.name)
    return NetReport()


def teardown_without_namespace(servers: DhcpServers, state: State) -> NetReport:
    """The Pod is gone and its network with it: what may be left is a DHCP server and our records."""
    for record in list(state.all()):
        servers.stop(record.nic.name)
        state.remove(record.nic.name)
    return NetReport()
