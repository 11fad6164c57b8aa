"""Rules about names, strategies, probes, DNS and credentials."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, not_supported, one_of, required
from virt_api.admission.rules.base import Check, is_dns_label, is_dns_subdomain
from virt_core.apis import eviction
from virt_core.apis.networks import decimal_octets
from virt_core.apis.vmi import AccessCredential, Probe

DNS_POLICIES = ("", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def hostname(check: Check) -> Iterator[Cause]:
    if check.spec.hostname and not is_dns_label(check.spec.hostname):
        yield invalid(f"{check.path}.hostname", "must be a DNS label: at most 63 lower case letters, digits and '-'")
    if check.spec.subdomain and not is_dns_subdomain(check.spec.subdomain):
        yield invalid(f"{check.path}.subdomain", "must be a DNS name in lower case")


def service_account_name(check: Check) -> Iterator[Cause]:
    if check.spec.service_account_name and not is_dns_subdomain(check.spec.service_account_name):
        yield invalid(f"{check.path}.serviceAccountName", "is not a valid object name")


def start_strategy(check: Check) -> Iterator[Cause]:
    strategy = check.spec.start_strategy
    if strategy is None:
        return
    field = f"{check.path}.startStrategy"
    if strategy != "Paused":
        yield invalid(field, one_of(strategy, ("Paused",)))
    elif check.spec.liveness_probe is not None:
        yield invalid(field, "cannot be Paused together with a livenessProbe, which would fail")


def eviction_strategy(check: Check) -> Iterator[Cause]:
    strategy = check.spec.eviction_strategy
    if strategy is not None and strategy not in eviction.STRATEGIES:
        yield invalid(f"{check.path}.evictionStrategy", one_of(strategy, eviction.STRATEGIES))


def grace_period(check: Check) -> Iterator[Cause]:
    grace = check.spec.termination_grace_period_seconds
    if grace is not None and grace < 0:
        yield invalid(f"{check.path}.terminationGracePeriodSeconds", "must not be negative")


def probes(check: Check) -> Iterator[Cause]:
    for name, probe in (("readinessProbe", check.spec.readiness_probe), ("livenessProbe", check.spec.liveness_probe)):
        if probe is not None:
            yield from _probe(check, f"{check.path}.{name}", probe)


def _probe(check: Check, field: str, probe: Probe) -> Iterator[Cause]:
    handlers = (probe.exec_, probe.guest_agent_ping, probe.http_get, probe.tcp_socket)
    given = sum(handler is not None for handler in handlers)
    if given > 1:
        yield invalid(field, "only one of exec, guestAgentPing, httpGet and tcpSocket can be given")
    elif given == 0:
        yield required(field, "one of exec, guestAgentPing, httpGet and tcpSocket is needed")
    elif probe.exec_ is not None and not probe.exec_.command:
        yield required(f"{field}.exec.command", "must name the command")
    by_network = probe.http_get is not None or probe.tcp_socket is not None
    if by_network and not any(network.pod is not None for network in check.spec.networks):
        yield invalid(field, "httpGet and tcpSocket need the Pod network")


def dns(check: Check) -> Iterator[Cause]:
    policy, config = check.spec.dns_policy, check.spec.dns_config
    if policy not in DNS_POLICIES:
        yield not_supported(f"{check.path}.dnsPolicy", one_of(policy, DNS_POLICIES[1:]))
    if policy == "None" and config is None:
        yield required(f"{check.path}.dnsConfig", "must be given when dnsPolicy is None")
    elif policy == "None" and config is not None and not config.nameservers:
        yield required(f"{check.path}.dnsConfig.nameservers", "must have at least one entry when dnsPolicy is None")


def dns_config(check: Check) -> Iterator[Cause]:
    config = check.spec.dns_config
    if config is None:
        return
    if len(config.nameservers) > 3:
        yield invalid("nameservers", "at most 3 can be given")
    for server in config.nameservers:
        if not _is_ip(server):
            yield invalid("nameservers", f"{server!r} is not an IP address")
    if len(config.searches) > 6 or len(" ".join(config.searches)) > 256:
        yield invalid("searches", "at most 6 can be given, with at most 256 characters in all")
    for search in config.searches:
        if not is_dns_subdomain(search.rstrip(".")):
            yield invalid("searches", f"{search!r} is not a DNS name")
    if any(not option.name for option in config.options):
        yield invalid("options", "an option needs a name")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(decimal_octets(text))
    except ValueError:
        return False
    return True


def access_credentials(check: Check) -> Iterator[Cause]:
    volumes = check.spec.volumes
    no_cloud = any(volume.cloud_init_no_cloud for volume in volumes)
    config_drive = any(volume.cloud_init_config_drive for volume in volumes)
    for i, credential in enumerate(check.spec.access_credentials):
        field = f"{check.path}.accessCredentials[{i}]"
        if (credential.ssh_public_key is None) == (credential.user_password is None):
            yield invalid(field, "exactly one of sshPublicKey and userPassword is needed")
        yield from _ssh_key(f"{field}.sshPublicKey", credential, no_cloud=no_cloud, config_drive=config_drive)
        password = credential.user_password
        if password is not None and password.source.secret is None:
            yield invalid(f"{field}.userPassword.source", "must be a Secret")
        if password is not None and password.propagation_method.qemu_guest_agent is None:
            yield invalid(f"{field}.userPassword.propagationMethod", "must be qemuGuestAgent")


def _ssh_key(field: str, credential: AccessCredential, *, no_cloud: bool, config_drive: bool) -> Iterator[Cause]:
    key = credential.ssh_public_key
    if key is None:
        return
    if key.source.secret is None:
        yield invalid(f"{field}.source", "must be a Secret")
    method = key.propagation_method
    given = (method.config_drive, method.no_cloud, method.qemu_guest_agent)
    if sum(one is not None for one in given) != 1:
        yield invalid(f"{field}.propagationMethod", "exactly one of configDrive, noCloud and qemuGuestAgent is needed")
        return
    if method.no_cloud is not None and not no_cloud:
        yield invalid(f"{field}.propagationMethod", "noCloud needs a cloudInitNoCloud volume")
    if method.config_drive is not None and not config_drive:
        yield invalid(f"{field}.propagationMethod", "configDrive needs a cloudInitConfigDrive volume")
    if method.qemu_guest_agent is not None and not method.qemu_guest_agent.users:
        yield invalid(f"{field}.propagationMethod.qemuGuestAgent.users", "at least one user is needed")
