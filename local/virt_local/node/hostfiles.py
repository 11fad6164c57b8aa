"""The files of /etc that a Pod gets from its node: hosts, hostname, resolv.conf. Text in, text out."""

from __future__ import annotations

from pathlib import Path

from virt_core.apis.pods import Pod

#: Where the real name servers are when the first file only names the local stub.
_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")
HOST_FILE = Path("/etc/resolv.conf")
_HOSTNAME_MAX = 63
#: More are not read by the C library.
_SERVERS_MAX = 3
_CLUSTER_FIRST = "ClusterFirst"
_DOMAIN = "cluster.local"


def hostname_of(pod: Pod) -> str:
    return (pod.spec.hostname or pod.metadata.name)[:_HOSTNAME_MAX].rstrip("-.")


def hosts_file(pod: Pod, hostname: str, ips: list[str]) -> str:
    lines = [
        "# Written by virt-local.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "ff02::1\tip6-allnodes",
        "ff02::2\tip6-allrouters",
    ]
    names = hostname
    if pod.spec.subdomain:
        names = f"{hostname}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.cluster.local\t{hostname}"
    lines += [f"{ip}\t{names}" for ip in ips]
    lines += [f"{alias.ip}\t" + "\t".join(alias.hostnames) for alias in pod.spec.host_aliases]
    return "\n".join(lines) + "\n"


def resolv_conf(pod: Pod, host_file: Path, cluster_dns: tuple[str, ...] = ()) -> str:
    """By the Pod's policy: the instance's name server and the domains of the Pod's namespace, or what the machine has,
    or nothing (`None`); then what the Pod adds."""
    servers, searches, options = _by_policy(pod, host_file, cluster_dns)
    if (extra := pod.spec.dns_config) is not None:
        servers = [*servers, *extra.nameservers]
        searches = [*searches, *extra.searches]
        own = {
            option.name: f"{option.name}:{option.value}" if option.value else option.name for option in extra.options
        }
        options = [*(each for each in options if each.partition(":")[0] not in own), *own.values()]
    servers = list(dict.fromkeys(servers))
    if len(servers) > _SERVERS_MAX:
        # Our second address is the same server once more: what the Pod asks for goes first.
        servers = [each for each in servers if each not in cluster_dns[1:]]
    lines = [f"nameserver {server}" for server in servers[:_SERVERS_MAX]]
    if searches:
        lines.insert(0, "search " + " ".join(dict.fromkeys(searches)))
    if options:
        lines.append("options " + " ".join(dict.fromkeys(options)))
    return "\n".join(lines) + "\n"


def _by_policy(pod: Pod, host_file: Path, cluster_dns: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    policy = pod.spec.dns_policy or _CLUSTER_FIRST
    if policy == "None":
        return [], [], []
    servers, searches, options = _parse(_host_text(host_file))
    on_host = policy == _CLUSTER_FIRST and pod.spec.host_network
    if policy == "Default" or on_host or not cluster_dns:
        return servers, searches, options
    own = [f"{pod.metadata.namespace}.svc.{_DOMAIN}", f"svc.{_DOMAIN}", _DOMAIN]
    return list(cluster_dns), [*own, *searches], ["ndots:5"]


def upstream_file(host_file: Path = HOST_FILE) -> Path | None:
    """Where the machine's name servers stand, those that are not on its loopback if it can be had; None: nowhere."""
    if not host_file.exists():
        return None
    return _UPSTREAM if "127.0.0.53" in host_file.read_text() and _UPSTREAM.exists() else host_file


def _host_text(path: Path) -> str:
    """A stub that listens on the host's loopback cannot be reached from a Pod."""
    found = upstream_file(path)
    return found.read_text() if found is not None else ""


def _parse(text: str) -> tuple[list[str], list[str], list[str]]:
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if len(words) < 2:
            continue
        if words[0] == "nameserver" and not words[1].startswith(("127.", "::1")):
            servers.append(words[1])
        elif words[0] in ("search", "domain"):
            searches = words[1:]
        elif words[0] == "options":
            options += words[1:]
    return servers, searches, options
